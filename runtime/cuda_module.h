// Machine code for a GPU: the image that was made of some kernels, and its functions on each device that has run one.
// Invariant: a device loads an image once, when it is first needed there.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "codegen/cuda/nvrtc.h"
#include "codegen/program.h"
#include "runtime/driver/cuda.h"

namespace sheaf::runtime {

class CudaModule {
 public:
  /// `origin`, for messages: "made by NVRTC 13.0 for sm_90a".
  CudaModule(std::vector<std::byte> image, std::string origin) : image_(std::move(image)), origin_(std::move(origin)) {}

  /// Loaded into the context that is current, which is that of GPU `ordinal`. DataLoss where the driver says that this
  /// is no machine code for it; its other errors.
  absl::StatusOr<cuda::CUmodule> on(const Cuda& cuda, int ordinal);
  const std::vector<std::byte>& image() const { return image_; }
  const std::string& origin() const { return origin_; }

 private:
  const std::vector<std::byte> image_;
  const std::string origin_;
  std::mutex mutex_;
  std::map<int, cuda::CUmodule> loaded_;
};
using CudaModulePtr = std::shared_ptr<CudaModule>;

/// A kernel's functions, one per phase, on each device that has run it.
class CudaKernel {
 public:
  using Functions = std::vector<cuda::CUfunction>;
  /// Makes the module anew, for an image that came from elsewhere and that the driver refuses.
  using Remake = std::function<absl::StatusOr<CudaModulePtr>()>;

  CudaKernel(CudaModulePtr module, std::vector<codegen::Phase> phases, std::vector<codegen::CudaFunction> taken,
             Remake remake = nullptr)
      : phases_(std::move(phases)), taken_(std::move(taken)), remake_(std::move(remake)), module_(std::move(module)) {}

  absl::StatusOr<const Functions*> on(const Cuda& cuda, int ordinal);
  /// What the function of each phase takes.
  const std::vector<codegen::CudaFunction>& taken() const { return taken_; }
  CudaModulePtr module() const;

 private:
  absl::StatusOr<cuda::CUmodule> module_on(const Cuda& cuda, int ordinal);

  const std::vector<codegen::Phase> phases_;
  const std::vector<codegen::CudaFunction> taken_;
  mutable std::mutex mutex_;  // guards what follows
  Remake remake_;
  CudaModulePtr module_;
  std::map<int, Functions> loaded_;
};

}  // namespace sheaf::runtime
