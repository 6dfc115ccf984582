// A cuSOLVER, and the triangular systems of a cuBLAS, on the fake driver's streams: LAPACK on the host at the routine's
// place in the stream. Operands are read and results written there, so the driver sees who else touches them; so it
// does the work space, which every routine writes.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/driver/linear_algebra_abi.h"
#include "runtime/lapack_symbols.h"
#include "tests/emulator/fake_cuda/hooks.h"

#define SHEAF_EXPORT extern "C" __attribute__((visibility("default")))

using namespace sheaf::linear_algebra;
namespace fake_cuda = sheaf::fake_cuda;
using fake_cuda::Bytes;
using sheaf::runtime::Lapack;

namespace sheaf::linear_algebra {

struct cusolverDnContext {
  CUstream stream = nullptr;
};
struct cublasContext {
  CUstream stream = nullptr;
};

}  // namespace sheaf::linear_algebra

namespace {

constexpr int kWork = 64;  // elements that every routine asks for
constexpr cusolverStatus_t kFailed{6};

/// A buffer of a routine on its stream.
struct Part {
  void* at = nullptr;
  std::size_t bytes = 0;
  bool is_read = false, is_written = false;
  Bytes copy = {};
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(copy->data());
  }
};
template <class T>
Part reads(const T* at, std::int64_t count) {
  return {const_cast<T*>(at), static_cast<std::size_t>(count) * sizeof(T), true, false};
}
template <class T>
Part writes(T* at, std::int64_t count) {
  return {at, static_cast<std::size_t>(count) * sizeof(T), false, true};
}
template <class T>
Part updates(T* at, std::int64_t count) {
  return {at, static_cast<std::size_t>(count) * sizeof(T), true, true};
}

/// Reads, computes when the first result is written, writes.
bool enqueue(CUstream stream, const char* what, std::vector<Part> parts,
             const std::function<void(const std::vector<Part>&)>& compute) {
  for (Part& part : parts) {
    part.copy = std::make_shared<std::vector<std::byte>>(part.bytes);
    if (part.is_read && fake_cuda::enqueue_read(stream, what, part.at, part.copy)) return false;
  }
  const auto is_done = std::make_shared<bool>(false);
  for (const Part& part : parts) {
    const auto make = [=] {
      if (!std::exchange(*is_done, true)) compute(parts);
      return part.copy;
    };
    if (part.is_written && fake_cuda::enqueue_write(stream, what, part.at, part.bytes, make)) return false;
  }
  return true;
}

cusolverStatus_t run(cusolverDnHandle_t handle, const char* what, std::vector<Part> parts,
                     const std::function<void(const std::vector<Part>&)>& compute) {
  return enqueue(handle->stream, what, std::move(parts), compute) ? CUSOLVER_STATUS_SUCCESS : kFailed;
}

cusolverStatus_t wants(int* work_size) {
  *work_size = kWork;
  return CUSOLVER_STATUS_SUCCESS;
}

const char* letter(cublasFillMode_t triangle) { return triangle == CUBLAS_FILL_MODE_UPPER ? "U" : "L"; }

template <class T>
cusolverStatus_t potrf(cusolverDnHandle_t handle, cublasFillMode_t triangle, int n, T* a, int lda, T* work, int size,
                       int* info) {
  return run(handle, "potrf", {updates(a, std::int64_t{lda} * n), writes(work, size), writes(info, 1)},
             [=](const std::vector<Part>& p) {
               Lapack<T>::potrf(letter(triangle), &n, p[0].as<T>(), &lda, p[2].as<int>(), 1);
             });
}

template <class T>
cusolverStatus_t getrf(cusolverDnHandle_t handle, int m, int n, T* a, int lda, T* work, int* pivots, int* info) {
  return run(handle, "getrf",
             {updates(a, std::int64_t{lda} * n), writes(work, kWork), writes(pivots, std::min(m, n)), writes(info, 1)},
             [=](const std::vector<Part>& p) {
               Lapack<T>::getrf(&m, &n, p[0].as<T>(), &lda, p[2].as<int>(), p[3].as<int>());
             });
}

/// Work space of LAPACK's own.
template <class T>
struct Work {
  explicit Work(std::int64_t count) : elements(static_cast<std::size_t>(count)), size(static_cast<int>(count)) {}
  std::vector<T> elements;
  int size;
};

template <class T>
cusolverStatus_t geqrf(cusolverDnHandle_t handle, int m, int n, T* a, int lda, T* taus, T* work, int size, int* info) {
  return run(handle, "geqrf",
             {updates(a, std::int64_t{lda} * n), writes(taus, std::min(m, n)), writes(work, size), writes(info, 1)},
             [=](const std::vector<Part>& p) {
               Work<T> w(64 * std::max(m, n));
               Lapack<T>::geqrf(&m, &n, p[0].as<T>(), &lda, p[1].as<T>(), w.elements.data(), &w.size, p[3].as<int>());
             });
}

