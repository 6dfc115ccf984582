// How long a phase's unit takes on one CPU core, to the factor of two that chunking needs. A flat cost per node; no
// measurement, so that plans and keys are the same on every machine.
#pragma once

#include "codegen/kir/kir.h"

namespace sheaf::kir {

std::int64_t estimate_unit_ps(const Phase& phase);

}  // namespace sheaf::kir
