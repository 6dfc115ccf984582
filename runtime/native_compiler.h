// From a kernel's KIR to functions in memory, on the CPU of this machine.
#pragma once

#include "absl/status/statusor.h"
#include "runtime/kernel.h"

namespace sheaf::runtime {

/// Compiles and loads; counts and logs both. The compiler's and the loader's errors, with the kernel's name.
absl::StatusOr<CompiledKernel> compile_native(const codegen::KernelCode& code);

}  // namespace sheaf::runtime
