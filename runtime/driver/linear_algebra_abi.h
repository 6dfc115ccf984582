// NVIDIA's libraries of linear algebra as Sheaf calls them: declared here so that building needs neither them nor a
// toolkit. Names and values are those of cublasLt.h, cublas_v2.h and cusolverDn.h;
// tests/cuda/linear_algebra_abi_test.cpp compares them where those are installed.
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/driver/cuda_abi.h"

namespace sheaf::linear_algebra {

using cuda::CUstream;

enum libraryPropertyType : int { MAJOR_VERSION = 0, MINOR_VERSION = 1, PATCH_LEVEL = 2 };
enum cudaDataType : int { CUDA_R_32F = 0, CUDA_R_64F = 1, CUDA_R_16F = 2, CUDA_R_16BF = 14 };

enum cublasStatus_t : int {
  CUBLAS_STATUS_SUCCESS = 0,
  CUBLAS_STATUS_NOT_INITIALIZED = 1,
  CUBLAS_STATUS_ALLOC_FAILED = 3,
  CUBLAS_STATUS_INVALID_VALUE = 7,
  CUBLAS_STATUS_ARCH_MISMATCH = 8,
  CUBLAS_STATUS_MAPPING_ERROR = 11,
  CUBLAS_STATUS_EXECUTION_FAILED = 13,
  CUBLAS_STATUS_INTERNAL_ERROR = 14,
  CUBLAS_STATUS_NOT_SUPPORTED = 15,
};
enum cublasOperation_t : int { CUBLAS_OP_N = 0, CUBLAS_OP_T = 1 };
enum cublasFillMode_t : int { CUBLAS_FILL_MODE_LOWER = 0, CUBLAS_FILL_MODE_UPPER = 1 };
enum cublasDiagType_t : int { CUBLAS_DIAG_NON_UNIT = 0, CUBLAS_DIAG_UNIT = 1 };
enum cublasSideMode_t : int { CUBLAS_SIDE_LEFT = 0, CUBLAS_SIDE_RIGHT = 1 };
/// Neither of these rounds operands to fewer bits.
enum cublasComputeType_t : int { CUBLAS_COMPUTE_32F = 68, CUBLAS_COMPUTE_32F_FAST_TF32 = 77, CUBLAS_COMPUTE_64F = 70 };

enum cusolverStatus_t : int { CUSOLVER_STATUS_SUCCESS = 0 };
enum cusolverEigMode_t : int { CUSOLVER_EIG_MODE_NOVECTOR = 0, CUSOLVER_EIG_MODE_VECTOR = 1 };

// Made and read by the library alone.
using cublasLtHandle_t = struct cublasLtContext*;
using cublasHandle_t = struct cublasContext*;
using cusolverDnHandle_t = struct cusolverDnContext*;
using cublasLtMatmulDesc_t = struct cublasLtMatmulDescOpaque_t*;
using cublasLtMatrixLayout_t = struct cublasLtMatrixLayoutOpaque_t*;
using cublasLtMatmulPreference_t = struct cublasLtMatmulPreferenceOpaque_t*;

struct cublasLtMatmulAlgo_t {
  std::uint64_t data[8];
};
struct cublasLtMatmulHeuristicResult_t {
  cublasLtMatmulAlgo_t algo;
  std::size_t workspaceSize;
  cublasStatus_t state;
  float wavesCount;
  int reserved[4];
};

enum cublasLtMatmulDescAttributes_t : int {
  CUBLASLT_MATMUL_DESC_TRANSA = 3,  // cublasOperation_t, as the next
  CUBLASLT_MATMUL_DESC_TRANSB = 4,
};
enum cublasLtMatrixLayoutAttribute_t : int {
  CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT = 5,           // std::int32_t
  CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET = 6,  // std::int64_t, in elements
};
enum cublasLtMatmulPreferenceAttributes_t : int {
  CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES = 1,    // std::uint64_t
  CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES = 5,  // std::uint32_t, as those that follow
  CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES = 6,
  CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES = 7,
  CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES = 8,
};

// X(name, parameters): those of cuBLASLt, which return cublasStatus_t. A layout is of a matrix in column-major order.
#define SHEAF_CUBLASLT_ENTRY_POINTS(X)                                                                                 \
  X(cublasLtGetProperty, (libraryPropertyType property, int* value))                                                   \
  X(cublasLtCreate, (cublasLtHandle_t * handle))                                                                       \
  X(cublasLtMatmulDescCreate, (cublasLtMatmulDesc_t * product, cublasComputeType_t computed, cudaDataType scale))      \
  X(cublasLtMatmulDescDestroy, (cublasLtMatmulDesc_t product))                                                         \
  X(cublasLtMatmulDescSetAttribute,                                                                                    \
    (cublasLtMatmulDesc_t product, cublasLtMatmulDescAttributes_t attribute, const void* value, std::size_t bytes))    \
  X(cublasLtMatrixLayoutCreate, (cublasLtMatrixLayout_t * layout, cudaDataType type, std::uint64_t rows,               \
                                 std::uint64_t columns, std::int64_t leading))                                         \
  X(cublasLtMatrixLayoutDestroy, (cublasLtMatrixLayout_t layout))                                                      \
  X(cublasLtMatrixLayoutSetAttribute,                                                                                  \
    (cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t attribute, const void* value, std::size_t bytes))  \
  X(cublasLtMatmulPreferenceCreate, (cublasLtMatmulPreference_t * preference))                                         \
  X(cublasLtMatmulPreferenceDestroy, (cublasLtMatmulPreference_t preference))                                          \
  X(cublasLtMatmulPreferenceSetAttribute,                                                                              \
    (cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t attribute, const void* value,         \
     std::size_t bytes))                                                                                               \
  X(cublasLtMatmulAlgoGetHeuristic,                                                                                    \
    (cublasLtHandle_t handle, cublasLtMatmulDesc_t product, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,        \
     cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d, cublasLtMatmulPreference_t preference, int wanted,            \
     cublasLtMatmulHeuristicResult_t* results, int* found))                                                            \
  X(cublasLtMatmul, (cublasLtHandle_t handle, cublasLtMatmulDesc_t product, const void* alpha, const void* a,          \
                     cublasLtMatrixLayout_t a_layout, const void* b, cublasLtMatrixLayout_t b_layout,                  \
                     const void* beta, const void* c, cublasLtMatrixLayout_t c_layout, void* d,                        \
                     cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t* algorithm, void* workspace,          \
                     std::size_t workspace_bytes, CUstream stream))

// The same for cuBLAS.
#define SHEAF_CUBLAS_ENTRY_POINTS(X)                                                                                   \
  X(cublasGetProperty, (libraryPropertyType property, int* value))                                                     \
  X(cublasCreate_v2, (cublasHandle_t * handle))                                                                        \
  X(cublasSetStream_v2, (cublasHandle_t handle, CUstream stream))                                                      \
  X(cublasStrsm_v2,                                                                                                    \
    (cublasHandle_t handle, cublasSideMode_t side, cublasFillMode_t triangle, cublasOperation_t operation,             \
     cublasDiagType_t diagonal, int m, int n, const float* alpha, const float* a, int lda, float* b, int ldb))         \
  X(cublasDtrsm_v2,                                                                                                    \
    (cublasHandle_t handle, cublasSideMode_t side, cublasFillMode_t triangle, cublasOperation_t operation,             \
     cublasDiagType_t diagonal, int m, int n, const double* alpha, const double* a, int lda, double* b, int ldb))

// The same for cuSOLVER, whose functions return cusolverStatus_t. X(letter, type) for both precisions.
#define SHEAF_CUSOLVER_ROUTINES(X, letter, type)                                                                       \
  X(cusolverDn##letter##potrf_bufferSize,                                                                              \
    (cusolverDnHandle_t handle, cublasFillMode_t triangle, int n, type* a, int lda, int* work_size))                   \
  X(cusolverDn##letter##potrf, (cusolverDnHandle_t handle, cublasFillMode_t triangle, int n, type* a, int lda,         \
                                type* work, int work_size, int* info))                                                 \
  X(cusolverDn##letter##getrf_bufferSize,                                                                              \
    (cusolverDnHandle_t handle, int m, int n, type* a, int lda, int* work_size))                                       \
  X(cusolverDn##letter##getrf,                                                                                         \
    (cusolverDnHandle_t handle, int m, int n, type* a, int lda, type* work, int* pivots, int* info))                   \
  X(cusolverDn##letter##geqrf_bufferSize,                                                                              \
    (cusolverDnHandle_t handle, int m, int n, type* a, int lda, int* work_size))                                       \
  X(cusolverDn##letter##geqrf, (cusolverDnHandle_t handle, int m, int n, type* a, int lda, type* taus, type* work,     \
                                int work_size, int* info))                                                             \
  X(cusolverDn##letter##orgqr_bufferSize, (cusolverDnHandle_t handle, int m, int n, int k, const type* a, int lda,     \
                                           const type* taus, int* work_size))                                          \
  X(cusolverDn##letter##orgqr, (cusolverDnHandle_t handle, int m, int n, int k, type* a, int lda, const type* taus,    \
                                type* work, int work_size, int* info))                                                 \
  X(cusolverDn##letter##syevd_bufferSize, (cusolverDnHandle_t handle, cusolverEigMode_t mode,                          \
                                           cublasFillMode_t triangle, int n, const type* a, int lda, const type* w,    \
                                           int* work_size))                                                            \
  X(cusolverDn##letter##syevd, (cusolverDnHandle_t handle, cusolverEigMode_t mode, cublasFillMode_t triangle, int n,   \
                                type* a, int lda, type* w, type* work, int work_size, int* info))                      \
  X(cusolverDn##letter##gesvd_bufferSize, (cusolverDnHandle_t handle, int m, int n, int* work_size))                   \
  X(cusolverDn##letter##gesvd,                                                                                         \
    (cusolverDnHandle_t handle, signed char jobu, signed char jobvt, int m, int n, type* a, int lda, type* s, type* u, \
     int ldu, type* vt, int ldvt, type* work, int work_size, type* rwork, int* info))
#define SHEAF_CUSOLVER_ENTRY_POINTS(X)                                 \
  X(cusolverGetProperty, (libraryPropertyType property, int* value))   \
  X(cusolverDnCreate, (cusolverDnHandle_t * handle))                   \
  X(cusolverDnSetStream, (cusolverDnHandle_t handle, CUstream stream)) \
  SHEAF_CUSOLVER_ROUTINES(X, S, float)                                 \
  SHEAF_CUSOLVER_ROUTINES(X, D, double)

/// One pointer per entry point, under its name.
struct CublasLtEntryPoints {
#define SHEAF_MEMBER(name, parameters) cublasStatus_t(*name) parameters = nullptr;
  SHEAF_CUBLASLT_ENTRY_POINTS(SHEAF_MEMBER)
};
struct CublasEntryPoints {
  SHEAF_CUBLAS_ENTRY_POINTS(SHEAF_MEMBER)
#undef SHEAF_MEMBER
};
struct CusolverEntryPoints {
#define SHEAF_MEMBER(name, parameters) cusolverStatus_t(*name) parameters = nullptr;
  SHEAF_CUSOLVER_ENTRY_POINTS(SHEAF_MEMBER)
#undef SHEAF_MEMBER
};

}  // namespace sheaf::linear_algebra
