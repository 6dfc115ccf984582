// One phase of a kernel with its buffers, as the driver takes it: for a launch, and for a node of a graph.
#pragma once

#include <span>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/statusor.h"
#include "codegen/program.h"
#include "runtime/driver/cuda.h"

namespace sheaf::runtime {

/// What a phase is given of so many buffers.
using PointerRuns = absl::InlinedVector<codegen::PointerRun, 16>;
PointerRuns pointers_of(const codegen::Phase& phase, std::size_t buffers);

class CudaLaunch {
 public:
  /// `buffers` must stay where they are.
  CudaLaunch(cuda::CUfunction function, const codegen::Phase& phase, std::span<void* const> buffers);

  absl::Status on(const Cuda& cuda, cuda::CUstream stream);
  /// As it is while this stays where it is.
  absl::StatusOr<cuda::CUDA_KERNEL_NODE_PARAMS> node(const Cuda& cuda);

 private:
  absl::Status encode_maps(const Cuda& cuda);

  const cuda::CUfunction function_;
  const codegen::Phase& phase_;
  const std::span<void* const> buffers_;
  std::vector<cuda::CUtensorMap> maps_;
  absl::InlinedVector<void*, 16> parameters_;  // each points to where its value is
  const std::size_t pointers_;  // the first of them
};

}  // namespace sheaf::runtime
