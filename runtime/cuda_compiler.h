// From the kernels of GPUs to machine code. What the disk cache has is read, and where that is everything the compiler
// is not even opened; the rest is compiled, some kernels to a program, on all threads, and stored for the next process.
#pragma once

#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "codegen/program.h"
#include "runtime/kernel.h"
#include "runtime/kernel_files.h"

namespace sheaf::runtime {

/// Of each of these, in order, its code or why it has none: NVRTC's errors, with the kernel's name and the user's line.
/// Counts and logs. The kernels outlive what is made of them.
std::vector<absl::StatusOr<CompiledKernel>> compile_cuda(std::span<const codegen::KernelCode* const> kernels);

/// Of a compiled one: its record, and the image that has it.
std::vector<KernelFile> cuda_files(const Kernel& kernel);

}  // namespace sheaf::runtime
