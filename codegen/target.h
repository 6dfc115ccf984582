// What identifies the machine code of a target. Invariant: everything a kernel's code depends on beyond its own text is
// in its target or in the compiler's version, so `key_of` belongs to every kernel key.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "ir/target.h"

namespace sheaf::codegen {

using ir::Target;

std::string key_of(const Target& target);

/// That of GPUs of this compute capability.
Target gpu_target(int major, int minor);
/// "cpu", or that of GPUs by the name of their architecture, with or without an "a" at its end; InvalidArgument.
absl::StatusOr<Target> parse_target(std::string_view name);

}  // namespace sheaf::codegen
