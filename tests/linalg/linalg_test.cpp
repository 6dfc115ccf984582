// Linear algebra through the API: identities that define the results, derivatives to second order against differences,
// vmap and batches, and the special points.
#include <doctest/doctest.h>

#include <cmath>
#include <functional>

#include "sheaf/sheaf.h"

using namespace sheaf;

namespace {

using V = std::vector<double>;
V values(const Array& x) { return x.to_vector<double>(); }

Array random_matrix(int seed, const Shape& shape) { return random::normal(random::key(seed), shape, f64); }
Array definite(int seed, const Shape& shape) {
  const Array x = random_matrix(seed, shape);
  return matmul(x, swapaxes(x, -1, -2)) + eye(shape.back(), f64);
}

double distance(const Array& a, const Array& b) {
  REQUIRE(a.shape() == b.shape());
  return max(abs(a - b)).item<double>();
}

/// grad of f against central differences.
template <class F>
void check_gradient(F f, const Array& x, double tolerance) {
  const V gradient = values(jit(grad(f))(x));
  const auto compiled = jit(f);
  constexpr double h = 1e-5;
  for (std::int64_t i = 0; i < x.size(); ++i) {
    V step(static_cast<std::size_t>(x.size()), 0.0);
    step[i] = h;
    const Array d = reshape(array(step, {}, f64), x.shape());
    const double difference =
        (compiled(x + d).template item<double>() - compiled(x - d).template item<double>()) / (2 * h);
    CHECK_MESSAGE(std::abs(gradient[i] - difference) <= tolerance * (1 + std::abs(difference)), "element ", i, ": ",
                  gradient[i], " for ", difference);
  }
}

Array weighted(const Array& x) { return sum(reshape(x, {-1}) * cos(convert(arange(x.size()), f64))); }

/// First and second derivatives of f's elements, weighted.
template <class F>
void check_derivatives(F f, const Array& x) {
  const auto first = [=](Array v) { return weighted(f(v)); };
  check_gradient(first, x, 1e-7);
  check_gradient([=](Array v) { return weighted(grad(first)(v)); }, x, 1e-5);
}

}  // namespace

TEST_CASE("cholesky: L L^T is the symmetric part, in batches") {
  const Array a = definite(1, {2, 4, 4});
  const Array l = linalg::cholesky(a);
  CHECK(distance(matmul(l, swapaxes(l, -1, -2)), a) < 1e-12);
  CHECK(same(l, tril(l)));
  check_derivatives([](Array x) { return linalg::cholesky(x); }, definite(2, {3, 3}));
}

TEST_CASE("the gradient of cholesky is symmetric") {
  const Array g = grad([](Array x) { return weighted(linalg::cholesky(x)); })(definite(3, {3, 3}));
  CHECK(distance(g, transpose(g)) < 1e-13);
}

TEST_CASE("triangular_solve reads one triangle, transposed or not") {
  const Array a = random_matrix(4, {3, 3}) + 3 * eye(3, f64), b = random_matrix(5, {3, 2});
  CHECK(distance(matmul(tril(a), linalg::triangular_solve(a, b)), b) < 1e-12);
  CHECK(distance(matmul(transpose(triu(a)), linalg::triangular_solve(a, b, {.lower = false, .transposed = true})), b) <
        1e-12);
  CHECK(linalg::triangular_solve(a, array({1.0, 2.0, 3.0}, f64)).shape() == Shape{3});
  check_derivatives([=](Array x) { return linalg::triangular_solve(x, b); }, a);
}

TEST_CASE("solve: a x is b, with batch dims broadcast") {
  const Array a = random_matrix(6, {2, 3, 3}), b = random_matrix(7, {3, 2});
  const Array x = linalg::solve(a, b);
  CHECK(x.shape() == Shape{2, 3, 2});
  CHECK(distance(matmul(a, x), broadcast_to(b, {2, 3, 2})) < 1e-11);
  CHECK(linalg::solve(a[0], array({1.0, 2.0, 3.0}, f64)).shape() == Shape{3});
  CHECK(values(linalg::solve(array({{2, 0}, {0, 4}}), array({2, 4}))) == V{1, 1});
}

