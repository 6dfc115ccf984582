// As runtime/lapack.cpp: a row-major matrix is its transpose in the library's column-major order. The routine is called
// once per matrix, the kernels around it once per batch.
#include "runtime/cuda_solver.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "codegen/cuda/around_routines.h"
#include "ir/check.h"
#include "ir/log.h"
#include "runtime/counters.h"

namespace sheaf::runtime {

using namespace linear_algebra;
using codegen::AroundRoutine;
using codegen::Part;
using codegen::Turns;
using ir::lowering::Library;

namespace {

template <class T>
struct Routines;
#define SHEAF_ROUTINES(T, S)                                                                  \
  template <>                                                                                 \
  struct Routines<T> {                                                                        \
    static constexpr auto trsm = &CublasEntryPoints::cublas##S##trsm_v2;                      \
    static constexpr auto potrf_size = &CusolverEntryPoints::cusolverDn##S##potrf_bufferSize; \
    static constexpr auto potrf = &CusolverEntryPoints::cusolverDn##S##potrf;                 \
    static constexpr auto getrf_size = &CusolverEntryPoints::cusolverDn##S##getrf_bufferSize; \
    static constexpr auto getrf = &CusolverEntryPoints::cusolverDn##S##getrf;                 \
    static constexpr auto geqrf_size = &CusolverEntryPoints::cusolverDn##S##geqrf_bufferSize; \
    static constexpr auto geqrf = &CusolverEntryPoints::cusolverDn##S##geqrf;                 \
    static constexpr auto orgqr_size = &CusolverEntryPoints::cusolverDn##S##orgqr_bufferSize; \
    static constexpr auto orgqr = &CusolverEntryPoints::cusolverDn##S##orgqr;                 \
    static constexpr auto syevd_size = &CusolverEntryPoints::cusolverDn##S##syevd_bufferSize; \
    static constexpr auto syevd = &CusolverEntryPoints::cusolverDn##S##syevd;                 \
    static constexpr auto gesvd_size = &CusolverEntryPoints::cusolverDn##S##gesvd_bufferSize; \
    static constexpr auto gesvd = &CusolverEntryPoints::cusolverDn##S##gesvd;                 \
  };
SHEAF_ROUTINES(float, S)
SHEAF_ROUTINES(double, D)
#undef SHEAF_ROUTINES

/// Many small matrices are quicker on the host's threads than one after the other here.
bool is_for_host(const Library& what) {
  constexpr std::int64_t kMany = 64, kSmall = 64, kMostBlocks = 65535;
  return what.batch > kMostBlocks || (what.batch > kMany && std::max(what.rows, what.columns) < kSmall);
}

}  // namespace

/// Where a step fails, those after it do nothing.
template <class T>
class CudaSolver::Batch {
 public:
  Batch(CudaSolver& solver, const Library& what, std::span<const std::byte* const> operands,
        std::span<std::byte* const> results, std::span<const cuda::CUfunction> around, CUstream stream)
      : solver_(solver), what_(what), operands_(operands), results_(results), around_(around), stream_(stream) {}

  absl::Status run() {
    switch (what_.routine) {
      case Library::Routine::cholesky: cholesky(); break;
      case Library::Routine::triangular_solve: triangular_solve(); break;
      case Library::Routine::lu: lu(); break;
      case Library::Routine::qr: qr(); break;
      case Library::Routine::svd: svd(); break;
      case Library::Routine::eigh: eigh(); break;
    }
    return status_;
  }

 private:
  using R = Routines<T>;

  // Memory.

  /// A part of scratch of so many elements for each matrix of the batch, or of so many in all.
  template <class E>
  struct Piece {
    std::int64_t offset = 0;
  };
  template <class E>
  Piece<E> each(std::int64_t count) {
    return once<E>(count * what_.batch);
  }
  template <class E>
  Piece<E> once(std::int64_t count) {
    const Piece<E> piece{scratch_bytes_};
    scratch_bytes_ += (count * static_cast<std::int64_t>(sizeof(E)) + 255) / 256 * 256;
    return piece;
  }
  template <class E>
  E* at(Piece<E> piece) const {
    return reinterpret_cast<E*>(scratch_ + piece.offset);
  }
  void take_scratch() {
    if (!status_.ok()) return;
    const absl::StatusOr<std::byte*> memory = solver_.scratch(scratch_bytes_, stream_);
    status_ = memory.status();
    if (memory.ok()) scratch_ = *memory;
  }