template <class T>
cusolverStatus_t orgqr(cusolverDnHandle_t handle, int m, int n, int k, T* a, int lda, const T* taus, T* work, int size,
                       int* info) {
  return run(handle, "orgqr", {updates(a, std::int64_t{lda} * n), reads(taus, k), writes(work, size), writes(info, 1)},
             [=](const std::vector<Part>& p) {
               Work<T> w(64 * std::max(m, n));
               Lapack<T>::orgqr(&m, &n, &k, p[0].as<T>(), &lda, p[1].as<T>(), w.elements.data(), &w.size,
                                p[3].as<int>());
             });
}

template <class T>
cusolverStatus_t syevd(cusolverDnHandle_t handle, cublasFillMode_t triangle, int n, T* a, int lda, T* w, T* work,
                       int size, int* info) {
  return run(handle, "syevd", {updates(a, std::int64_t{lda} * n), writes(w, n), writes(work, size), writes(info, 1)},
             [=](const std::vector<Part>& p) {
               Work<T> own(1 + 6 * n + 2 * std::int64_t{n} * n);
               Work<int> integers(3 + 5 * n);
               Lapack<T>::syevd("V", letter(triangle), &n, p[0].as<T>(), &lda, p[1].as<T>(), own.elements.data(),
                                &own.size, integers.elements.data(), &integers.size, p[3].as<int>(), 1, 1);
             });
}

template <class T>
cusolverStatus_t gesvd(cusolverDnHandle_t handle, signed char jobu, signed char jobvt, int m, int n, T* a, int lda,
                       T* s, T* u, int ldu, T* vt, int ldvt, T* work, int size, int* info) {
  if (m < n || jobu != 'S' || jobvt != 'S') {
    fake_cuda::report_misuse(
        fmt::format("cuSOLVER: gesvd of {} x {}, {}{}", m, n, static_cast<char>(jobu), static_cast<char>(jobvt)));
    return kFailed;
  }
  return run(handle, "gesvd",
             {updates(a, std::int64_t{lda} * n), writes(s, n), writes(u, std::int64_t{ldu} * n),
              writes(vt, std::int64_t{ldvt} * n), writes(work, size), writes(info, 1)},
             [=](const std::vector<Part>& p) {
               Work<T> own(4 * std::int64_t{n} * n + 7 * n + 64 * m);
               Work<int> integers(8 * n);
               Lapack<T>::gesdd("S", &m, &n, p[0].as<T>(), &lda, p[1].as<T>(), p[2].as<T>(), &ldu, p[3].as<T>(), &ldvt,
                                own.elements.data(), &own.size, integers.elements.data(), p[5].as<int>(), 1);
             });
}

template <class T>
cublasStatus_t trsm(cublasHandle_t handle, cublasSideMode_t side, cublasFillMode_t triangle,
                    cublasOperation_t operation, cublasDiagType_t diagonal, int m, int n, const T* alpha, const T* a,
                    int lda, T* b, int ldb) {
  const int order = side == CUBLAS_SIDE_LEFT ? m : n;
  const bool is_done =
      enqueue(handle->stream, "trsm", {reads(a, std::int64_t{lda} * order), updates(b, std::int64_t{ldb} * n)},
              [=, factor = *alpha](const std::vector<Part>& p) {
                Lapack<T>::trsm(side == CUBLAS_SIDE_LEFT ? "L" : "R", letter(triangle),
                                operation == CUBLAS_OP_T ? "T" : "N", diagonal == CUBLAS_DIAG_UNIT ? "U" : "N", &m, &n,
                                &factor, p[0].as<T>(), &lda, p[1].as<T>(), &ldb, 1, 1, 1, 1);
              });
  return is_done ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

int version_of(libraryPropertyType property, const char* variable, int otherwise) {
  const char* version = std::getenv(variable);
  return property != MAJOR_VERSION ? 0 : version ? std::atoi(version) : otherwise;
}

}  // namespace

SHEAF_EXPORT cusolverStatus_t cusolverGetProperty(libraryPropertyType property, int* value) {
  *value = version_of(property, "SHEAF_FAKE_CUSOLVER_VERSION", 12);
  return CUSOLVER_STATUS_SUCCESS;
}
SHEAF_EXPORT cusolverStatus_t cusolverDnCreate(cusolverDnHandle_t* handle) {
  if (fake_cuda::current_ordinal() < 0) return cusolverStatus_t{1};
  *handle = new cusolverDnContext;
  return CUSOLVER_STATUS_SUCCESS;
}
SHEAF_EXPORT cusolverStatus_t cusolverDnSetStream(cusolverDnHandle_t handle, CUstream stream) {
  handle->stream = stream;
  return CUSOLVER_STATUS_SUCCESS;
}

