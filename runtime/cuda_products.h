// Products of matrices on one GPU by cuBLASLt. Which of its kernels does a product is asked once per shape; that answer
// depends on nothing but the shape, the library and the GPU, so values do not change from run to run.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "codegen/program.h"
#include "runtime/buffer.h"
#include "runtime/driver/linear_algebra.h"

namespace sheaf::runtime {

/// Opens cuBLASLt on a thread of its own, so that nobody waits for that who compiles meanwhile.
void open_cublaslt_early();

class CudaProducts {
 public:
  using Opener = absl::StatusOr<const CublasLt*> (*)();
  /// For the GPU whose memory this is.
  CudaProducts(std::string device, Allocator& memory, Opener open = &CublasLt::load)
      : device_(std::move(device)), memory_(memory), open_(open) {}

  /// Puts the product on the stream, in the GPU's context, which is current. False, and nothing done, where there is no
  /// library, or it has no kernel for this, or there is no memory for its work space.
  absl::StatusOr<bool> run(const codegen::Product& product, const std::byte* a, const std::byte* b, std::byte* out,
                           linear_algebra::CUstream stream);

 private:
  struct Prepared {
    linear_algebra::cublasLtMatmulDesc_t product = nullptr;
    linear_algebra::cublasLtMatrixLayout_t a = nullptr, b = nullptr, out = nullptr;
    linear_algebra::cublasLtMatmulHeuristicResult_t chosen = {};
    bool is_possible = false;
  };
  /// Bytes that the addresses of a, b and out are multiples of, up to 16.
  using Alignments = std::array<std::uint32_t, 3>;

  bool start();
  bool has_work_space();
  absl::StatusOr<const Prepared*> prepared(const codegen::Product& product, const Alignments& alignments);
  absl::Status describe(const codegen::Product& product, Prepared& prepared) const;
  absl::Status choose(const Alignments& alignments, Prepared& prepared) const;

  const std::string device_;
  Allocator& memory_;
  const Opener open_;
  std::mutex mutex_;  // guards what follows
  bool has_started_ = false;
  const CublasLt* library_ = nullptr;  // null: there is none
  linear_algebra::cublasLtHandle_t handle_ = nullptr;
  std::map<std::pair<codegen::Product, Alignments>, Prepared> prepared_;  // never forgotten
  bool was_refused_ = false;  // memory for what follows
  std::shared_ptr<Memory> work_space_;  // of all products, which follow each other on the GPU's one stream
};

}  // namespace sheaf::runtime
