// Library steps against the reference's textbook algorithms: every sample of every such op, the identities that define
// the factors, matrices that have none, and many threads at once.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <thread>

#include "ir/eval.h"
#include "ir/op.h"
#include "ir/sample.h"
#include "ir/text.h"
#include "tests/lap.h"

using namespace sheaf;
using namespace sheaf::ir;

namespace {

FunctionRef function_of(std::string_view sample_text) {
  const auto sample = parse_sample(sample_text);
  REQUIRE_MESSAGE(sample.ok(), std::string(sample.status().message()));
  return sample->function;
}

Literals run(std::string_view sample_text, const Literals& inputs) {
  return tests::run(function_of(sample_text), inputs, runtime::Tier::compiled);
}

Literals reference(std::string_view sample_text, const Literals& inputs) {
  return ir::eval(*function_of(sample_text), inputs);
}

bool is_library(const Sample& s) {
  const Eqn& e = *s.function->results()[0].eqn();
  return !e.op->is_elementwise && e.op != &ops::constant && e.op->lower &&
         std::holds_alternative<lowering::Library>(e.op->lower(e));
}

/// Within 1e-12 (f64) or 2e-5 (f32) of the reference, relative to the larger of it and 1.
void check_close(const Literal& got, const Literal& want) {
  const double tolerance = got.dtype() == DType::f64 ? 1e-12 : 2e-5;
  for (std::int64_t i = 0; i < got.size(); ++i) {
    const double a = got.get(i), b = want.get(i);
    if (a == b || (std::isnan(a) && std::isnan(b))) continue;
    CHECK_MESSAGE(std::abs(a - b) <= tolerance * std::max(1.0, std::abs(b)), "element ", i, ": ", a, " for ", b);
  }
}

Literal random(std::string_view type_text, std::uint64_t seed) {
  const auto sample = parse_sample("neg " + std::string(type_text));
  REQUIRE(sample.ok());
  return random_inputs(*sample, seed)[0];
}

void check_all_nan(const Literals& results) {
  for (const Literal& r : results)
    for (std::int64_t i = 0; i < r.size(); ++i) CHECK(std::isnan(r.get(i)));
}

}  // namespace

TEST_CASE("every library step gives the reference's result") {
  for (Op op : all_ops()) {
    if (!op->samples) continue;
    for (std::string_view text : op->samples()) {
      const auto sample = parse_sample(text);
      REQUIRE(sample.ok());
      if (!is_library(*sample)) continue;
      INFO("sample: ", std::string(text));
      const Literals inputs = random_inputs(*sample, 1), want = ir::eval(*sample->function, inputs);
      const Literals got = tests::run(sample->function, inputs, runtime::Tier::compiled);
      for (std::size_t j = 0; j < want.size(); ++j) check_close(got[j], want[j]);
    }
  }
}

TEST_CASE("factors of a matrix of 200 rows multiply to it") {
  constexpr std::int64_t n = 200;
  const Literal a = random("f64[200, 200]", 3);
  const Literals f = run("qr f64[200, 200]", {a});
  const Literals s = run("svd f64[200, 200]", {a});
  double worst_qr = 0, worst_svd = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    for (std::int64_t j = 0; j < n; ++j) {
      double qr = 0, usv = 0;
      for (std::int64_t k = 0; k < n; ++k) {
        qr += f[0].get(i * n + k) * f[1].get(k * n + j);
        usv += s[0].get(i * n + k) * s[1].get(k) * s[2].get(k * n + j);
      }
      worst_qr = std::max(worst_qr, std::abs(qr - a.get(i * n + j)));
      worst_svd = std::max(worst_svd, std::abs(usv - a.get(i * n + j)));
    }
  }
  CHECK(worst_qr < 1e-12);
  CHECK(worst_svd < 1e-12);
}

TEST_CASE("a matrix without the factors gives NaN, and its neighbours in the batch theirs") {
  const Literal a(DType::f64, {2, 2, 2}, {1, 2, 2, 1, 4, 0, 0, 9});
  const Literal got = run("cholesky f64[2, 2, 2]", {a})[0];
  for (int i = 0; i < 4; ++i) CHECK(std::isnan(got.get(i)));
  CHECK(got.get(4) == 2);
  CHECK(got.get(7) == 3);
  CHECK(tests::same_bits(got, reference("cholesky f64[2, 2, 2]", {a})[0]));
}