  const T* operand(int k) const { return reinterpret_cast<const T*>(operands_[k]); }
  template <class E = T>
  E* result(int k) const {
    return reinterpret_cast<E*>(results_[k]);
  }
  int rows() const { return static_cast<int>(what_.rows); }
  int columns() const { return static_cast<int>(what_.columns); }
  int least() const { return std::min(rows(), columns()); }
  std::int64_t count() const { return what_.rows * what_.columns; }

  // Steps.

  template <class Status>
  void note(Status status, const char* call) {
    if (status_.ok()) status_ = library_status(status, call);
  }
  /// What a routine wants to work in, in elements.
  template <class... Parameters, class... Arguments>
  int size_of(cusolverStatus_t (*CusolverEntryPoints::*size)(Parameters...), Arguments... arguments) {
    int elements = 0;
    if (status_.ok())
      note((solver_.cusolver_->*size)(solver_.cusolver_handle_, arguments..., &elements), "the size of a work space");
    return elements;
  }
  /// `f(g)` for every matrix.
  template <class F>
  void for_each(const char* call, F&& f) {
    for (std::int64_t g = 0; g < what_.batch && status_.ok(); ++g) note(f(g), call);
  }

  void copy_bytes(T* to, const T* from, std::int64_t elements) {
    if (!status_.ok() || elements == 0 || to == from) return;
    status_ = solver_.cuda_.status(
        solver_.cuda_.cuMemcpyDtoDAsync(std::bit_cast<cuda::CUdeviceptr>(to), std::bit_cast<cuda::CUdeviceptr>(from),
                                        static_cast<std::size_t>(elements) * sizeof(T), stream_),
        "cuMemcpyDtoDAsync");
  }

  template <class... Arguments>
  void launch(AroundRoutine function, std::int64_t blocks, std::int64_t blocks_y, Arguments... arguments) {
    if (!status_.ok() || blocks == 0) return;
    void* parameters[] = {&arguments...};
    const cuda::CUlaunchConfig config{.gridDimX = static_cast<unsigned>(blocks),
                                      .gridDimY = static_cast<unsigned>(blocks_y),
                                      .gridDimZ = 1,
                                      .blockDimX = codegen::kAroundThreads,
                                      .blockDimY = 1,
                                      .blockDimZ = 1,
                                      .sharedMemBytes = 0,
                                      .hStream = stream_,
                                      .attrs = nullptr,
                                      .numAttrs = 0};
    status_ = solver_.cuda_.status(
        solver_.cuda_.cuLaunchKernelEx(&config, around_[static_cast<int>(function)], parameters, nullptr),
        "launch of a kernel around a routine");
  }
  static std::int64_t blocks_for(std::int64_t threads) {
    return (threads + codegen::kAroundThreads - 1) / codegen::kAroundThreads;
  }

  /// Row-major matrices of n columns.
  void check(const T* in, int m, int n, Part part, int* is_bad) {
    launch(AroundRoutine::check, what_.batch, 1, in, m, n, n, static_cast<long long>(m) * n, static_cast<int>(part),
           is_bad);
  }

  struct Place {
    long long row, column, batch;
  };
  static Place row_major(long long m, long long n) { return {n, 1, m * n}; }
  static Place column_major(long long m, long long n) { return {1, m, m * n}; }
  struct How {
    Part part = Part::all;
    const int* is_bad = nullptr;
    const int* info = nullptr;
    bool bad_is_nan = true;
    const int* turned = nullptr;
    Turns turns = Turns::none;
  };
  void copy(const T* in, Place from, T* out, Place to, int m, int n, How how) {
    launch(AroundRoutine::copy, blocks_for(std::int64_t{m} * n), what_.batch, in, out, m, n, from.row, from.column,
           from.batch, to.row, to.column, to.batch, static_cast<int>(how.part), how.is_bad, how.info,
           static_cast<int>(how.bad_is_nan), how.turned, static_cast<int>(how.turns));
  }
  void find_turned(const T* in, int components, int vectors, long long component, long long vector, int* turned) {
    launch(AroundRoutine::turned, blocks_for(vectors), what_.batch, in, components, vectors, component, vector,
           static_cast<long long>(components) * vectors, turned);
  }

