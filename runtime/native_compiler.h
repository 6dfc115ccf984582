// From a kernel's KIR to functions in memory, on the CPU of this machine; or from what another process compiled.
#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "runtime/kernel.h"

namespace sheaf::runtime {

/// From the disk cache, without the compiler.
std::optional<CompiledKernel> read_native(const codegen::KernelCode& code);
/// Compiles, stores and loads; counts and logs. The compiler's and the loader's errors, with the kernel's name.
absl::StatusOr<CompiledKernel> compile_native(const codegen::KernelCode& code);
/// Its object's bytes, from the disk cache or the compiler.
absl::StatusOr<std::string> object_of(const codegen::KernelCode& code);

}  // namespace sheaf::runtime
