// Descriptions of the product and its matrices are made once and kept with the kernel that was chosen for them.
#include "runtime/cuda_products.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <thread>

#include "ir/check.h"
#include "ir/log.h"
#include "runtime/compiler_gate.h"
#include "runtime/counters.h"

namespace sheaf::runtime {

using namespace linear_algebra;
using codegen::Product;

namespace {

/// As much as the library's fastest kernels for a large GPU ask for.
constexpr std::int64_t kWorkSpace = 32 << 20;

cudaDataType data_type(DType t) {
  switch (t) {
    case DType::f16: return CUDA_R_16F;
    case DType::bf16: return CUDA_R_16BF;
    case DType::f32: return CUDA_R_32F;
    case DType::f64: return CUDA_R_64F;
    default: break;
  }
  SHEAF_CHECK(false, fmt::format("a product of {} for the library", name(t)));
  return CUDA_R_32F;
}

/// The largest power of two that divides the address, up to the 16 that all memory of devices has: where an array lies
/// does not choose the kernel.
std::uint32_t alignment(const std::byte* at) {
  return 1u << std::min(std::countr_zero(std::bit_cast<std::uintptr_t>(at)), 4);
}

template <class T>
const std::byte* element(const std::byte* at, const T& matrix) {
  return at + matrix.offset * size_bytes(matrix.dtype);
}

}  // namespace

void open_cublaslt_early() {
  static std::once_flag once;
  std::call_once(once, [] {
    std::thread([] {
      if (const CompilerGate::Visit visit(CompilerGate::global()); visit) (void)CublasLt::load();
    }).detach();
  });
}

/// True where there is a library; says once why there is none.
bool CudaProducts::start() {
  if (has_started_) return library_;
  has_started_ = true;
  const absl::StatusOr<const CublasLt*> library = open_();
  absl::Status status = library.status();
  if (library.ok()) status = library_status((**library).cublasLtCreate(&handle_), "cublasLtCreate");
  if (!status.ok()) {
    ir::log(ir::LogTopic::runtime, "{}: products by kernels of Sheaf's own: {}", device_,
            std::string(status.message()));
    return false;
  }
  library_ = *library;
  ir::log(ir::LogTopic::runtime, "{}: large products by {}, cuBLASLt {}", device_, library_->path(),
          library_->version());
  return true;
}

absl::Status CudaProducts::describe(const Product& product, Prepared& to) const {
  const bool is_double = product.a.dtype == DType::f64;
  const cublasComputeType_t computed = is_double                              ? CUBLAS_COMPUTE_64F
                                       : product.precision == Precision::tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32
                                                                              : CUBLAS_COMPUTE_32F;
  absl::Status status =
      library_status(library_->cublasLtMatmulDescCreate(&to.product, computed, is_double ? CUDA_R_64F : CUDA_R_32F),
                     "cublasLtMatmulDescCreate");
  const auto transpose = [&](cublasLtMatmulDescAttributes_t attribute, const Product::Matrix& matrix) {
    const cublasOperation_t operation = matrix.is_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    if (status.ok())
      status =
          library_status(library_->cublasLtMatmulDescSetAttribute(to.product, attribute, &operation, sizeof operation),
                         "cublasLtMatmulDescSetAttribute");
  };
  transpose(CUBLASLT_MATMUL_DESC_TRANSA, product.a);
  transpose(CUBLASLT_MATMUL_DESC_TRANSB, product.b);
  const auto lay_out = [&](cublasLtMatrixLayout_t& layout, const Product::Matrix& matrix) {
    if (status.ok())
      status = library_status(library_->cublasLtMatrixLayoutCreate(
                                  &layout, data_type(matrix.dtype), static_cast<std::uint64_t>(matrix.rows),
                                  static_cast<std::uint64_t>(matrix.columns), matrix.leading),
                              "cublasLtMatrixLayoutCreate");
    const auto set = [&](cublasLtMatrixLayoutAttribute_t attribute, auto value) {
      if (status.ok())
        status = library_status(library_->cublasLtMatrixLayoutSetAttribute(layout, attribute, &value, sizeof value),
                                "cublasLtMatrixLayoutSetAttribute");
    };
    if (product.batch == 1) return;
    set(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, static_cast<std::int32_t>(product.batch));
    set(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, matrix.batch_stride);
  };
  lay_out(to.a, product.a);
  lay_out(to.b, product.b);
  lay_out(to.out, product.out);
  return status;
}

absl::Status CudaProducts::choose(const Alignments& alignments, Prepared& to) const {
  cublasLtMatmulPreference_t preference = nullptr;
  absl::Status status =
      library_status(library_->cublasLtMatmulPreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate");
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
    if (status.ok())
      status =
          library_status(library_->cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value),
                         "cublasLtMatmulPreferenceSetAttribute");
  };
  set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<std::uint64_t>(kWorkSpace));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignments[0]);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignments[1]);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignments[2]);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignments[2]);
  if (!status.ok()) return status;
  int found = 0;
  const cublasStatus_t asked = library_->cublasLtMatmulAlgoGetHeuristic(handle_, to.product, to.a, to.b, to.out, to.out,
                                                                        preference, 1, &to.chosen, &found);
  to.is_possible = asked == CUBLAS_STATUS_SUCCESS && found > 0 && to.chosen.state == CUBLAS_STATUS_SUCCESS;
  return library_status(library_->cublasLtMatmulPreferenceDestroy(preference), "cublasLtMatmulPreferenceDestroy");
}