TEST_CASE("solve differentiates in both operands, twice, without differentiating the factors") {
  const Array a = random_matrix(8, {3, 3}) + 2 * eye(3, f64), b = random_matrix(9, {3, 2});
  check_derivatives([=](Array x) { return linalg::solve(x, b); }, a);
  check_derivatives([=](Array x) { return linalg::solve(a, x); }, b);
}

TEST_CASE("vmap of solve, cholesky and eigh equals a batch") {
  const Array a = definite(10, {4, 3, 3}), b = random_matrix(11, {4, 3, 2});
  CHECK(same(vmap([](Array m, Array v) { return linalg::solve(m, v); })(a, b), linalg::solve(a, b)));
  CHECK(same(vmap([](Array m) { return linalg::cholesky(m); })(a), linalg::cholesky(a)));
  CHECK(same(vmap([](Array m) { return linalg::eigh(m).vectors; })(a), linalg::eigh(a).vectors));
}

TEST_CASE("inv, det and slogdet") {
  const Array a = random_matrix(12, {2, 3, 3});
  CHECK(distance(matmul(a, linalg::inv(a)), broadcast_to(eye(3, f64), {2, 3, 3})) < 1e-11);
  CHECK(linalg::det(array({{0, 2}, {3, 1}})).item<double>() == -6);
  CHECK(linalg::det(zeros({0, 0})).item<double>() == 1);
  const auto [sign, logdet] = linalg::slogdet(a);
  CHECK(distance(sign * exp(logdet), linalg::det(a)) < 1e-12);
  check_derivatives([](Array x) { return linalg::inv(x); }, a[0]);
  check_derivatives([](Array x) { return linalg::det(x); }, a[0]);
  check_derivatives([](Array x) { return linalg::slogdet(x).logdet; }, a[1]);
}

TEST_CASE("a singular matrix has determinant 0, sign 0 and log -inf") {
  const Array a = array({{1.0, 2.0}, {2.0, 4.0}});
  CHECK(linalg::det(a).item<double>() == 0);
  CHECK(linalg::slogdet(a).sign.item<double>() == 0);
  CHECK(linalg::slogdet(a).logdet.item<double>() == -INFINITY);
  CHECK(std::isnan(values(linalg::cholesky(array({{1.0, 2.0}, {2.0, 1.0}})))[0]));
}

TEST_CASE("a matrix that is not finite has no Cholesky factor, and its neighbours keep theirs") {
  for (const double bad : {std::nan(""), static_cast<double>(INFINITY)}) {
    for (const Array& x : {full({2, 2}, bad), array({{bad, 0.0}, {0.0, 1.0}}), array({{4.0, bad}, {bad, 1.0}})})
      for (const double v : values(linalg::cholesky(x))) CHECK(std::isnan(v));
  }
  const std::vector<double> both = values(linalg::cholesky(stack({full({2, 2}, NAN), 4.0 * eye(2)})));
  for (int i = 0; i < 4; ++i) CHECK(std::isnan(both[i]));
  CHECK(std::vector<double>(both.begin() + 4, both.end()) == std::vector<double>{2, 0, 0, 2});
}

TEST_CASE("lu, qr, svd and eigh rebuild the matrix") {
  const Array a = random_matrix(13, {4, 3});
  const auto [factors, pivots, permutation] = linalg::lu(a);
  const Array lower = tril(factors, -1) + pad(eye(3, f64), {{0, 1}, {0, 0}}), upper = triu(factors[slice(0, 3)]);
  CHECK(distance(matmul(lower, upper), take(a, permutation)) < 1e-13);
  const auto [q, r] = linalg::qr(a);
  CHECK(distance(matmul(q, r), a) < 1e-13);
  CHECK(distance(matmul(transpose(q), q), eye(3, f64)) < 1e-13);
  const auto [u, s, vt] = linalg::svd(a);
  CHECK(distance(matmul(u * s, vt), a) < 1e-13);
  const Array m = definite(14, {4, 4});
  const auto [w, v] = linalg::eigh(m);
  CHECK(distance(matmul(v * w, transpose(v)), m) < 1e-12);
}

