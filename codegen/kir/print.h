// The text of a kernel: what a dump shows and what the kernel key hashes. Invariant: equal text means equal behaviour;
// the text holds neither the kernel's name nor its cost estimate, so kernels that differ only there share code.
#pragma once

#include <string>

#include "codegen/kir/kir.h"

namespace sheaf::kir {

std::string to_text(const Kernel& kernel);
std::string to_text(const IndexPool& pool, const std::vector<Axis>& axes, Index index);

}  // namespace sheaf::kir
