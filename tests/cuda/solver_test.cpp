// Linear algebra by cuSOLVER and cuBLAS, on fake ones over the host's LAPACK: results equal the CPU's to the bit, since
// what differs is the kernels around the routines alone; but singular values of tall matrices, whose routine is given
// the matrix where the CPU's is given its transpose.
#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstdio>
#include <limits>

#include "runtime/counters.h"
#include "runtime/driver/linear_algebra.h"
#include "sheaf/sheaf.h"
#include "tests/child.h"
#include "tests/environment.h"
#include "tests/message.h"
#include "tests/places.h"

using namespace sheaf;

namespace {

const std::string kFakeCusolver = SHEAF_BINARY_DIR "/libsheaf_fake_cusolver.so";

/// Bits, all NaN alike.
std::vector<std::uint64_t> bits_of(const Array& x) {
  std::vector<std::uint64_t> bits;
  for (const double v : convert(x, f64).to_vector<double>())
    bits.push_back(std::isnan(v) ? ~0ull : std::bit_cast<std::uint64_t>(v));
  return bits;
}

/// Within so many units of the dtype's rounding, relative to 1.
bool are_close(const Array& a, const Array& b, double units) {
  const std::vector<double> left = convert(a, f64).to_vector<double>(), right = convert(b, f64).to_vector<double>();
  const double tolerance = units * (a.dtype() == f64 ? 0x1p-53 : 0x1p-24);
  for (std::size_t i = 0; i < left.size(); ++i)
    if (!(std::abs(left[i] - right[i]) <= tolerance) && !(std::isnan(left[i]) && std::isnan(right[i]))) return false;
  return true;
}

int compared = 0;

/// f on the platform's device and on the CPU. `units` is 0 where all bits are to be the same.
template <class F, class... Arrays>
void compare_within(double units, const char* name, F f, const Arrays&... x) {
  const Device cpu = devices("cpu")[0];
  const auto on_gpu = jit(f)(x...);
  const auto on_cpu = jit(f)(device_put(x, cpu)...);
  const std::vector<Array> left = tree_leaves(on_gpu), right = tree_leaves(on_cpu);
  for (std::size_t i = 0; i < left.size(); ++i) {
    ++compared;
    if (units == 0 ? bits_of(left[i]) != bits_of(right[i]) : !are_close(left[i], right[i], units))
      std::fprintf(stderr, "%s, result %zu: %s for %s\n", name, i, to_string(left[i]).c_str(),
                   to_string(right[i]).c_str());
  }
}

template <class F, class... Arrays>
void compare(const char* name, F f, const Arrays&... x) {
  compare_within(0, name, f, x...);
}

Array matrix(int seed, const Shape& shape, DType t) {
  return device_put(random::normal(random::key(seed), shape, t), devices()[0]);
}

void compare_all(DType t) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const Shape& shape : {Shape{4, 4}, Shape{5, 3}, Shape{3, 5}, Shape{2, 4, 3}, Shape{3, 2, 6}, Shape{1, 1}}) {
    const Array x = matrix(1, shape, t);
    compare("lu", [](Array a) { return linalg::lu(a); }, x);
    compare("qr", [](Array a) { return linalg::qr(a); }, x);
    compare_within(64, "svd", [](Array a) { return linalg::svd(a); }, x);
    compare("svd of what is not finite", [](Array a) { return linalg::svd(a); }, x / zeros_like(x));
  }
  for (const Shape& shape : {Shape{5, 5}, Shape{3, 4, 4}, Shape{1, 1}}) {
    const auto cholesky = [](Array a) { return linalg::cholesky(a); };
    const auto eigh = [](Array a) { return linalg::eigh(a); };
    const Array x = matrix(2, shape, t), definite = matmul(x, swapaxes(x, -1, -2)) + eye(shape.back(), t);
    compare("cholesky", cholesky, definite);
    compare("cholesky of what is not definite", cholesky, -definite);
    compare("cholesky of NaN", cholesky, definite * nan);
    compare("eigh", eigh, definite);
    compare("eigh of NaN", eigh, definite * nan);
    const Array b = matrix(3, shape, t);
    for (const bool lower : {true, false})
      for (const bool transposed : {true, false})
        for (const bool unit : {true, false})
          compare(
              "triangular_solve",
              [=](Array a, Array y) {
                return linalg::triangular_solve(a, y,
                                                {.lower = lower, .transposed = transposed, .unit_diagonal = unit});
              },
              definite, b);
  }
}

using Variables = std::vector<std::pair<std::string, std::string>>;

