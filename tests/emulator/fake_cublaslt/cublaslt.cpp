// A cuBLASLt on the fake driver's streams: products as plain loops on the host, in the order of k, at their place in
// the stream. What the real one refuses or would compute wrongly is a misuse: matrices that do not fit, pointers less
// aligned than the heuristic was told, work space that two products use at once (the driver sees that).
// SHEAF_FAKE_CUBLASLT_VERSION is its major version; SHEAF_FAKE_CUBLASLT_REFUSES=1 has it find no kernel.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ir/scalar.h"
#include "runtime/driver/linear_algebra_abi.h"
#include "tests/emulator/fake_cuda/hooks.h"

#define SHEAF_EXPORT extern "C" __attribute__((visibility("default")))

using namespace sheaf::linear_algebra;
namespace fake_cuda = sheaf::fake_cuda;
using fake_cuda::Bytes;
using sheaf::DType;

namespace sheaf::linear_algebra {

struct cublasLtContext {
  int device = 0;
};
struct cublasLtMatmulDescOpaque_t {
  cublasComputeType_t computed;
  cudaDataType scale;
  cublasOperation_t operation_a = CUBLAS_OP_N, operation_b = CUBLAS_OP_N;
};
struct cublasLtMatrixLayoutOpaque_t {
  cudaDataType type;
  std::int64_t rows, columns, leading;
  std::int32_t batch = 1;
  std::int64_t batch_stride = 0;

  std::int64_t one() const { return leading * (columns - 1) + rows; }  // elements from its first to behind its last
  std::int64_t all() const { return batch_stride * (batch - 1) + one(); }
};
struct cublasLtMatmulPreferenceOpaque_t {
  std::uint64_t work_space = 0;
  std::uint32_t alignments[4] = {256, 256, 256, 256};
};

}  // namespace sheaf::linear_algebra

namespace {

using Layout = cublasLtMatrixLayoutOpaque_t;
constexpr std::uint64_t kWorkSpace = 4096;  // that every kernel of this library asks for, and writes
constexpr std::uint64_t kAlgorithm = 0x5eaf;

DType dtype_of(cudaDataType type) {
  switch (type) {
    case CUDA_R_32F: return DType::f32;
    case CUDA_R_64F: return DType::f64;
    case CUDA_R_16F: return DType::f16;
    case CUDA_R_16BF: return DType::bf16;
  }
  return DType::u8;
}

std::size_t bytes_of(const Layout& layout, std::int64_t elements) {
  return static_cast<std::size_t>(elements * size_bytes(dtype_of(layout.type)));
}

cublasStatus_t refuse(const std::string& text) {
  fake_cuda::report_misuse("cuBLASLt: " + text);
  return CUBLAS_STATUS_INVALID_VALUE;
}

struct Shape {
  std::int64_t rows, columns;
  bool operator==(const Shape&) const = default;
};
Shape shape_of(const Layout& layout, cublasOperation_t operation) {
  if (operation == CUBLAS_OP_N) return {layout.rows, layout.columns};
  return {layout.columns, layout.rows};
}

/// "" or what is wrong with d = op(a) op(b).
std::string fault_of(const cublasLtMatmulDescOpaque_t& product, const Layout& a, const Layout& b, const Layout& d) {
  const Shape left = shape_of(a, product.operation_a), right = shape_of(b, product.operation_b);
  if (left.columns != right.rows || !(Shape{left.rows, right.columns} == shape_of(d, CUBLAS_OP_N)))
    return fmt::format("[{}, {}] times [{}, {}] is not [{}, {}]", left.rows, left.columns, right.rows, right.columns,
                       d.rows, d.columns);
  if (a.batch != d.batch || b.batch != d.batch)
    return fmt::format("batches of {}, {} and {}", a.batch, b.batch, d.batch);
  for (const Layout* layout : {&a, &b, &d})
    if (layout->leading < layout->rows)
      return fmt::format("columns of {} that are {} apart", layout->rows, layout->leading);
  const bool are_interleaved = d.batch_stride >= d.rows && d.leading >= d.batch * d.batch_stride;
  if (d.batch > 1 && d.batch_stride < d.one() && !are_interleaved) return "results that overlap";
  const bool is_double = a.type == CUDA_R_64F;
  if (product.computed == CUBLAS_COMPUTE_32F_FAST_TF32 && a.type != CUDA_R_32F) return "TF32 of what is not f32";
  if (a.type != b.type || (d.type != a.type && (is_double || d.type != CUDA_R_32F)) ||
      (product.computed == CUBLAS_COMPUTE_64F) != is_double || product.scale != (is_double ? CUDA_R_64F : CUDA_R_32F))
    return "dtypes that do not go together";
  return "";
}

template <class T>
T element(const std::byte* bytes, DType dtype, std::int64_t index) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, bytes + index * size_bytes(dtype), static_cast<std::size_t>(size_bytes(dtype)));
  const DType wide = sizeof(T) == 8 ? DType::f64 : DType::f32;
  const std::uint64_t in[3] = {bits, 0, 0};
  if (dtype != wide) bits = sheaf::ir::eval_op(sheaf::ir::ScalarOp::convert, dtype, wide, in);
  T value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

