// Linear algebra, einsum and collectives against JAX. What has a free sign (vectors of svd and eigh) is compared as the
// products of the pairs of vectors that belong to one value, which have none.
#include <doctest/doctest.h>

#include <cmath>
#include <map>

#include "tests/jax/calls.h"

using namespace sheaf;
using linalg::Norm;
using tests::Arrays;
using tests::first;
using tests::Row;

namespace {

Array svd_parts(const Array& x) {
  const linalg::Svd s = linalg::svd(x);
  return einsum("...ik,...kj->...kij", s.u, s.vt);
}

Array eigh_parts(const Array& x) {
  const linalg::Eigh e = linalg::eigh(x);
  return einsum("...ik,...jk->...kij", e.vectors, e.vectors);
}

Array linear_solve(const Array& a, const Array& b) {
  return custom_linear_solve([&](Array x) { return dot(a, x); }, b, [&](Array y) { return linalg::solve(a, y); },
                             [&](Array y) { return linalg::solve(transpose(a), y); });
}

tests::Function norm(Norm kind, std::vector<std::int64_t> axes) {
  return [=](const Arrays& x) { return linalg::norm(x[0], {.kind = kind, .axes = axes}); };
}

tests::Function triangular(linalg::Triangular how) {
  return [=](const Arrays& x) { return linalg::triangular_solve(x[0], x[1], how); };
}

const std::map<std::string, tests::Function> kLinalg = {
    {"cholesky", [](const Arrays& x) { return linalg::cholesky(x[0]); }},
    {"eigh:values", [](const Arrays& x) { return linalg::eigh(x[0]).values; }},
    {"eigh:parts", [](const Arrays& x) { return eigh_parts(x[0]); }},
    {"svd:values", [](const Arrays& x) { return linalg::svd(x[0]).s; }},
    {"svd:parts", [](const Arrays& x) { return svd_parts(x[0]); }},
    {"qr:q", [](const Arrays& x) { return linalg::qr(x[0]).q; }},
    {"qr:r", [](const Arrays& x) { return linalg::qr(x[0]).r; }},
    {"lu", [](const Arrays& x) { return linalg::lu(x[0]).lu; }},
    {"lu:pivots", [](const Arrays& x) { return linalg::lu(x[0]).pivots; }},
    {"lu:permutation", [](const Arrays& x) { return linalg::lu(x[0]).permutation; }},
    {"inv", [](const Arrays& x) { return linalg::inv(x[0]); }},
    {"det", [](const Arrays& x) { return linalg::det(x[0]); }},
    {"slogdet:sign", [](const Arrays& x) { return linalg::slogdet(x[0]).sign; }},
    {"slogdet:logdet", [](const Arrays& x) { return linalg::slogdet(x[0]).logdet; }},
    {"matrix_power:3", [](const Arrays& x) { return linalg::matrix_power(x[0], 3); }},
    {"matrix_power:-2", [](const Arrays& x) { return linalg::matrix_power(x[0], -2); }},
    {"pinv", [](const Arrays& x) { return linalg::pinv(x[0]); }},
    {"lstsq", [](const Arrays& x) { return linalg::lstsq(x[0], x[1]); }},
    {"norm", norm(Norm::frobenius, {})},
    {"norm:rows", norm(Norm::two, {-1})},
    {"norm:rows_one", norm(Norm::one, {-1})},
    {"norm:rows_inf", norm(Norm::inf, {-1})},
    {"norm:frobenius", norm(Norm::frobenius, {-2, -1})},
    {"norm:one", norm(Norm::one, {-2, -1})},
    {"norm:two", norm(Norm::two, {-2, -1})},
    {"norm:inf", norm(Norm::inf, {-2, -1})},
    {"solve", [](const Arrays& x) { return linalg::solve(x[0], x[1]); }},
    {"triangular_solve:lower", triangular({})},
    {"triangular_solve:upper_transposed", triangular({.lower = false, .transposed = true})},
    {"triangular_solve:unit_lower_transposed", triangular({.transposed = true, .unit_diagonal = true})},
    {"custom_linear_solve", [](const Arrays& x) { return linear_solve(x[0], x[1]); }},
};

// A function of one example, mapped over three.
tests::Function mapped(Array (*of_one)(Array x)) {
  return [=](const Arrays& x) { return vmap(of_one, {.axis_name = "i"})(x[0]); };
}

const std::map<std::string, tests::Function> kCollectives = {
    {"psum", mapped([](Array x) { return psum(x, "i"); })},
    {"pmean", mapped([](Array x) { return pmean(x, "i"); })},
    {"pmax", mapped([](Array x) { return pmax(x, "i"); })},
    {"pmin", mapped([](Array x) { return pmin(x, "i"); })},
    {"product", mapped([](Array x) { return x * psum(x, "i"); })},
    {"all_gather", mapped([](Array x) { return all_gather(x, "i"); })},
    {"all_gather_last", mapped([](Array x) { return all_gather(x, "i", 1); })},
    {"ppermute", mapped([](Array x) { return ppermute(x, "i", {{0, 1}, {1, 2}}); })},
    {"rotate", mapped([](Array x) { return ppermute(x, "i", {{0, 1}, {1, 2}, {2, 0}}); })},
    {"all_to_all", mapped([](Array x) { return all_to_all(x, "i", 0, 0); })},
    {"axis_index", mapped([](Array x) { return x * convert(axis_index("i"), x.dtype()); })},
};

// The first two rows of a 3 x 3 matrix are parallel.
bool is_singular(const Row& r, std::int64_t) { return first(r, 0) * first(r, 4) == first(r, 1) * first(r, 3); }
bool anywhere(const Row&, std::int64_t) { return true; }

bool is_zero_or_nan(double x) { return x == 0 || std::isnan(x); }
// Row i of the operand has such an element, or the row that element i is in.
bool row_has_zero_or_nan(const Row& r, std::int64_t i) {
  const std::int64_t columns = r.operands[0].dims().back();
  for (std::int64_t k = 0; k < columns; ++k)
    if (is_zero_or_nan(first(r, i * columns + k))) return true;
  return false;
}
bool own_row_has_zero_or_nan(const Row& r, std::int64_t i) {
  return row_has_zero_or_nan(r, i / r.operands[0].dims().back());
}

bool is_nan(double got, double) { return std::isnan(got); }
bool has_no_inverse(double got, double) { return !std::isfinite(got); }
bool is_zero_for_nan(double got, double want) { return got == 0 && std::isnan(want); }
bool gives_zero_or_nan(double got, double) { return is_zero_or_nan(got); }

constexpr tests::CallDifference kDifferences[] = {
    {"cholesky", "value", anywhere,
     "a matrix that is not definite gives NaN throughout; JAX keeps zeros above, and what NaN in it does not reach",
     is_nan},
    {"det slogdet:logdet", "jvp vjp", is_singular, "through the inverse, which is not there; JAX's det uses cofactors",
     has_no_inverse},
    {"norm norm:rows norm:frobenius", "jvp vjp", anywhere, "the derivative at 0 is 0; JAX's is NaN", is_zero_for_nan},
    {"norm:rows_one norm:rows_inf", "jvp", row_has_zero_or_nan, "that of |x| is 0 at 0, and NaN at NaN"},
    {"norm:rows_one norm:rows_inf", "vjp", own_row_has_zero_or_nan, "that of |x| is 0 at 0, and NaN at NaN",
     gives_zero_or_nan},
};

auto by_name(const std::map<std::string, tests::Function>& table) {
  return [&table](const std::string& name) {
    const auto found = table.find(name);
    return found == table.end() ? tests::Function() : found->second;
  };
}

}  // namespace

TEST_CASE("linear algebra agrees with jax.numpy.linalg") {
  tests::check_calls("linalg", by_name(kLinalg), kDifferences, {.f32 = 2e-5, .f64 = 1e-11});
}

TEST_CASE("einsum agrees with jax.numpy, whatever the spec") {
  const auto find = [](const std::string& name) -> tests::Function {  // "einsum:ij,jk->ik"
    return [spec = name.substr(name.find(':') + 1)](const Arrays& x) { return einsum(spec, x); };
  };
  tests::check_calls("einsum", find, {});
}

TEST_CASE("collectives over an axis of vmap agree with jax.lax") {
  tests::check_calls("collectives", by_name(kCollectives), {});
}