std::string said_on_gpu(const Variables& more) {
  Variables variables{{"SHEAF_PLATFORM", "cuda"},
                      {"SHEAF_LIBCUDA", SHEAF_BINARY_DIR "/libsheaf_fake_cuda.so"},
                      {"SHEAF_LIBNVRTC", SHEAF_BINARY_DIR "/libsheaf_fake_nvrtc.so"},
                      {"SHEAF_LIBCUSOLVER", kFakeCusolver},
                      {"SHEAF_LIBCUBLAS", kFakeCusolver},
                      {"SHEAF_RECOMPILE_WARNING", "0"}};  // each function is compiled for many shapes
  variables.insert(variables.end(), more.begin(), more.end());
  return tests::said_by_child("solver", variables);
}

}  // namespace

TEST_CASE("where there is no cuSOLVER or cuBLAS, the places that were tried are told") {
  CHECK(runtime::Cusolver::open({"/nowhere/libcusolver.so.12"}).status().ToString() ==
        "UNAVAILABLE: no cuSOLVER; tried:\n"
        "  /nowhere/libcusolver.so.12: cannot open shared object file: No such file or directory\n"
        "Sheaf uses cuSOLVER 11 or newer; SHEAF_LIBCUSOLVER names one that lies elsewhere");
  CHECK(runtime::Cublas::open({"/nowhere/libcublas.so.13"}).status().ToString() ==
        "UNAVAILABLE: no cuBLAS; tried:\n"
        "  /nowhere/libcublas.so.13: cannot open shared object file: No such file or directory\n"
        "Sheaf uses cuBLAS 12 or newer; SHEAF_LIBCUBLAS names one that lies elsewhere");
  CHECK(runtime::Cusolver::open({"libm.so.6"}).status().ToString() ==
        "UNAVAILABLE: libm.so.6 is no cuSOLVER: it does not tell its version");
  const tests::Variable old("SHEAF_FAKE_CUSOLVER_VERSION", "10");
  CHECK(runtime::Cusolver::open({kFakeCusolver}).status().ToString() ==
        "FAILED_PRECONDITION: " + kFakeCusolver + " is cuSOLVER 10.0.0, and Sheaf needs 11 or newer");
}

TEST_CASE("[solver] a program" * doctest::skip()) {
  const std::int64_t before = runtime::counters().library_calls;
  compare_all(f32);
  compare_all(f64);
  const Array many = matrix(4, {100, 3, 3}, f32);
  compare("many small ones", [](Array a) { return linalg::qr(a).q; }, many);
  const auto calls = static_cast<int>(runtime::counters().library_calls - before);
  std::fprintf(stderr, "%d results, %d calls\n", compared, calls);
}

TEST_CASE("linear algebra on a GPU equals the CPU's to the bit, by the libraries but for many small matrices") {
  CHECK(said_on_gpu({}) == "223 results, 126 calls\n");
  CHECK(said_on_gpu({{"SHEAF_FAKE_CUDA_ORDER", "random"}}) == "223 results, 126 calls\n");
}

TEST_CASE("without the libraries LAPACK does it, and that is logged once each") {
  const std::string text = said_on_gpu({{"SHEAF_LIBCUSOLVER", "/nowhere/libcusolver.so"},
                                        {"SHEAF_LIBCUBLAS", "/nowhere/libcublas.so"},
                                        {"SHEAF_LOG", "runtime"}});
  const auto times = [&](const std::string& part) {
    int count = 0;
    for (std::size_t at = 0; (at = text.find(part, at)) != std::string::npos; ++at) ++count;
    return count;
  };
  CHECK(times("sheaf runtime: cuda:0: factorisations by LAPACK: no cuSOLVER; tried:\n"
              "  /nowhere/libcusolver.so: cannot open shared object file: No such file or directory\n"
              "Sheaf uses cuSOLVER 11 or newer; SHEAF_LIBCUSOLVER names one that lies elsewhere\n") == 1);
  CHECK(times("sheaf runtime: cuda:0: triangular systems by LAPACK: no cuBLAS; tried:\n"
              "  /nowhere/libcublas.so: cannot open shared object file: No such file or directory\n"
              "Sheaf uses cuBLAS 12 or newer; SHEAF_LIBCUBLAS names one that lies elsewhere\n") == 1);
  CHECK(times("sheaf runtime: cuda:0: many small matrices by LAPACK, on copies in the host's memory\n") == 1);
  CHECK(times("by LAPACK") == 3);
  CHECK(text.ends_with("223 results, 0 calls\n"));
}
