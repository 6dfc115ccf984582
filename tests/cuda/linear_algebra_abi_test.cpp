// Our declarations of cuBLASLt, cuBLAS and cuSOLVER against the real ones, where those are installed, as static
// assertions. Elsewhere this file asserts nothing, and says so.
#include "runtime/driver/linear_algebra_abi.h"

#include <doctest/doctest.h>

#include <cstdio>

#include "tests/cuda/alike.h"

#if __has_include(<cublasLt.h>) && __has_include(<cusolverDn.h>) && __has_include(<cuda_runtime.h>)
#define DISABLE_CUSOLVER_DEPRECATED
#include <cublasLt.h>
#include <cublas_v2.h>
#include <cusolverDn.h>

namespace sheaf::tests {

// The library's own memory, which Sheaf never looks into; the headers show its size.
template <>
struct Alike<linear_algebra::cublasLtMatmulDescOpaque_t, ::cublasLtMatmulDescOpaque_t> : std::true_type {};
template <>
struct Alike<linear_algebra::cublasLtMatrixLayoutOpaque_t, ::cublasLtMatrixLayoutOpaque_t> : std::true_type {};
template <>
struct Alike<linear_algebra::cublasLtMatmulPreferenceOpaque_t, ::cublasLtMatmulPreferenceOpaque_t> : std::true_type {};

}  // namespace sheaf::tests

namespace sheaf::linear_algebra {
namespace {

using tests::Alike;

#define SHEAF_SAME_FUNCTION(name, parameters) \
  static_assert(Alike<cublasStatus_t parameters, decltype(::name)>::value, #name);
SHEAF_CUBLASLT_ENTRY_POINTS(SHEAF_SAME_FUNCTION)
SHEAF_CUBLAS_ENTRY_POINTS(SHEAF_SAME_FUNCTION)
SHEAF_CUSOLVER_ENTRY_POINTS(SHEAF_SAME_FUNCTION)
static_assert(Alike<cublasLtMatmulAlgo_t, ::cublasLtMatmulAlgo_t>::value);
static_assert(Alike<cublasLtMatmulHeuristicResult_t, ::cublasLtMatmulHeuristicResult_t>::value);
#define SHEAF_SAME_PLACE(member)                                     \
  static_assert(offsetof(cublasLtMatmulHeuristicResult_t, member) == \
                offsetof(::cublasLtMatmulHeuristicResult_t, member));
SHEAF_SAME_PLACE(algo)
SHEAF_SAME_PLACE(workspaceSize)
SHEAF_SAME_PLACE(state)

#define SHEAF_SAME(name) static_assert(static_cast<int>(name) == static_cast<int>(::name));
SHEAF_SAME(MAJOR_VERSION)
SHEAF_SAME(MINOR_VERSION)
SHEAF_SAME(PATCH_LEVEL)
SHEAF_SAME(CUDA_R_32F)
SHEAF_SAME(CUDA_R_64F)
SHEAF_SAME(CUDA_R_16F)
SHEAF_SAME(CUDA_R_16BF)
SHEAF_SAME(CUBLAS_STATUS_SUCCESS)
SHEAF_SAME(CUBLAS_STATUS_NOT_INITIALIZED)
SHEAF_SAME(CUBLAS_STATUS_ALLOC_FAILED)
SHEAF_SAME(CUBLAS_STATUS_INVALID_VALUE)
SHEAF_SAME(CUBLAS_STATUS_ARCH_MISMATCH)
SHEAF_SAME(CUBLAS_STATUS_MAPPING_ERROR)
SHEAF_SAME(CUBLAS_STATUS_EXECUTION_FAILED)
SHEAF_SAME(CUBLAS_STATUS_INTERNAL_ERROR)
SHEAF_SAME(CUBLAS_STATUS_NOT_SUPPORTED)
SHEAF_SAME(CUBLAS_OP_N)
SHEAF_SAME(CUBLAS_OP_T)
SHEAF_SAME(CUBLAS_FILL_MODE_LOWER)
SHEAF_SAME(CUBLAS_FILL_MODE_UPPER)
SHEAF_SAME(CUBLAS_DIAG_NON_UNIT)
SHEAF_SAME(CUBLAS_DIAG_UNIT)
SHEAF_SAME(CUBLAS_SIDE_LEFT)
SHEAF_SAME(CUBLAS_SIDE_RIGHT)
SHEAF_SAME(CUBLAS_COMPUTE_32F)
SHEAF_SAME(CUBLAS_COMPUTE_32F_FAST_TF32)
SHEAF_SAME(CUBLAS_COMPUTE_64F)
SHEAF_SAME(CUSOLVER_STATUS_SUCCESS)
SHEAF_SAME(CUSOLVER_EIG_MODE_NOVECTOR)
SHEAF_SAME(CUSOLVER_EIG_MODE_VECTOR)
SHEAF_SAME(CUBLASLT_MATMUL_DESC_TRANSA)
SHEAF_SAME(CUBLASLT_MATMUL_DESC_TRANSB)
SHEAF_SAME(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT)
SHEAF_SAME(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET)
SHEAF_SAME(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES)
SHEAF_SAME(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES)
SHEAF_SAME(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES)
SHEAF_SAME(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES)
SHEAF_SAME(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES)

}  // namespace
}  // namespace sheaf::linear_algebra

TEST_CASE("the declarations of linear algebra are those of the installed libraries") {
  std::printf("linear algebra: declarations compared with those of cuBLAS %d.%d.%d and cuSOLVER %d.%d.%d\n",
              CUBLAS_VER_MAJOR, CUBLAS_VER_MINOR, CUBLAS_VER_PATCH, CUSOLVER_VER_MAJOR, CUSOLVER_VER_MINOR,
              CUSOLVER_VER_PATCH);
}
#else
TEST_CASE("the declarations of linear algebra are those of the installed libraries") {
  std::printf("linear algebra: declarations not compared, no <cublasLt.h> and <cusolverDn.h>\n");
}
#endif
