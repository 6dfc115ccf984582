// What identifies the machine code of a target. Invariant: everything a kernel's code depends on beyond its own text is
// in its target or in the compiler's version, so `key_of` belongs to every kernel key.
#pragma once

#include <string>

#include "ir/target.h"

namespace sheaf::codegen {

using ir::Target;

std::string key_of(const Target& target);

}  // namespace sheaf::codegen