SHEAF_EXPORT cublasStatus_t cublasGetProperty(libraryPropertyType property, int* value) {
  *value = version_of(property, "SHEAF_FAKE_CUBLAS_VERSION", 13);
  return CUBLAS_STATUS_SUCCESS;
}
SHEAF_EXPORT cublasStatus_t cublasCreate_v2(cublasHandle_t* handle) {
  if (fake_cuda::current_ordinal() < 0) return CUBLAS_STATUS_NOT_INITIALIZED;
  *handle = new cublasContext;
  return CUBLAS_STATUS_SUCCESS;
}
SHEAF_EXPORT cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, CUstream stream) {
  handle->stream = stream;
  return CUBLAS_STATUS_SUCCESS;
}

#define SHEAF_ROUTINES(S, T)                                                                                          \
  SHEAF_EXPORT cusolverStatus_t cusolverDn##S##potrf_bufferSize(cusolverDnHandle_t, cublasFillMode_t, int, T*, int,   \
                                                                int* size) {                                          \
    return wants(size);                                                                                               \
  }                                                                                                                   \
  SHEAF_EXPORT cusolverStatus_t cusolverDn##S##potrf(cusolverDnHandle_t handle, cublasFillMode_t triangle, int n,     \
                                                     T* a, int lda, T* work, int size, int* info) {                   \
    return potrf(handle, triangle, n, a, lda, work, size, info);                                                      \
  }                                                                                                                   \
  SHEAF_EXPORT cusolverStatus_t cusolverDn##S##getrf_bufferSize(cusolverDnHandle_t, int, int, T*, int, int* size) {   \
    return wants(size);                                                                                               \
  }                                                                                                                   \
  SHEAF_EXPORT cusolverStatus_t cusolverDn##S##getrf(cusolverDnHandle_t handle, int m, int n, T* a, int lda, T* work, \
                                                     int* pivots, int* info) {                                        \
    return getrf(handle, m, n, a, lda, work, pivots, info);                                                           \
  }                                                                                                                   \
  SHEAF_EXPORT cusolverStatus_t cusolverDn##S##geqrf_bufferSize(cusolverDnHandle_t, int, int, T*, int, int* size) {   \
    return wants(size);                                                                                               \
  }                                                                                                                   \
  SHEAF_EXPORT cusolverStatus_t cusolverDn##S##geqrf(cusolverDnHandle_t handle, int m, int n, T* a, int lda, T* taus, \
                                                     T* work, int size, int* info) {                                  \
    return geqrf(handle, m, n, a, lda, taus, work, size, info);                                                       \
  }                                                                                                                   \
  SHEAF_EXPORT cusolverStatus_t cusolverDn##S##orgqr_bufferSize(cusolverDnHandle_t, int, int, int, const T*, int,     \
                                                                const T*, int* size) {                                \
    return wants(size);                                                                                               \
  }                                                                                                                   \
  SHEAF_EXPORT cusolverStatus_t cusolverDn##S##orgqr(cusolverDnHandle_t handle, int m, int n, int k, T* a, int lda,   \
                                                     const T* taus, T* work, int size, int* info) {                   \
    return orgqr(handle, m, n, k, a, lda, taus, work, size, info);                                                    \
  }                                                                                                                   \
  SHEAF_EXPORT cusolverStatus_t cusolverDn##S##syevd_bufferSize(                                                      \
      cusolverDnHandle_t, cusolverEigMode_t, cublasFillMode_t, int, const T*, int, const T*, int* size) {             \
    return wants(size);                                                                                               \
  }                                                                                                                   \
  SHEAF_EXPORT cusolverStatus_t cusolverDn##S##syevd(cusolverDnHandle_t handle, cusolverEigMode_t,                    \
                                                     cublasFillMode_t triangle, int n, T* a, int lda, T* w, T* work,  \
                                                     int size, int* info) {                                           \
    return syevd(handle, triangle, n, a, lda, w, work, size, info);                                                   \
  }                                                                                                                   \
  SHEAF_EXPORT cusolverStatus_t cusolverDn##S##gesvd_bufferSize(cusolverDnHandle_t, int, int, int* size) {            \
    return wants(size);                                                                                               \
  }                                                                                                                   \
  SHEAF_EXPORT cusolverStatus_t cusolverDn##S##gesvd(cusolverDnHandle_t handle, signed char jobu, signed char jobvt,  \
                                                     int m, int n, T* a, int lda, T* s, T* u, int ldu, T* vt,         \
                                                     int ldvt, T* work, int size, T*, int* info) {                    \
    return gesvd(handle, jobu, jobvt, m, n, a, lda, s, u, ldu, vt, ldvt, work, size, info);                           \
  }                                                                                                                   \
  SHEAF_EXPORT cublasStatus_t cublas##S##trsm_v2(                                                                     \
      cublasHandle_t handle, cublasSideMode_t side, cublasFillMode_t triangle, cublasOperation_t operation,           \
      cublasDiagType_t diagonal, int m, int n, const T* alpha, const T* a, int lda, T* b, int ldb) {                  \
    return trsm(handle, side, triangle, operation, diagonal, m, n, alpha, a, lda, b, ldb);                            \
  }
SHEAF_ROUTINES(S, float)
SHEAF_ROUTINES(D, double)