/// As cvt.rna.tf32 does: to 11 significant bits, halves away from zero.
float to_tf32(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  return std::isfinite(x) ? std::bit_cast<float>((bits + 0x1000u) & ~0x1fffu) : x;
}

/// op(matrix), densely in column-major order.
template <class T>
std::vector<T> dense(const cublasLtMatmulDescOpaque_t& product, const std::byte* bytes, const Layout& layout,
                     cublasOperation_t operation) {
  const Shape shape = shape_of(layout, operation);
  std::vector<T> values;
  for (std::int64_t j = 0; j < shape.columns; ++j)
    for (std::int64_t i = 0; i < shape.rows; ++i) {
      values.push_back(element<T>(bytes, dtype_of(layout.type),
                                  operation == CUBLAS_OP_N ? j * layout.leading + i : i * layout.leading + j));
      if (product.computed == CUBLAS_COMPUTE_32F_FAST_TF32)
        values.back() = static_cast<T>(to_tf32(static_cast<float>(values.back())));
    }
  return values;
}

template <class T>
void multiply(const cublasLtMatmulDescOpaque_t& product, const Layout& a, const std::byte* a_bytes, const Layout& b,
              const std::byte* b_bytes, const Layout& d, std::byte* d_bytes) {
  const std::vector<T> left = dense<T>(product, a_bytes, a, product.operation_a),
                       right = dense<T>(product, b_bytes, b, product.operation_b);
  const std::int64_t rows = d.rows, terms = std::ssize(left) / rows;
  std::vector<T> column(static_cast<std::size_t>(rows));
  const DType dtype = dtype_of(d.type), wide = sizeof(T) == 8 ? DType::f64 : DType::f32;
  for (std::int64_t j = 0; j < d.columns; ++j) {
    std::fill(column.begin(), column.end(), T{0});
    for (std::int64_t k = 0; k < terms; ++k) {
      const T factor = right[static_cast<std::size_t>(j * terms + k)];
      for (std::int64_t i = 0; i < rows; ++i)
        column[static_cast<std::size_t>(i)] += left[static_cast<std::size_t>(k * rows + i)] * factor;
    }
    for (std::int64_t i = 0; i < rows; ++i) {
      std::uint64_t bits = 0;
      std::memcpy(&bits, &column[static_cast<std::size_t>(i)], sizeof(T));
      const std::uint64_t in[3] = {bits, 0, 0};
      if (dtype != wide) bits = sheaf::ir::eval_op(sheaf::ir::ScalarOp::convert, wide, dtype, in);
      std::memcpy(d_bytes + (j * d.leading + i) * size_bytes(dtype), &bits,
                  static_cast<std::size_t>(size_bytes(dtype)));
    }
  }
}

