// Machine code for a GPU: the image that NVRTC made of some kernels, and its functions on each device that has run one.
// Invariant: a device loads the image once, when it is first needed there.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "codegen/program.h"
#include "runtime/driver/cuda.h"
#include "runtime/kernel.h"

namespace sheaf::runtime {

class CudaModule {
 public:
  explicit CudaModule(std::vector<std::byte> image) : image_(std::move(image)) {}

  /// Loaded into the context that is current, which is that of GPU `ordinal`. The driver's errors.
  absl::StatusOr<cuda::CUmodule> on(const Cuda& cuda, int ordinal);
  std::int64_t bytes() const { return std::ssize(image_); }

 private:
  const std::vector<std::byte> image_;
  std::mutex mutex_;
  std::map<int, cuda::CUmodule> loaded_;
};

/// A kernel's functions, one per phase, on each device that has run it.
class CudaKernel {
 public:
  using Functions = std::vector<cuda::CUfunction>;

  CudaKernel(std::shared_ptr<CudaModule> module, std::vector<codegen::Phase> phases)
      : module_(std::move(module)), phases_(std::move(phases)) {}

  absl::StatusOr<const Functions*> on(const Cuda& cuda, int ordinal);

 private:
  const std::shared_ptr<CudaModule> module_;
  const std::vector<codegen::Phase> phases_;
  std::mutex mutex_;
  std::map<int, Functions> loaded_;
};

/// Compiles these, of one target, as one program, which costs less than each alone; counts and logs it. NVRTC's errors,
/// with the names of the kernels and the text of the program.
absl::StatusOr<std::vector<CompiledKernel>> compile_cuda(std::span<const codegen::KernelCode* const> kernels);

}  // namespace sheaf::runtime
