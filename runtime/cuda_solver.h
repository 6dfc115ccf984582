// Factorisations and triangular systems on one GPU by cuSOLVER and cuBLAS, with kernels around them; nothing of it
// waits for the host. Where the libraries are missing, LAPACK does the same on copies in the host's memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "codegen/program.h"
#include "runtime/buffer.h"
#include "runtime/driver/cuda.h"
#include "runtime/driver/linear_algebra.h"

namespace sheaf::runtime {

class CudaSolver {
 public:
  /// For the GPU whose memory this is.
  CudaSolver(const Cuda& cuda, std::string device, Allocator& memory)
      : cuda_(cuda), device_(std::move(device)), memory_(memory) {}

  /// Puts the routine on the stream, in the GPU's context, which is current; `around` are the functions of
  /// codegen::around_routines. False, and nothing done, where the library is missing, or the host is quicker.
  absl::StatusOr<bool> run(const codegen::LibraryCall& call, std::span<const std::byte* const> operands,
                           std::span<std::byte* const> results, std::span<const cuda::CUfunction> around,
                           cuda::CUstream stream);

 private:
  bool start(ir::lowering::Library::Routine routine);
  bool start_cublas();
  bool start_cusolver();
  absl::StatusOr<std::byte*> scratch(std::int64_t bytes, cuda::CUstream stream);
  template <class T>
  class Batch;  // one call

  const Cuda& cuda_;
  const std::string device_;
  Allocator& memory_;
  std::mutex mutex_;  // guards what follows, and holds the steps of one call together on the stream
  bool has_started_cublas_ = false, has_started_cusolver_ = false, has_told_of_host_ = false;
  const Cublas* cublas_ = nullptr;  // null: there is none
  const Cusolver* cusolver_ = nullptr;
  linear_algebra::cublasHandle_t cublas_handle_ = nullptr;
  linear_algebra::cusolverDnHandle_t cusolver_handle_ = nullptr;
  std::shared_ptr<Memory> scratch_;  // of all calls, which follow each other on the GPU's one stream
  std::int64_t scratch_bytes_ = 0;
};

}  // namespace sheaf::runtime