/// Each column where it belongs, and nothing between them.
std::uint32_t enqueue_columns(sheaf::cuda::CUstream stream, const std::string& what, const Layout& d, void* to,
                              const std::function<Bytes()>& make) {
  const bool is_dense = d.leading == d.rows || d.columns == 1;
  for (std::int64_t g = 0; g < d.batch; ++g)
    for (std::int64_t j = 0; j < (is_dense ? 1 : d.columns); ++j) {
      const std::int64_t first = g * d.batch_stride + j * d.leading;
      const std::size_t offset = bytes_of(d, first), bytes = bytes_of(d, is_dense ? d.one() : d.rows);
      const auto piece = [make, offset, bytes] {
        const Bytes all = make();
        const auto begin = all->begin() + static_cast<std::ptrdiff_t>(offset);
        return std::make_shared<std::vector<std::byte>>(begin, begin + static_cast<std::ptrdiff_t>(bytes));
      };
      if (const auto r = fake_cuda::enqueue_write(stream, what, static_cast<std::byte*>(to) + offset, bytes, piece))
        return r;
    }
  return 0;
}

bool is_aligned(const void* at, std::uint64_t bytes) { return reinterpret_cast<std::uintptr_t>(at) % bytes == 0; }

}  // namespace

SHEAF_EXPORT cublasStatus_t cublasLtGetProperty(libraryPropertyType property, int* value) {
  const char* version = std::getenv("SHEAF_FAKE_CUBLASLT_VERSION");
  *value = property != MAJOR_VERSION ? 0 : version ? std::atoi(version) : 13;
  return CUBLAS_STATUS_SUCCESS;
}

SHEAF_EXPORT cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  const int device = fake_cuda::current_ordinal();
  if (device < 0) return CUBLAS_STATUS_NOT_INITIALIZED;
  *handle = new cublasLtContext{device};
  return CUBLAS_STATUS_SUCCESS;
}

