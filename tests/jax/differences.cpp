// Exact ops must agree with JAX to the bit and all others to a few ulps. Each difference below is a decision: its
// reason stands beside it, and Sheaf's own value there is tested by the special-value matrix and in tests/ir.
#include "tests/jax/differences.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "ir/op.h"

namespace sheaf::tests {
namespace {

// One unit in the last place of x.
double ulp(DType t, double x) {
  const int digits = t == f64   ? 53
                     : t == f32 ? 24
                     : t == f16 ? 11
                                : 8,
            lowest = t == f64   ? -1022
                     : t == f16 ? -14
                                : -126;
  int exponent = 0;
  std::frexp(x, &exponent);
  return std::ldexp(1.0, std::max(exponent - 1, lowest) - digits + 1);
}

bool is_subnormal(DType t, double x) {
  const double smallest = t == f64 ? 0x1p-1022 : t == f16 ? 0x1p-14 : 0x1p-126;
  return x != 0 && std::abs(x) < smallest;
}

bool any_subnormal(const Point& p) {
  return is_subnormal(p.dtype, p.got) || is_subnormal(p.dtype, p.want) ||
         std::any_of(p.operands.begin(), p.operands.end(), [&](double x) { return is_subnormal(p.dtype, x); });
}

bool any_nan(const Point& p) {
  return std::any_of(p.operands.begin(), p.operands.end(), [](double x) { return std::isnan(x); });
}
bool any_zero(const Point& p) {
  return std::any_of(p.operands.begin(), p.operands.end(), [](double x) { return x == 0; });
}
bool at_zero_or_nan(const Point& p) { return any_zero(p) || any_nan(p); }
bool exponent_rounds(const Point& p) {
  const double less = p.operands[1] - 1;
  return size_bytes(p.dtype) == 2 && ir::from_bits(p.dtype, ir::to_bits(p.dtype, less)) != less;
}
bool bounds_cross(const Point& p) { return !(p.operands[0] < p.operands[2]) || std::isnan(p.operands[1]); }
bool below_one(const Point& p) { return p.operands[0] < 1; }
bool value_is_nan(const Point& p) { return p.operands[1] == 0 || std::isinf(p.operands[0]); }
bool at_zero(const Point& p) { return p.operands[0] == 0; }
bool at_infinity(const Point& p) { return std::isinf(p.operands[0]); }
bool is_extreme(const Point& p) { return p.combine == "max" || p.combine == "min"; }
bool extreme_is_nan(const Point& p) { return is_extreme(p) && p.nan_in_row && std::isnan(p.got) && p.want == 0; }
bool window_holds_nan(const Point& p) { return is_extreme(p) && p.nan_in_row; }
bool product_by_infinity(const Point& p) { return p.combine == "prod" && p.infinity_in_row && std::isnan(p.want); }
bool log_sum_of_infinity(const Point& p) {
  return p.combine == "logsumexp" && p.infinity_in_row && (std::isnan(p.got) || p.got == 0);
}
bool zero_in_row(const Point& p) { return p.zero_in_row; }
bool is_nearly_equal(const Point& p) { return std::abs(p.got - p.want) <= 1e-7 * std::abs(p.want); }

bool square_overflows(const Point& p) {
  const double largest = p.dtype == f16 ? 0x1p8 : p.dtype == f64 ? 0x1p511 : 0x1p63;
  return std::any_of(p.operands.begin(), p.operands.end(),
                     [&](double x) { return x != 0 && (std::abs(x) >= largest || std::abs(x) <= 1 / largest); });
}

// An argument that is off by half an ulp changes e^x by |x| halves.
bool is_error_of_argument(const Point& p) {
  const double epsilon = 2 * ulp(p.dtype, 1);
  return std::abs(p.got - p.want) <= epsilon * (1 + std::abs(p.operands[0])) * std::abs(p.want);
}

constexpr Difference kDifferences[] = {
    {"*", "value jvp vjp vmap", any_subnormal, "JAX flushes subnormal numbers to zero on CPUs; Sheaf keeps them"},
    {"abs", "jvp vjp", at_zero_or_nan, "the derivative of |x| is 0 at 0, and NaN at NaN; JAX's is 1 and -1"},
    {"clamp", "jvp vjp", bounds_cross,
     "where the bounds meet, cross or are NaN, the one whose value it is has derivative 1"},
    {"max min", "jvp vjp vmap", any_nan, "a NaN shares the derivative; JAX gives it to neither operand"},
    {"rem", "jvp vjp", value_is_nan, "the value is NaN, and so is the derivative; JAX's is infinite"},
    {"asinh acosh", "jvp vjp", square_overflows, "JAX squares the operand, which leaves the range"},
    {"acosh", "jvp vjp", below_one, "the value is NaN, and so is the derivative; JAX's is infinite"},
    {"digamma", "value", at_zero,
     "the limit at 0 is infinite, with the opposite of the zero's sign; JAX's value is NaN"},
    {"lgamma", "jvp vjp", at_zero, "the derivative is digamma's limit; JAX's is NaN"},
    {"digamma", "jvp vjp", at_infinity, "0, the limit, at inf and NaN at -inf; JAX's are NaN and inf"},
    {"digamma", "jvp vjp", is_nearly_equal, "JAX's f64 trigamma is right to 1e-7 only for negative arguments"},
    {"pow", "jvp vjp", any_zero, "the derivative of x^0 in x is 0, also at 0 and NaN; JAX's is NaN"},
    {"pow", "jvp vjp", exponent_rounds,
     "in f16 and bf16 y - 1 is computed in f32; JAX's rounds, to y or to an integer"},
    {"atan2", "jvp vjp", any_zero, "the origin has no direction, and derivative 0; JAX's is NaN"},
    {"div atan2", "jvp vjp", square_overflows, "JAX squares the operands, which leaves the range"},
    {"cumulative", "jvp vjp", extreme_is_nan, "a NaN that runs on has derivative NaN; JAX's extremes have 0"},
    {"cumulative", "jvp vjp", product_by_infinity, "a product's derivative is the product of the others; JAX's is NaN"},
    {"cumulative", "jvp vjp", log_sum_of_infinity,
     "logsumexp beyond inf has no derivative in inf, and 0 in what follows; JAX's is finite"},
    {"reduce_window", "jvp vjp", window_holds_nan,
     "a window whose extreme is NaN gives none; JAX picks an element of it"},
    {"top_k", "value", zero_in_row, "-0 equals +0, and the first comes first; JAX's -0 is the smaller"},
    {"exp2 sinh cosh", "value jvp vjp", is_error_of_argument, "JAX scales the argument of exp, and rounds it"},
};

std::int64_t uses[std::size(kDifferences)];

bool has_word(std::string_view list, std::string_view word) {
  for (const std::string& w : words(std::string(list)))
    if (w == word || w == "*") return true;
  return false;
}

bool is_accepted(std::string_view op, const Quantity& q, const Point& p) {
  for (std::size_t k = 0; k < std::size(kDifferences); ++k) {
    const Difference& d = kDifferences[k];
    if (!has_word(d.ops, op) || !has_word(d.quantities, q.kind) || !d.at(p)) continue;
    ++uses[k];
    return true;
  }
  return false;
}

// Ulps of max(|result|, scale).
struct Tolerance {
  std::string_view ops, quantities;
  double ulps, scale;
};
constexpr Tolerance kTolerances[] = {
    {"tanh logistic", "jvp vjp", 4, 1},      // 1 - y has the absolute error of y
    {"erf_inv", "value jvp vjp", 256, 0},    // exp(y^2) at the end of the range
    {"logistic", "value", 8, 0},             // JAX rounds each step of it in bf16
    {"scatter", "jvp vjp", 4, 1},            // JAX's shares of tied updates do not add up to 1
    {"cumulative", "jvp vjp", 16, 1},        // sums of terms that cancel
    {"attention", "value jvp vjp vmap", 16, 1},  // likewise
    {"lgamma digamma", "value jvp vjp vmap", 16, 1},  // zeros at inconvenient places
};

Tolerance tolerance(const ir::OpDef& op, const Quantity& q, DType t) {
  const bool is_half = t == f16 || t == bf16;
  for (const Tolerance& row : kTolerances)
    if (has_word(row.ops, op.name) && has_word(row.quantities, q.kind))
      return {"", "", is_half ? 4 : row.ulps, row.scale};
  if (q.kind == "jvp" || q.kind == "vjp") return {"", "", is_half ? 4.0 : 16.0, 0};
  return {"", "", op.ulp == 0 ? 0 : is_half ? 1 : op.ulp + 4, 0};
}

bool is_near(double got, double want, DType t, const Tolerance& allowed) {
  if (std::isnan(got) || std::isnan(want)) return std::isnan(got) && std::isnan(want);
  if (got == want) return std::signbit(got) == std::signbit(want) || allowed.ulps > 0;
  if (std::isinf(got) || std::isinf(want)) return false;
  return std::abs(got - want) <= allowed.ulps * ulp(t, std::max(std::abs(want), allowed.scale));
}

// Whether any element of the row's operands is such.
bool holds(const Row& row, bool (*is_such)(double)) {
  for (const ir::Literal& x : row.operands)
    for (std::int64_t i = 0; i < x.size(); ++i)
      if (is_such(x.get(i))) return true;
  return false;
}

// "max" of "cumulative f32[2, 6] {kind=max, dim=[1]}"; none if the row has no such attribute.
std::string word_after(std::string_view attribute, const std::string& text) {
  const std::size_t at = text.find(attribute);
  if (at == std::string::npos) return "";
  const std::size_t begin = at + attribute.size();
  return text.substr(begin, text.find_first_of(",}", begin) - begin);
}

std::string describe(const Point& p) {
  std::string text;
  for (double x : p.operands) text += fmt::format("{} ", x);
  return text + fmt::format("-> {}, JAX: {}", p.got, p.want);
}

}  // namespace

std::span<const Difference> differences() { return kDifferences; }
std::span<const std::int64_t> uses_of_differences() { return uses; }

void check_agrees(const Row& row, const Quantity& quantity, int j, const ir::Literal& got, const ir::Literal& want) {
  REQUIRE(got.type() == want.type());
  const std::string name = row.text.substr(0, row.text.find(' '));
  const ir::OpDef& op = *ir::find_op(name);
  const Tolerance allowed = tolerance(op, quantity, got.dtype());
  for (std::int64_t i = 0; i < got.size(); ++i) {
    if (got.bits(i) == want.bits(i)) continue;
    Point p{.dtype = row.operands.empty() ? got.dtype() : row.operands.back().dtype(),
            .operands = {},
            .combine = word_after("kind=", row.text),
            .nan_in_row = false,
            .infinity_in_row = false,
            .zero_in_row = false,
            .got = got.get(i),
            .want = want.get(i)};
    if (is_float(got.dtype()) && is_near(p.got, p.want, got.dtype(), allowed)) continue;
    p.nan_in_row = holds(row, [](double x) { return std::isnan(x); });
    p.infinity_in_row = holds(row, [](double x) { return std::isinf(x); });
    p.zero_in_row = holds(row, [](double x) { return x == 0; });
    for (const ir::Literal& x : row.operands)
      p.operands.push_back(op.is_elementwise && quantity.kind != "vmap" ? x.get(x.dims().empty() ? 0 : i) : 0);
    CHECK_MESSAGE(is_accepted(name, quantity, p), "result ", j, ", element ", i, ": ", describe(p));
  }
}

}  // namespace sheaf::tests