TEST_CASE("a matrix that is not finite has no singular values and no eigenvalues") {
  constexpr double inf = std::numeric_limits<double>::infinity();
  const Literal a(DType::f32, {2, 2}, {1, 2, inf, 1});
  check_all_nan(run("svd f32[2, 2]", {a}));
  check_all_nan(run("eigh f32[2, 2]", {a}));
  check_all_nan(reference("svd f32[2, 2]", {a}));
  check_all_nan(reference("eigh f32[2, 2]", {a}));
  const Literal above(DType::f32, {2, 2}, {2, inf, 0, 3});  // eigh does not read the upper triangle
  CHECK(run("eigh f32[2, 2]", {above})[0].get(0) == 2);
}

TEST_CASE("zero and equal singular values give orthogonal vectors all the same") {
  for (const std::vector<double>& values : {std::vector<double>{0, 0, 0, 0}, {1, 1, 1, 1}, {1, 0, 0, 1}}) {
    const Literal a(DType::f64, {2, 2}, values);
    for (const Literals& f : {run("svd f64[2, 2]", {a}), reference("svd f64[2, 2]", {a})}) {
      for (const int k : {0, 2}) {
        const Literal& q = f[k];
        CHECK(std::abs(q.get(0) * q.get(2) + q.get(1) * q.get(3)) < 1e-14);
        CHECK(q.get(0) * q.get(0) + q.get(1) * q.get(1) == doctest::Approx(1));
        CHECK(q.get(2) * q.get(2) + q.get(3) * q.get(3) == doctest::Approx(1));
      }
    }
  }
}

TEST_CASE("lu of a singular matrix has a zero on the diagonal of U and a permutation without columns is the identity") {
  const Literal a(DType::f64, {2, 2}, {1, 2, 2, 4});
  const Literals f = run("lu f64[2, 2]", {a});
  CHECK(f[0].get(3) == 0);
  CHECK(f[1].get_int(0) == 1);
  CHECK(f[2].get_int(0) == 1);
  CHECK(run("lu f64[3, 0]", {Literal(Type(DType::f64, {3, 0}))})[2].get_int(2) == 2);
}

TEST_CASE("threads that factor matrices at once get the bits of one that does it alone") {
  const Literal a = random("f64[90, 90]", 7);
  const FunctionRef f = function_of("svd f64[90, 90]");
  const Literals want = tests::run(f, {a}, runtime::Tier::compiled);
  std::vector<Literals> got(4);
  std::vector<std::thread> threads;
  for (Literals& mine : got) threads.emplace_back([&] { mine = tests::run(f, {a}, runtime::Tier::compiled); });
  for (std::thread& t : threads) t.join();
  for (const Literals& mine : got)
    for (std::size_t j = 0; j < want.size(); ++j) CHECK(tests::same_bits(mine[j], want[j]));
}

TEST_CASE("what cannot be a matrix is refused with both types") {
  const auto message = [](std::string_view text) { return std::string(parse_sample(text).status().message()); };
  CHECK(message("cholesky f32[3]").find("cholesky: takes matrices, not f32[3]") != std::string::npos);
  CHECK(message("cholesky f32[2, 3]").find("cholesky: takes square matrices, not f32[2, 3]") != std::string::npos);
  CHECK(message("cholesky bf16[2, 2]").find("cholesky: takes f32 or f64, not bf16[2, 2]") != std::string::npos);
  CHECK(message("triangular_solve f32[2, 2], f64[2, 2]")
            .find("matrix (f32[2, 2]) and right-hand side (f64[2, 2]) must have the same dtype") != std::string::npos);
  CHECK(message("triangular_solve f32[2, 2], f32[3, 2]")
            .find("matrix (f32[2, 2]) and right-hand side (f32[3, 2]) must agree in all dims but the last") !=
        std::string::npos);
}