absl::StatusOr<const CudaProducts::Prepared*> CudaProducts::prepared(const Product& product,
                                                                     const Alignments& alignments) {
  const auto [it, is_new] = prepared_.try_emplace({product, alignments});
  if (!is_new) return &it->second;
  absl::Status status = describe(product, it->second);
  if (status.ok()) status = choose(alignments, it->second);
  if (!status.ok()) {
    prepared_.erase(it);
    return status;
  }
  return &it->second;
}

/// Asked for once, so that who does a product does not change from run to run with what memory is free.
bool CudaProducts::has_work_space() {
  if (work_space_ || was_refused_) return !was_refused_;
  absl::StatusOr<std::shared_ptr<Memory>> memory = Memory::allocate(memory_, kWorkSpace, Loc{});
  if (memory.ok()) {
    work_space_ = *std::move(memory);
    return true;
  }
  was_refused_ = true;
  ir::log(ir::LogTopic::runtime,
          "{}: no work space for cuBLASLt, whose products Sheaf's own kernels do from now on: {}", device_,
          std::string(memory.status().message()));
  return false;
}

absl::StatusOr<bool> CudaProducts::run(const Product& product, const std::byte* a, const std::byte* b, std::byte* out,
                                       CUstream stream) {
  std::lock_guard lock(mutex_);
  if (!start()) return false;
  a = element(a, product.a);
  b = element(b, product.b);
  out += product.out.offset * size_bytes(product.out.dtype);
  const absl::StatusOr<const Prepared*> how = prepared(product, {alignment(a), alignment(b), alignment(out)});
  if (!how.ok()) return how.status();
  const Prepared& p = **how;
  if (!p.is_possible) return false;
  if (p.chosen.workspaceSize > 0 && !has_work_space()) return false;
  union {
    float of_f32;
    double of_f64;
  } one, zero;
  if (product.a.dtype == DType::f64) one.of_f64 = 1, zero.of_f64 = 0;
  else one.of_f32 = 1, zero.of_f32 = 0;
  const absl::Status status = library_status(
      library_->cublasLtMatmul(handle_, p.product, &one, a, p.a, b, p.b, &zero, out, p.out, out, p.out, &p.chosen.algo,
                               work_space_ ? work_space_->data() : nullptr, p.chosen.workspaceSize, stream),
      "cublasLtMatmul");
  if (!status.ok()) return status;
  counters().library_calls.fetch_add(1, std::memory_order_relaxed);
  return true;
}

}  // namespace sheaf::runtime