SHEAF_EXPORT cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* product, cublasComputeType_t computed,
                                                     cudaDataType scale) {
  *product = new cublasLtMatmulDescOpaque_t{.computed = computed, .scale = scale};
  return CUBLAS_STATUS_SUCCESS;
}
SHEAF_EXPORT cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t product) {
  delete product;
  return CUBLAS_STATUS_SUCCESS;
}
SHEAF_EXPORT cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t product,
                                                           cublasLtMatmulDescAttributes_t attribute, const void* value,
                                                           std::size_t bytes) {
  cublasOperation_t& operation = attribute == CUBLASLT_MATMUL_DESC_TRANSA ? product->operation_a : product->operation_b;
  if (bytes != sizeof operation) return refuse("an attribute of another size");
  std::memcpy(&operation, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

SHEAF_EXPORT cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type,
                                                       std::uint64_t rows, std::uint64_t columns,
                                                       std::int64_t leading) {
  *layout = new Layout{.type = type,
                       .rows = static_cast<std::int64_t>(rows),
                       .columns = static_cast<std::int64_t>(columns),
                       .leading = leading};
  return CUBLAS_STATUS_SUCCESS;
}
SHEAF_EXPORT cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  delete layout;
  return CUBLAS_STATUS_SUCCESS;
}
SHEAF_EXPORT cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                             cublasLtMatrixLayoutAttribute_t attribute,
                                                             const void* value, std::size_t bytes) {
  const bool is_count = attribute == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT;
  if (bytes != (is_count ? sizeof layout->batch : sizeof layout->batch_stride))
    return refuse("an attribute of another size");
  if (is_count) std::memcpy(&layout->batch, value, bytes);
  else std::memcpy(&layout->batch_stride, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

SHEAF_EXPORT cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  *preference = new cublasLtMatmulPreferenceOpaque_t;
  return CUBLAS_STATUS_SUCCESS;
}
SHEAF_EXPORT cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  delete preference;
  return CUBLAS_STATUS_SUCCESS;
}
SHEAF_EXPORT cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                                 cublasLtMatmulPreferenceAttributes_t attribute,
                                                                 const void* value, std::size_t bytes) {
  const bool is_work_space = attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES;
  if (bytes != (is_work_space ? sizeof(std::uint64_t) : sizeof(std::uint32_t)))
    return refuse("an attribute of another size");
  if (is_work_space) std::memcpy(&preference->work_space, value, bytes);
  else std::memcpy(&preference->alignments[attribute - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES], value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

// The kernel that is chosen knows what it was promised: data[1] the alignments, a byte each.
SHEAF_EXPORT cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t product,
                                                           cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                                           cublasLtMatrixLayout_t, cublasLtMatrixLayout_t d,
                                                           cublasLtMatmulPreference_t preference, int wanted,
                                                           cublasLtMatmulHeuristicResult_t* results, int* found) {
  *found = 0;
  if (const std::string fault = fault_of(*product, *a, *b, *d); !fault.empty()) return refuse(fault);
  const char* refuses = std::getenv("SHEAF_FAKE_CUBLASLT_REFUSES");
  if (wanted < 1 || (refuses && *refuses == '1')) return CUBLAS_STATUS_NOT_SUPPORTED;
  *found = 1;
  results[0] = {.algo = {},
                .workspaceSize = preference->work_space < kWorkSpace ? 0 : kWorkSpace,
                .state = CUBLAS_STATUS_SUCCESS,
                .wavesCount = 1,
                .reserved = {}};
  results[0].algo.data[0] = kAlgorithm;
  for (int i = 0; i < 4; ++i) results[0].algo.data[1 + i] = preference->alignments[i];
  return CUBLAS_STATUS_SUCCESS;
}

SHEAF_EXPORT cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t product, const void* alpha,
                                           const void* a, cublasLtMatrixLayout_t a_layout, const void* b,
                                           cublasLtMatrixLayout_t b_layout, const void* beta, const void* c,
                                           cublasLtMatrixLayout_t, void* d, cublasLtMatrixLayout_t d_layout,
                                           const cublasLtMatmulAlgo_t* algorithm, void* work_space,
                                           std::size_t work_space_bytes, sheaf::cuda::CUstream stream) {
  if (const std::string fault = fault_of(*product, *a_layout, *b_layout, *d_layout); !fault.empty())
    return refuse(fault);
  const bool is_double = product->scale == CUDA_R_64F;
  const auto scale = [&](const void* at) {
    return is_double ? *static_cast<const double*>(at) : static_cast<double>(*static_cast<const float*>(at));
  };
  if (scale(alpha) != 1 || scale(beta) != 0) return refuse("the fake computes a b only");
  if (!algorithm || algorithm->data[0] != kAlgorithm) return refuse("an algorithm that no heuristic chose");
  const void* addresses[] = {a, b, c, d};
  for (int i = 0; i < 4; ++i)
    if (!is_aligned(addresses[i], algorithm->data[1 + i]))
      return refuse(fmt::format("operand {} is not aligned to {} bytes", i, algorithm->data[1 + i]));
  if (fake_cuda::ordinal_of(stream) != handle->device)
    return refuse(
        fmt::format("a handle of device {} and a stream of device {}", handle->device, fake_cuda::ordinal_of(stream)));
  const std::string what = fmt::format("cublasLtMatmul of {} x {} x {}", d_layout->rows,
                                       shape_of(*a_layout, product->operation_a).columns, d_layout->columns);
  const auto given = [](const Layout& layout) {
    return std::make_shared<std::vector<std::byte>>(bytes_of(layout, layout.all()));
  };
  const Bytes left = given(*a_layout), right = given(*b_layout);
  if (fake_cuda::enqueue_read(stream, what, a, left) || fake_cuda::enqueue_read(stream, what, b, right))
    return CUBLAS_STATUS_EXECUTION_FAILED;
  const auto nothing = [work_space_bytes] { return std::make_shared<std::vector<std::byte>>(work_space_bytes); };
  if (work_space_bytes > 0 && fake_cuda::enqueue_write(stream, what, work_space, work_space_bytes, nothing))
    return CUBLAS_STATUS_EXECUTION_FAILED;
  // Computed when the first column is written.
  const auto make = [=, p = *product, al = *a_layout, bl = *b_layout, dl = *d_layout,
                     result = std::make_shared<Bytes>()]() -> Bytes {
    if (*result) return *result;
    *result = std::make_shared<std::vector<std::byte>>(bytes_of(dl, dl.all()));
    for (std::int64_t g = 0; g < dl.batch; ++g) {
      const auto at = [&](const Layout& layout) { return bytes_of(layout, g * layout.batch_stride); };
      const auto compute = is_double ? multiply<double> : multiply<float>;
      compute(p, al, left->data() + at(al), bl, right->data() + at(bl), dl, (*result)->data() + at(dl));
    }
    return *result;
  };
  return enqueue_columns(stream, what, *d_layout, d, make) ? CUBLAS_STATUS_EXECUTION_FAILED : CUBLAS_STATUS_SUCCESS;
}