  // Routines.

  /// The row-major lower triangle is the column-major upper one, and U^T U = L L^T. Pivots that are not finite are
  /// found on the diagonal.
  void cholesky() {
    const int n = rows(), work_size = size_of(R::potrf_size, CUBLAS_FILL_MODE_UPPER, n, static_cast<T*>(nullptr), n);
    const auto work = once<T>(work_size);
    const auto info = each<int>(1), bad = each<int>(1);
    take_scratch();
    T* factor = result(0);
    copy_bytes(factor, operand(0), what_.batch * n * n);
    for_each("potrf", [&](std::int64_t g) {
      return (solver_.cusolver_->*R::potrf)(solver_.cusolver_handle_, CUBLAS_FILL_MODE_UPPER, n, factor + g * n * n, n,
                                            at(work), work_size, at(info) + g);
    });
    check(factor, n, n, Part::diagonal, at(bad));
    copy(factor, row_major(n, n), factor, row_major(n, n), n, n,
         {.part = Part::lower, .is_bad = at(bad), .info = at(info)});
  }

  /// x^T op(a)^T = b^T, with everything transposed already.
  void triangular_solve() {
    const int n = rows(), m = columns();
    if (m == 0) return;
    T* x = result(0);
    copy_bytes(x, operand(1), what_.batch * count());
    const T one = 1;
    for_each("trsm", [&](std::int64_t g) {
      return (solver_.cublas_->*R::trsm)(
          solver_.cublas_handle_, CUBLAS_SIDE_RIGHT, what_.lower ? CUBLAS_FILL_MODE_UPPER : CUBLAS_FILL_MODE_LOWER,
          what_.transposed ? CUBLAS_OP_T : CUBLAS_OP_N, what_.unit_diagonal ? CUBLAS_DIAG_UNIT : CUBLAS_DIAG_NON_UNIT,
          m, n, &one, operand(0) + g * n * n, n, x + g * count(), m);
    });
  }

  void lu() {
    const int m = rows(), n = columns(), k = least();
    const int work_size = n == 0 ? 0 : size_of(R::getrf_size, m, n, static_cast<T*>(nullptr), m);
    const auto work = once<T>(work_size), factors = each<T>(count());
    const auto info = each<int>(1);
    take_scratch();
    int *pivots = result<int>(1), *permutation = result<int>(2);
    copy(operand(0), row_major(m, n), at(factors), column_major(m, n), m, n, {});
    if (n > 0)  // a zero pivot is no failure: the factors are there
      for_each("getrf", [&](std::int64_t g) {
        return (solver_.cusolver_->*R::getrf)(solver_.cusolver_handle_, m, n, at(factors) + g * count(), m, at(work),
                                              pivots + g * k, at(info) + g);
      });
    copy(at(factors), column_major(m, n), result(0), row_major(m, n), m, n, {});
    launch(AroundRoutine::permutation, blocks_for(what_.batch), 1, pivots, permutation, k, m,
           static_cast<int>(what_.batch));
  }