TEST_CASE("singular and eigenvalues are smooth where they are equal, and vectors are not") {
  const Array g = grad([](Array x) { return sum(linalg::eigh(x).values); })(eye(3, f64));
  CHECK(distance(g, eye(3, f64)) < 1e-13);
  CHECK(std::isnan(values(grad([](Array x) { return weighted(linalg::eigh(x).vectors); })(eye(3, f64)))[1]));
}

TEST_CASE("pinv: of any rank, with derivatives at equal singular values too") {
  const Array a = random_matrix(15, {4, 2});
  CHECK(distance(matmul(linalg::pinv(a), a), eye(2, f64)) < 1e-12);
  CHECK(distance(linalg::pinv(transpose(a)), transpose(linalg::pinv(a))) < 1e-12);
  CHECK(distance(linalg::pinv(ones({2, 2}, f64)), full({2, 2}, 0.25)) < 1e-14);
  check_derivatives([](Array x) { return linalg::pinv(x); }, a);
  check_derivatives([](Array x) { return linalg::pinv(x); }, eye(2, f64));
}

TEST_CASE("lstsq is the least squares fit") {
  const Array a = array({{1.0, 0.0}, {1.0, 1.0}, {1.0, 2.0}}, f64), b = array({1.0, 3.0, 5.0}, f64);
  CHECK(distance(linalg::lstsq(a, b), array({1.0, 2.0}, f64)) < 1e-13);
}

TEST_CASE("matrix_power: zero, negative and large exponents") {
  const Array a = array({{1, 1}, {1, 0}});
  CHECK(values(linalg::matrix_power(a, 10)) == V{89, 55, 55, 34});
  CHECK(values(linalg::matrix_power(a, 0)) == V{1, 0, 0, 1});
  CHECK(values(linalg::matrix_power(a, -1)) == V{0, 1, 1, -1});
}

TEST_CASE("norms of vectors and matrices") {
  const Array a = array({{3.0, -4.0}, {0.0, 0.0}}, f64);
  CHECK(linalg::norm(a).item<double>() == 5);
  CHECK(linalg::norm(a, {.kind = linalg::Norm::one}).item<double>() == 4);
  CHECK(linalg::norm(a, {.kind = linalg::Norm::inf}).item<double>() == 7);
  CHECK(linalg::norm(a, {.kind = linalg::Norm::two}).item<double>() == doctest::Approx(5));
  CHECK(values(linalg::norm(a, {.axes = {1}})) == V{5, 0});
  CHECK(values(linalg::norm(a, {.kind = linalg::Norm::one, .axes = {0}, .keepdims = true})) == V{3, 4});
  CHECK(linalg::norm(a, {.axes = {0, 1}, .keepdims = true}).shape() == Shape{1, 1});
  CHECK(linalg::norm(zeros({2, 3, 4}), {.axes = {0, -1}}).shape() == Shape{3});
}

TEST_CASE("the gradient of a norm is 0 at 0, to second order") {
  const Array zero = zeros({2, 2}, f64);
  for (const linalg::Norm kind : {linalg::Norm::frobenius, linalg::Norm::one, linalg::Norm::two, linalg::Norm::inf})
    CHECK(values(grad([=](Array x) { return linalg::norm(x, {.kind = kind}); })(zero)) == V(4, 0.0));
  const auto length = [](Array x) { return linalg::norm(x); };
  CHECK(values(grad([=](Array x) { return sum(grad(length)(x)); })(zero)) == V(4, 0.0));
  check_derivatives([](Array x) { return linalg::norm(x, {.kind = linalg::Norm::two}); }, random_matrix(16, {3, 3}));
}
