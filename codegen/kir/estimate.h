// How long a phase's unit takes on one CPU core, to the factor of two that chunking needs. A flat cost per node; no
// measurement, so that plans and keys are the same on every machine.
#pragma once

#include "codegen/kir/kir.h"

namespace sheaf::kir {

std::int64_t estimate_unit_ps(const Phase& phase);

/// Work below this runs on the caller alone; units aim at half of it.
inline constexpr std::int64_t kSerialPs = 8'000'000;
inline constexpr std::int64_t kUnitPs = 4'000'000;

}  // namespace sheaf::kir