  void qr() {
    const int m = rows(), n = columns(), k = least();
    if (n == 0) return;
    const int factor_size = size_of(R::geqrf_size, m, n, static_cast<T*>(nullptr), m),
              form_size =
                  size_of(R::orgqr_size, m, k, k, static_cast<const T*>(nullptr), m, static_cast<const T*>(nullptr));
    const auto work = once<T>(std::max(factor_size, form_size)), factors = each<T>(count()), taus = each<T>(k);
    const auto info = each<int>(1);
    take_scratch();
    copy(operand(0), row_major(m, n), at(factors), column_major(m, n), m, n, {});
    for_each("geqrf", [&](std::int64_t g) {
      return (solver_.cusolver_->*R::geqrf)(solver_.cusolver_handle_, m, n, at(factors) + g * count(), m,
                                            at(taus) + g * k, at(work), factor_size, at(info) + g);
    });
    copy(at(factors), column_major(m, n), result(1), row_major(k, n), k, n, {.part = Part::upper});
    for_each("orgqr", [&](std::int64_t g) {
      return (solver_.cusolver_->*R::orgqr)(solver_.cusolver_handle_, m, k, k, at(factors) + g * count(), m,
                                            at(taus) + g * k, at(work), form_size, at(info) + g);
    });
    copy(at(factors), column_major(m, n), result(0), row_major(m, k), m, k, {});
  }

  /// The routine wants at least as many rows as columns, and gets the transpose where there are fewer: A = U S V^T is,
  /// column-major, A^T = V S U^T, and the routine's results lie as ours shall.
  void svd() {
    const int m = rows(), n = columns(), k = least();
    if (n == 0) return;
    const bool is_wide = m <= n;
    const int tall = std::max(m, n);
    const int work_size = size_of(R::gesvd_size, tall, k);
    const auto work = once<T>(work_size), a = each<T>(count()), left = each<T>(std::int64_t{tall} * k),
               right = each<T>(std::int64_t{k} * k);
    const auto info = each<int>(1), bad = each<int>(1), turned = each<int>(k);
    take_scratch();
    check(operand(0), m, n, Part::all, at(bad));
    copy(operand(0), row_major(m, n), at(a), is_wide ? row_major(m, n) : column_major(m, n), m, n,
         {.is_bad = at(bad), .bad_is_nan = false});
    T* s = result(1);
    for_each("gesvd", [&](std::int64_t g) {
      return (solver_.cusolver_->*R::gesvd)(solver_.cusolver_handle_, 'S', 'S', tall, k, at(a) + g * count(), tall,
                                            s + g * k, at(left) + g * tall * k, tall, at(right) + g * k * k, k,
                                            at(work), work_size, nullptr, at(info) + g);
    });
    // The routine's left vectors are ours of A^T: the rows of V^T, or the columns of U.
    const T *u = is_wide ? at(right) : at(left), *vt = is_wide ? at(left) : at(right);
    const Place u_place = is_wide ? row_major(m, k) : column_major(m, k),
                vt_place = is_wide ? row_major(k, n) : column_major(k, n);
    find_turned(u, m, k, u_place.row, u_place.column, at(turned));
    const auto how = [&](Turns turns) {
      return How{.is_bad = at(bad), .info = at(info), .turned = at(turned), .turns = turns};
    };
    copy(u, u_place, result(0), row_major(m, k), m, k, how(Turns::columns));
    copy(vt, vt_place, result(2), row_major(k, n), k, n, how(Turns::rows));
    copy(s, row_major(1, k), s, row_major(1, k), 1, k, how(Turns::none));
  }

  void eigh() {
    const int n = rows();
    const int work_size = size_of(R::syevd_size, CUSOLVER_EIG_MODE_VECTOR, CUBLAS_FILL_MODE_UPPER, n,
                                  static_cast<const T*>(nullptr), n, static_cast<const T*>(nullptr));
    const auto work = once<T>(work_size), vectors = each<T>(count());
    const auto info = each<int>(1), bad = each<int>(1), turned = each<int>(n);
    take_scratch();
    T* w = result(0);
    check(operand(0), n, n, Part::lower, at(bad));
    copy(operand(0), row_major(n, n), at(vectors), row_major(n, n), n, n,
         {.part = Part::lower, .is_bad = at(bad), .bad_is_nan = false});
    for_each("syevd", [&](std::int64_t g) {
      return (solver_.cusolver_->*R::syevd)(solver_.cusolver_handle_, CUSOLVER_EIG_MODE_VECTOR, CUBLAS_FILL_MODE_UPPER,
                                            n, at(vectors) + g * count(), n, w + g * n, at(work), work_size,
                                            at(info) + g);
    });
    find_turned(at(vectors), n, n, 1, n, at(turned));
    copy(at(vectors), column_major(n, n), result(1), row_major(n, n), n, n,
         {.is_bad = at(bad), .info = at(info), .turned = at(turned), .turns = Turns::columns});
    copy(w, row_major(1, n), w, row_major(1, n), 1, n, {.is_bad = at(bad), .info = at(info)});
  }

