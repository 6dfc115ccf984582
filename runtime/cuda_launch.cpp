// A kernel's parameters are the addresses of its buffers, then the maps of those that it copies boxes of.
#include "runtime/cuda_launch.h"

#include "fmt/format.h"

namespace sheaf::runtime {

namespace {

/// The driver reads as many bytes from there as the parameter has.
absl::InlinedVector<void*, 16> values_of(const PointerRuns& runs, std::span<void* const> buffers) {
  absl::InlinedVector<void*, 16> values;
  for (const codegen::PointerRun& run : runs)
    values.push_back(const_cast<void**>(&buffers[static_cast<std::size_t>(run.first)]));
  return values;
}

}  // namespace

PointerRuns pointers_of(const codegen::Phase& phase, std::size_t buffers) {
  PointerRuns runs(phase.parameters.begin(), phase.parameters.end());
  for (std::size_t i = 0; phase.parameters.empty() && i < buffers; ++i) runs.push_back({static_cast<int>(i), 1});
  return runs;
}

CudaLaunch::CudaLaunch(cuda::CUfunction function, const codegen::Phase& phase, std::span<void* const> buffers)
    : function_(function),
      phase_(phase),
      buffers_(buffers),
      parameters_(values_of(pointers_of(phase, buffers.size()), buffers)),
      pointers_(parameters_.size()) {}

absl::Status CudaLaunch::encode_maps(const Cuda& cuda) {
  if (phase_.maps.empty()) return absl::OkStatus();
  if (!cuda.cuTensorMapEncodeTiled)
    return absl::UnimplementedError(phase_.entry + ": the driver has no cuTensorMapEncodeTiled");
  maps_.resize(phase_.maps.size());
  for (std::size_t i = 0; i < maps_.size(); ++i) {
    const codegen::TensorMap& m = phase_.maps[i];
    const auto bytes = static_cast<std::uint64_t>(size_bytes(m.dtype));
    const auto type =
        m.dtype == DType::bf16 ? cuda::CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : cuda::CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
    const std::uint64_t dims[] = {static_cast<std::uint64_t>(m.columns), static_cast<std::uint64_t>(m.rows)};
    const std::uint64_t strides[] = {static_cast<std::uint64_t>(m.pitch) * bytes};
    const std::uint32_t box[] = {static_cast<std::uint32_t>(m.box_columns), static_cast<std::uint32_t>(m.box_rows)};
    constexpr std::uint32_t kSteps[] = {1, 1};
    std::byte* const begin = static_cast<std::byte*>(buffers_[static_cast<std::size_t>(m.buffer)]) + m.offset * bytes;
    absl::Status status = cuda.status(
        cuda.cuTensorMapEncodeTiled(&maps_[i], type, 2, begin, dims, strides, box, kSteps,
                                    cuda::CU_TENSOR_MAP_INTERLEAVE_NONE, cuda::CU_TENSOR_MAP_SWIZZLE_128B,
                                    cuda::CU_TENSOR_MAP_L2_PROMOTION_L2_256B, cuda::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE),
        fmt::format("cuTensorMapEncodeTiled of {} x {} for {}", m.rows, m.columns, phase_.entry));
    if (!status.ok()) return status;
  }
  parameters_.resize(pointers_);
  for (cuda::CUtensorMap& map : maps_) parameters_.push_back(&map);
  return absl::OkStatus();
}

absl::Status CudaLaunch::on(const Cuda& cuda, cuda::CUstream stream) {
  if (absl::Status status = encode_maps(cuda); !status.ok()) return status;
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

absl::StatusOr<cuda::CUDA_KERNEL_NODE_PARAMS> CudaLaunch::node(const Cuda& cuda) {
  if (absl::Status status = encode_maps(cuda); !status.ok()) return status;
  return cuda::CUDA_KERNEL_NODE_PARAMS{.func = function_,
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
