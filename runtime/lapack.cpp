// Row-major data and column-major routines: a row-major matrix is its transpose in column-major order. Where the
// routine has an equivalent for the transpose that is called (cholesky, triangular_solve); elsewhere a matrix is
// transposed in scratch.
#include "runtime/lapack.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "ir/check.h"
#include "ir/orientation.h"
#include "runtime/lapack_symbols.h"
#include "runtime/scratch.h"
#include "runtime/thread_pool.h"

namespace sheaf::runtime {
namespace {

using ir::lowering::Library;

/// One matrix of the batch: where its operands and results lie.
template <class T>
struct Job {
  const Library& what;
  const T* operands[2] = {};
  std::byte* results[3] = {};
  std::byte* scratch = nullptr;

  T* result(int k) const { return reinterpret_cast<T*>(results[k]); }
  std::int32_t* integers(int k) const { return reinterpret_cast<std::int32_t*>(results[k]); }
  fortran_int rows() const { return static_cast<fortran_int>(what.rows); }
  fortran_int columns() const { return static_cast<fortran_int>(what.columns); }
};

template <class T>
void fill_nan(T* to, std::int64_t count) {
  std::fill_n(to, count, std::numeric_limits<T>::quiet_NaN());
}

/// to[columns, rows] = from[rows, columns]^T.
template <class T>
void transpose(const T* from, T* to, std::int64_t rows, std::int64_t columns) {
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < columns; ++j) to[j * rows + i] = from[i * columns + j];
}

/// The row-major lower triangle is the column-major upper one, and U^T U = L L^T. The routine finds negative pivots,
/// and goes on with those that are not finite; they end up on the diagonal.
template <class T>
void cholesky(const Job<T>& job) {
  const fortran_int n = job.rows();
  T* factor = job.result(0);
  std::copy_n(job.operands[0], std::int64_t{n} * n, factor);
  fortran_int failed = 0;
  Lapack<T>::potrf("U", &n, factor, &n, &failed, 1);
  bool is_factored = failed == 0;
  for (std::int64_t i = 0; i < n; ++i) is_factored &= std::isfinite(factor[i * n + i]);
  if (!is_factored) return fill_nan(factor, std::int64_t{n} * n);
  for (std::int64_t i = 0; i < n; ++i) std::fill(factor + i * n + i + 1, factor + (i + 1) * n, T{0});
}

/// x^T op(a)^T = b^T, with everything transposed already.
template <class T>
void triangular_solve(const Job<T>& job) {
  const fortran_int n = job.rows(), m = job.columns();
  if (m == 0) return;
  T* x = job.result(0);
  std::copy_n(job.operands[1], std::int64_t{n} * m, x);
  const T one = 1;
  Lapack<T>::trsm("R", job.what.lower ? "U" : "L", job.what.transposed ? "T" : "N", job.what.unit_diagonal ? "U" : "N",
                  &m, &n, &one, job.operands[0], &n, x, &m, 1, 1, 1, 1);
}

template <class T>
void lu(const Job<T>& job) {
  const fortran_int m = job.rows(), n = job.columns();
  T* factors = reinterpret_cast<T*>(job.scratch);
  std::int32_t *pivots = job.integers(1), *permutation = job.integers(2);
  std::iota(permutation, permutation + m, 0);
  if (n == 0) return;
  transpose(job.operands[0], factors, m, n);
  fortran_int zero_pivot = 0;  // no failure: the factors are there
  Lapack<T>::getrf(&m, &n, factors, &m, pivots, &zero_pivot);
  transpose(factors, job.result(0), n, m);
  for (std::int64_t k = 0; k < std::min(m, n); ++k) std::swap(permutation[k], permutation[--pivots[k]]);
}

/// Lengths of work space that the blocked algorithms are content with.
constexpr std::int64_t kBlock = 64;
std::int64_t qr_work(std::int64_t m, std::int64_t n) { return kBlock * std::max(m, n); }
std::int64_t svd_work(std::int64_t m, std::int64_t n) {
  const std::int64_t k = std::min(m, n);
  return 4 * k * k + 7 * k + kBlock * std::max(m, n);
}
std::int64_t eigh_work(std::int64_t n) { return 1 + 6 * n + 2 * n * n; }
std::int64_t eigh_integers(std::int64_t n) { return 3 + 5 * n; }

template <class T>
void qr(const Job<T>& job) {
  const fortran_int m = job.rows(), n = job.columns(), k = std::min(m, n);
  if (n == 0) return;
  T *q = job.result(0), *r = job.result(1);
  T *factors = reinterpret_cast<T*>(job.scratch), *taus = factors + std::int64_t{m} * n, *work = taus + k;
  const auto work_size = static_cast<fortran_int>(qr_work(m, n));
  fortran_int info = 0;
  transpose(job.operands[0], factors, m, n);
  Lapack<T>::geqrf(&m, &n, factors, &m, taus, work, &work_size, &info);
  for (std::int64_t i = 0; i < k; ++i)
    for (std::int64_t j = 0; j < n; ++j) r[i * n + j] = j < i ? T{0} : factors[j * m + i];
  Lapack<T>::orgqr(&m, &k, &k, factors, &m, taus, work, &work_size, &info);
  transpose(factors, q, k, m);
}

template <class T>
bool is_finite(const T* x, std::int64_t count) {
  return std::all_of(x, x + count, [](T v) { return std::isfinite(v); });
}

/// A = U S V^T is, column-major, A^T = V S U^T, and the routine's results lie as ours shall.
template <class T>
void svd(const Job<T>& job) {
  const fortran_int m = job.rows(), n = job.columns(), k = std::min(m, n);
  if (n == 0) return;
  const std::int64_t count = std::int64_t{m} * n;
  T *u = job.result(0), *s = job.result(1), *vt = job.result(2);
  T *a = reinterpret_cast<T*>(job.scratch), *work = a + count;
  const auto work_size = static_cast<fortran_int>(svd_work(m, n));
  fortran_int failed = 1;
  if (is_finite(job.operands[0], count)) {
    std::copy_n(job.operands[0], count, a);
    Lapack<T>::gesdd("S", &n, &m, a, &n, s, vt, &n, u, &k, work, &work_size,
                     reinterpret_cast<fortran_int*>(work + work_size), &failed, 1);
  }
  if (failed != 0) {
    fill_nan(u, std::int64_t{m} * k);
    fill_nan(s, k);
    return fill_nan(vt, std::int64_t{k} * n);
  }
  for (std::int64_t j = 0; j < k; ++j) {
    if (!ir::is_turned(m, [&](std::int64_t i) { return u[i * k + j]; })) continue;
    for (std::int64_t i = 0; i < m; ++i) u[i * k + j] = -u[i * k + j];
    for (std::int64_t i = 0; i < n; ++i) vt[j * n + i] = -vt[j * n + i];
  }
}

template <class T>
void eigh(const Job<T>& job) {
  const fortran_int n = job.rows();
  T *w = job.result(0), *v = job.result(1);
  T *vectors = reinterpret_cast<T*>(job.scratch), *work = vectors + std::int64_t{n} * n;
  const auto work_size = static_cast<fortran_int>(eigh_work(n)), integers = static_cast<fortran_int>(eigh_integers(n));
  fortran_int failed = 1;
  bool reads_finite = true;
  for (std::int64_t i = 0; i < n; ++i) reads_finite = reads_finite && is_finite(job.operands[0] + i * n, i + 1);
  if (reads_finite) {
    std::copy_n(job.operands[0], std::int64_t{n} * n, vectors);
    Lapack<T>::syevd("V", "U", &n, vectors, &n, w, work, &work_size, reinterpret_cast<fortran_int*>(work + work_size),
                     &integers, &failed, 1, 1);
  }
  if (failed != 0) {
    fill_nan(w, n);
    return fill_nan(v, std::int64_t{n} * n);
  }
  for (std::int64_t j = 0; j < n; ++j) {
    T* vector = vectors + j * n;
    if (!ir::is_turned(n, [&](std::int64_t i) { return vector[i]; })) continue;
    for (std::int64_t i = 0; i < n; ++i) vector[i] = -vector[i];
  }
  transpose(vectors, v, n, n);
}

/// What one routine needs per matrix, in elements of the dtype; integers in scratch count as such.
struct Sizes {
  std::int64_t scratch = 0;
  std::int64_t operands[2] = {}, results[3] = {};
};

Sizes sizes_of(const Library& what) {
  const std::int64_t m = what.rows, n = what.columns, k = std::min(m, n);
  switch (what.routine) {
    case Library::Routine::cholesky: return {.operands = {n * n}, .results = {n * n}};
    case Library::Routine::triangular_solve: return {.operands = {m * m, m * n}, .results = {m * n}};
    case Library::Routine::lu: return {.scratch = m * n, .operands = {m * n}, .results = {m * n, k, m}};
    case Library::Routine::qr:
      return {.scratch = m * n + k + qr_work(m, n), .operands = {m * n}, .results = {m * k, k * n}};
    case Library::Routine::svd:
      return {.scratch = m * n + svd_work(m, n) + 8 * k, .operands = {m * n}, .results = {m * k, k, k * n}};
    case Library::Routine::eigh:
      return {.scratch = n * n + eigh_work(n) + eigh_integers(n), .operands = {n * n}, .results = {n, n * n}};
  }
  return {};
}

template <class T>
void run_one(const Job<T>& job) {
  switch (job.what.routine) {
    case Library::Routine::cholesky: return cholesky(job);
    case Library::Routine::triangular_solve: return triangular_solve(job);
    case Library::Routine::lu: return lu(job);
    case Library::Routine::qr: return qr(job);
    case Library::Routine::svd: return svd(job);
    case Library::Routine::eigh: return eigh(job);
  }
}

template <class T>
void run_batch(const codegen::LibraryCall& call, std::span<const std::byte* const> operands,
               std::span<std::byte* const> results) {
  const Library& what = std::get<Library>(call.what);
  SHEAF_CHECK(std::max(what.rows, what.columns) <= std::numeric_limits<fortran_int>::max(),
              "a matrix too large for LAPACK");
  const Sizes sizes = sizes_of(what);
  ThreadPool& pool = ThreadPool::global();
  pool.parallel_for(what.batch, pool.grain(what.batch, call.matrix_ps), [&](std::int64_t begin, std::int64_t end) {
    Job<T> job{.what = what};
    const std::int64_t scratch_bytes = sizes.scratch * static_cast<std::int64_t>(sizeof(T));
    if (scratch_bytes > 0) job.scratch = thread_scratch(scratch_bytes);
    for (std::int64_t i = begin; i < end; ++i) {
      for (std::size_t k = 0; k < operands.size(); ++k)
        job.operands[k] = reinterpret_cast<const T*>(operands[k]) + i * sizes.operands[k];
      for (std::size_t k = 0; k < results.size(); ++k) {
        const bool is_integer = what.routine == Library::Routine::lu && k > 0;
        const std::int64_t element = is_integer ? sizeof(std::int32_t) : sizeof(T);
        job.results[k] = results[k] + i * sizes.results[k] * element;
      }
      run_one(job);
    }
  });
}

}  // namespace

void run_lapack(const codegen::LibraryCall& call, std::span<const std::byte* const> operands,
                std::span<std::byte* const> results) {
  const Library& what = std::get<Library>(call.what);
  if (what.batch == 0 || what.rows == 0) return;  // nothing to write
  if (call.dtype == DType::f32) return run_batch<float>(call, operands, results);
  SHEAF_CHECK(call.dtype == DType::f64, "LAPACK takes f32 and f64");
  run_batch<double>(call, operands, results);
}

}  // namespace sheaf::runtime