  CudaSolver& solver_;
  const Library& what_;
  const std::span<const std::byte* const> operands_;
  const std::span<std::byte* const> results_;
  const std::span<const cuda::CUfunction> around_;
  const CUstream stream_;
  absl::Status status_;
  std::int64_t scratch_bytes_ = 0;
  std::byte* scratch_ = nullptr;
};

bool CudaSolver::start_cublas() {
  if (std::exchange(has_started_cublas_, true)) return cublas_;
  const absl::StatusOr<const Cublas*> library = Cublas::load();
  absl::Status status = library.status();
  if (library.ok()) status = library_status((**library).cublasCreate_v2(&cublas_handle_), "cublasCreate_v2");
  if (status.ok()) cublas_ = *library;
  else ir::log(ir::LogTopic::runtime, "{}: triangular systems by LAPACK: {}", device_, std::string(status.message()));
  return cublas_;
}

bool CudaSolver::start_cusolver() {
  if (std::exchange(has_started_cusolver_, true)) return cusolver_;
  const absl::StatusOr<const Cusolver*> library = Cusolver::load();
  absl::Status status = library.status();
  if (library.ok()) status = library_status((**library).cusolverDnCreate(&cusolver_handle_), "cusolverDnCreate");
  if (status.ok()) cusolver_ = *library;
  else ir::log(ir::LogTopic::runtime, "{}: factorisations by LAPACK: {}", device_, std::string(status.message()));
  return cusolver_;
}

bool CudaSolver::start(Library::Routine routine) {
  return routine == Library::Routine::triangular_solve ? start_cublas() : start_cusolver();
}

/// What is too small goes back when nothing uses it any more.
absl::StatusOr<std::byte*> CudaSolver::scratch(std::int64_t bytes, CUstream stream) {
  if (bytes > scratch_bytes_) {
    absl::Status idle = cuda_.status(cuda_.cuStreamSynchronize(stream), "work on " + device_);
    if (!idle.ok()) return idle;
    scratch_.reset();
    scratch_bytes_ = 0;
    absl::StatusOr<std::shared_ptr<Memory>> memory = Memory::allocate(memory_, bytes, Loc{});
    if (!memory.ok()) return memory.status();
    scratch_ = *std::move(memory);
    scratch_bytes_ = bytes;
  }
  return scratch_ ? scratch_->data() : nullptr;
}

absl::StatusOr<bool> CudaSolver::run(const codegen::LibraryCall& call, std::span<const std::byte* const> operands,
                                     std::span<std::byte* const> results, std::span<const cuda::CUfunction> around,
                                     CUstream stream) {
  const auto& what = std::get<Library>(call.what);
  if (what.batch == 0 || what.rows == 0) return true;  // nothing to write
  std::lock_guard lock(mutex_);
  if (is_for_host(what)) {
    if (!std::exchange(has_told_of_host_, true))
      ir::log(ir::LogTopic::runtime, "{}: many small matrices by LAPACK, on copies in the host's memory", device_);
    return false;
  }
  if (!start(what.routine)) return false;
  absl::Status status =
      what.routine == Library::Routine::triangular_solve
          ? library_status(cublas_->cublasSetStream_v2(cublas_handle_, stream), "cublasSetStream_v2")
          : library_status(cusolver_->cusolverDnSetStream(cusolver_handle_, stream), "cusolverDnSetStream");
  if (status.ok())
    status = call.dtype == DType::f32 ? Batch<float>(*this, what, operands, results, around, stream).run()
                                      : Batch<double>(*this, what, operands, results, around, stream).run();
  if (!status.ok()) return status;
  counters().library_calls.fetch_add(1, std::memory_order_relaxed);
  return true;
}

}  // namespace sheaf::runtime
