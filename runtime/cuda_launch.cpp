// A kernel's parameters are the addresses of its buffers.
#include "runtime/cuda_launch.h"

#include "fmt/format.h"

namespace sheaf::runtime {

CudaLaunch::CudaLaunch(cuda::CUfunction function, const codegen::Phase& phase, std::span<void* const> buffers)
    : function_(function), phase_(phase) {
  for (void* const& buffer : buffers) parameters_.push_back(const_cast<void**>(&buffer));
}

absl::Status CudaLaunch::on(const Cuda& cuda, cuda::CUstream stream) {
  const cuda::CUlaunchConfig config{.gridDimX = static_cast<unsigned>(phase_.extent),
                                    .gridDimY = 1,
                                    .gridDimZ = 1,
                                    .blockDimX = static_cast<unsigned>(phase_.threads),
                                    .blockDimY = 1,
                                    .blockDimZ = 1,
                                    .sharedMemBytes = static_cast<unsigned>(phase_.shared_bytes),
                                    .hStream = stream,
                                    .attrs = nullptr,
                                    .numAttrs = 0};
  return cuda.status(cuda.cuLaunchKernelEx(&config, function_, parameters_.data(), nullptr),
                     fmt::format("launch of {} blocks of {}", phase_.extent, phase_.threads));
}

cuda::CUDA_KERNEL_NODE_PARAMS CudaLaunch::node() {
  return {.func = function_,
          .gridDimX = static_cast<unsigned>(phase_.extent),
          .gridDimY = 1,
          .gridDimZ = 1,
          .blockDimX = static_cast<unsigned>(phase_.threads),
          .blockDimY = 1,
          .blockDimZ = 1,
          .sharedMemBytes = static_cast<unsigned>(phase_.shared_bytes),
          .kernelParams = parameters_.data(),
          .extra = nullptr,
          .kern = nullptr,
          .ctx = nullptr};
}

}  // namespace sheaf::runtime
