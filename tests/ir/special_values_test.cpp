// Every floating unary and binary op at all special points: its value, and its derivative in both modes, against long
// double and the conventions of docs/numerics.md. An op that is in no row here fails the last test.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <numbers>

#include "ir/op.h"
#include "tests/ir/one_op.h"
#include "tests/lap.h"

using namespace sheaf;
using namespace sheaf::ir;

namespace {

using Real = long double;
constexpr Real kLn2 = std::numbers::ln2_v<Real>, kPi = std::numbers::pi_v<Real>;
const Real kTwoOverRootPi = 2 * std::numbers::inv_sqrtpi_v<Real>;

// What an op and its derivatives are. `ulps` is for derivatives, beyond the one rounding that none escapes, and of
// max(|result|, scale); an op's value has the error that its sheet states.
struct Truth {
  const OpDef* op;
  Real (*value)(Real x, Real y);
  Real (*slope_x)(Real x, Real y);
  Real (*slope_y)(Real x, Real y) = nullptr;
  double ulps = 0, scale = 0;
};

Real nothing(Real, Real) { return 0; }
Real one(Real, Real) { return 1; }
Real square(Real x) { return x * x; }

// Exactly: NaN if either is; -0 below +0.
Real larger(Real x, Real y) {
  if (std::isnan(x) || std::isnan(y)) return kNan;
  return x > y || (x == y && !std::signbit(x)) ? x : y;
}
// 1 for the winner, 1/2 for ties, of which a NaN on either side is one.
Real share(Real x, Real y) { return x > y ? 1 : y > x ? 0 : 0.5L; }

Real trigamma(Real x) {
  if (std::isnan(x) || x == -kInf) return kNan;
  if (x < 0.5L) {
    const Real s = std::sin(kPi * (x - std::round(x)));
    return kPi * kPi / (s * s) - trigamma(1 - x);
  }
  Real sum = 0;
  for (; x < 30; x += 1) sum += 1 / (x * x);
  const Real r = 1 / x, r2 = r * r;
  return sum + r + r2 / 2 + r * r2 * (1.0L / 6 - r2 * (1.0L / 30 - r2 * (1.0L / 42 - r2 * (1.0L / 30 - r2 * 5 / 66))));
}

Real function_value(const OpDef& op, Real x, Real y) {
  for (const ScalarFunctionInfo& f : scalar_functions())
    if (f.name == op.name) return f.reference_long(x, y);
  return kNan;
}
// The value of an op of the same name as a scalar function.
template <const OpDef& op>
Real library(Real x, Real y) {
  return function_value(op, x, y);
}

Real pow_slope_x(Real x, Real y) { return y == 0 ? 0 : y * std::pow(x, y - 1); }
Real pow_slope_y(Real x, Real y) { return std::pow(x, y) * std::log(x == 0 ? 1 : x); }
Real quotient(Real x, Real y) { return -std::round((x - std::fmod(x, y)) / y); }
Real over_square(Real a, Real x, Real y) { return x == 0 && y == 0 ? 0 : a / (x * x + y * y); }

const Truth kUnary[] = {
    {&ops::neg, [](Real x, Real) { return -x; }, [](Real, Real) -> Real { return -1; }},
    {&ops::abs, [](Real x, Real) { return std::fabs(x); },
     [](Real x, Real) -> Real { return x > 0   ? 1
                                       : x < 0 ? -1
                                               : x; }},
    {&ops::sign, [](Real x, Real) -> Real { return x > 0   ? 1
                                                   : x < 0 ? -1
                                                           : x; }, nothing},
    {&ops::floor, [](Real x, Real) { return std::floor(x); }, nothing},
    {&ops::ceil, [](Real x, Real) { return std::ceil(x); }, nothing},
    {&ops::round, [](Real x, Real) { return std::nearbyint(x); }, nothing},
    {&ops::stop_gradient, [](Real x, Real) { return x; }, nothing},
    {&ops::sqrt, [](Real x, Real) { return std::sqrt(x); }, [](Real x, Real) { return 0.5L / std::sqrt(x); }, nullptr,
     2},
    {&ops::rsqrt, library<ops::rsqrt>, [](Real x, Real) { return -0.5L / (x * std::sqrt(x)); }, nullptr, 4},
    {&ops::cbrt, library<ops::cbrt>, [](Real x, Real) { return 1 / (3 * square(std::cbrt(x))); }, nullptr, 6},
    {&ops::exp, library<ops::exp>, [](Real x, Real) { return std::exp(x); }, nullptr, 2},
    {&ops::exp2, library<ops::exp2>, [](Real x, Real) { return kLn2 * std::exp2(x); }, nullptr, 4},
    {&ops::expm1, library<ops::expm1>, [](Real x, Real) { return std::exp(x); }, nullptr, 4, 1},
    {&ops::log, library<ops::log>, [](Real x, Real) { return 1 / x; }, nullptr, 2},
    {&ops::log2, library<ops::log2>, [](Real x, Real) { return 1 / (x * kLn2); }, nullptr, 4},
    {&ops::log1p, library<ops::log1p>, [](Real x, Real) { return 1 / (1 + x); }, nullptr, 2},
    {&ops::sin, library<ops::sin>, [](Real x, Real) { return std::cos(x); }, nullptr, 2},
    {&ops::cos, library<ops::cos>, [](Real x, Real) { return -std::sin(x); }, nullptr, 2},
    {&ops::tan, library<ops::tan>, [](Real x, Real) { return 1 + square(std::tan(x)); }, nullptr, 8},
    {&ops::asin, library<ops::asin>, [](Real x, Real) { return 1 / std::sqrt((1 - x) * (1 + x)); }, nullptr, 4},
    {&ops::acos, library<ops::acos>, [](Real x, Real) { return -1 / std::sqrt((1 - x) * (1 + x)); }, nullptr, 4},
    {&ops::atan, library<ops::atan>, [](Real x, Real) { return 1 / (1 + x * x); }, nullptr, 4},
    {&ops::sinh, library<ops::sinh>, [](Real x, Real) { return std::cosh(x); }, nullptr, 4},
    {&ops::cosh, library<ops::cosh>, [](Real x, Real) { return std::sinh(x); }, nullptr, 4},
    {&ops::tanh, library<ops::tanh>, [](Real x, Real) { return 1 / square(std::cosh(x)); }, nullptr, 6, 1},
    {&ops::asinh, library<ops::asinh>, [](Real x, Real) { return 1 / std::hypot(x, 1.0L); }, nullptr, 4},
    {&ops::acosh, library<ops::acosh>, [](Real x, Real) { return 1 / (std::sqrt(x - 1) * std::sqrt(x + 1)); }, nullptr,
     6},
    {&ops::atanh, library<ops::atanh>, [](Real x, Real) { return 1 / ((1 + x) * (1 - x)); }, nullptr, 4},
    {&ops::logistic, library<ops::logistic>,
     [](Real x, Real) { return std::isinf(x) ? 0 : 1 / (2 + std::exp(x) + std::exp(-x)); }, nullptr, 6, 1},
    {&ops::erf, library<ops::erf>, [](Real x, Real) { return kTwoOverRootPi * std::exp(-x * x); }, nullptr, 4, 1},
    {&ops::erfc, library<ops::erfc>, [](Real x, Real) { return -kTwoOverRootPi * std::exp(-x * x); }, nullptr, 4, 1},
    {&ops::erf_inv, library<ops::erf_inv>,
     [](Real x, Real) { return std::exp(square(function_value(ops::erf_inv, x, 0))) / kTwoOverRootPi; }, nullptr, 256},
    {&ops::lgamma, library<ops::lgamma>, library<ops::digamma>, nullptr, 16, 1},
    {&ops::digamma, library<ops::digamma>, [](Real x, Real) { return trigamma(x); }, nullptr, 16, 1},
};

const Truth kBinary[] = {
    {&ops::add, [](Real x, Real y) { return x + y; }, one, one},
    {&ops::sub, [](Real x, Real y) { return x - y; }, one, [](Real, Real) -> Real { return -1; }},
    {&ops::mul, [](Real x, Real y) { return x * y; }, [](Real, Real y) { return y; }, [](Real x, Real) { return x; }},
    {&ops::div, [](Real x, Real y) { return x / y; }, [](Real, Real y) { return 1 / y; },
     [](Real x, Real y) { return -(x / y / y); }, 2},
    {&ops::rem, [](Real x, Real y) { return std::fmod(x, y); }, one, quotient, 2},
    {&ops::max, larger, share, [](Real x, Real y) { return share(y, x); }},
    {&ops::min, [](Real x, Real y) { return -larger(-x, -y); }, [](Real x, Real y) { return share(y, x); }, share},
    {&ops::pow, library<ops::pow>, pow_slope_x, pow_slope_y, 24},  // y - 1 rounds, and x^y amplifies it by log x
    {&ops::atan2, library<ops::atan2>, [](Real y, Real x) { return over_square(x, x, y); },
     [](Real y, Real x) { return over_square(-y, x, y); }, 8},
};

// Ops whose result is a bool, which has no derivative.
struct Claim {
  const OpDef* op;
  bool (*holds)(double x, double y);
};
const Claim kClaims[] = {
    {&ops::is_finite, [](double x, double) { return std::isfinite(x); }},
    {&ops::eq, [](double x, double y) { return x == y; }},
    {&ops::ne, [](double x, double y) { return !(x == y); }},
    {&ops::lt, [](double x, double y) { return x < y; }},
    {&ops::le, [](double x, double y) { return x <= y; }},
    {&ops::gt, [](double x, double y) { return x > y; }},
    {&ops::ge, [](double x, double y) { return x >= y; }},
};

struct Format {
  int digits, lowest_exponent;
  double largest;
};
Format format(DType t) {
  switch (t) {
    case DType::f16: return {11, -24, 65504};
    case DType::bf16: return {8, -133, 0x1.fep127};
    case DType::f32: return {24, -149, std::numeric_limits<float>::max()};
    default: return {53, -1074, std::numeric_limits<double>::max()};
  }
}

// Both zeros, ordinary numbers, the ends of the format, infinities and NaN.
std::vector<double> points(DType t) {
  const Format f = format(t);
  const double subnormal = std::ldexp(1, f.lowest_exponent), normal = std::ldexp(1, f.lowest_exponent + f.digits - 1);
  const double epsilon = std::ldexp(1, 1 - f.digits);
  std::vector<double> p;
  for (double x : {0.0,
                   0.5,
                   1.0,
                   1.5,
                   2.0,
                   2.5,
                   3.0,
                   0.1,
                   0.75,
                   1e-3,
                   7.25,
                   20.0,
                   90.0,
                   300.0,
                   3e4,
                   f.largest,
                   normal,
                   subnormal,
                   normal - subnormal,
                   1 + epsilon,
                   1 - epsilon / 2,
                   kInf})
    for (double s : {1.0, -1.0}) p.push_back(from_bits(t, to_bits(t, s * x)));
  p.push_back(kNan);
  return p;
}

// All pairs of fewer points.
Literals grid(DType t) {
  const Format f = format(t);
  const double normal = std::ldexp(1, f.lowest_exponent + f.digits - 1);
  const double few[] = {0.0, -0.0, 1, -1, 2.5, -3, 0.5, 300, 1e-3, kInf, -kInf, kNan, f.largest, normal};
  std::vector<double> x, y;
  for (double a : few)
    for (double b : few) x.push_back(a), y.push_back(b);
  return {vec(t, x), vec(t, y)};
}

bool is_near(double got, Real exact, DType t, double ulps, double scale) {
  const Format f = format(t);
  if (std::isnan(exact)) return std::isnan(got);
  if (exact == 0) return got == 0 || std::abs(got) <= ulps * scale * std::ldexp(1, 1 - f.digits);
  if (std::isnan(got)) return false;
  const Real limit = std::ldexp(1.0L, std::ilogb(f.largest) + 1);  // what infinity stands for
  const Real g = std::clamp<Real>(got, -limit, limit), e = std::clamp<Real>(exact, -limit, limit);
  int exponent = 0;
  std::frexp(std::max<Real>(std::min<Real>(std::fabs(e), f.largest), scale), &exponent);
  return std::fabs(g - e) <= ulps * std::ldexp(1.0L, std::max(exponent - f.digits, f.lowest_exponent));
}

Real at(const Literal& x, std::int64_t i) { return x.get(i); }

void check_value(const Truth& s, const Literals& in, const Literal& got, std::string_view how) {
  const DType t = in[0].dtype();
  double ulps = s.op->ulp, scale = 0;
  for (const ScalarFunctionInfo& f : scalar_functions())
    if (f.name == s.op->name) ulps = t == f64 ? f.max_ulp_f64 : f.max_ulp_f32, scale = f.scale;
  for (std::int64_t i = 0; i < got.size(); ++i) {
    const Real x = at(in[0], i), y = in.size() > 1 ? at(in[1], i) : 0, want = s.value(x, y);
    const double rounded = from_bits(t, to_bits(t, static_cast<double>(want)));
    // Not compared with `rounded`: long double has rounded once already.
    const bool is_right = is_near(got.get(i), want, t, ulps + 0.501, scale) &&
                          (want != 0 || scale > 0 || std::signbit(got.get(i)) == std::signbit(want));
    CHECK_MESSAGE(is_right, fmt::format("{} {}({}, {}) by {}: {} for {}", s.op->name, name(t), static_cast<double>(x),
                                        static_cast<double>(y), how, got.get(i), rounded));
  }
}

void check_slope(const Truth& s, const Literals& in, int k) {
  const DType t = in[0].dtype();
  const std::vector<double> got = derivative(*s.op, in, k);
  const double ulps = s.ulps + (t == f16 || t == bf16 ? 2 : 0.51);
  for (std::int64_t i = 0; i < in[0].size(); ++i) {
    const Real x = at(in[0], i), y = in.size() > 1 ? at(in[1], i) : 0;
    const Real want = (k == 0 ? s.slope_x : s.slope_y)(x, y);
    if (std::isnan(s.value(x, y)) && !std::isnan(x) && !std::isnan(y)) continue;  // outside the domain
    CHECK_MESSAGE(is_near(got[i], want, t, ulps, s.scale),
                  fmt::format("d{} / d{} of {} at ({}, {}): {} for {}", s.op->name, k, name(t), static_cast<double>(x),
                              static_cast<double>(y), got[i], static_cast<double>(want)));
  }
}

void check(const Truth& s, const Literals& in) {
  const FunctionRef f = one_op(*s.op, in);
  check_value(s, in, eval(*f, in)[0], "the reference");
  check_value(s, in, tests::run(f, in, runtime::Tier::interpreted)[0], "kernels");
  for (int k = 0; k < static_cast<int>(in.size()); ++k) check_slope(s, in, k);
}

void check(const Claim& c, const Literals& in) {
  const FunctionRef f = one_op(*c.op, in);
  for (const Literal& got : {eval(*f, in)[0], tests::run(f, in, runtime::Tier::interpreted)[0]}) {
    for (std::int64_t i = 0; i < got.size(); ++i) {
      const double x = in[0].get(i), y = in.size() > 1 ? in[1].get(i) : 0;
      CHECK_MESSAGE((got.bits(i) != 0) == c.holds(x, y),
                    fmt::format("{} {}({}, {})", c.op->name, name(in[0].dtype()), x, y));
    }
  }
}

template <class Table>
bool has_row(const Table& table, Op op) {
  return std::any_of(std::begin(table), std::end(table), [&](const auto& row) { return row.op == op; });
}

}  // namespace

TEST_CASE("every unary op has the value and the derivative of calculus, or the documented one, at all special points") {
  for (const Truth& s : kUnary)
    for (DType t : {f32, f64, f16, bf16}) check(s, {vec(t, points(t))});
}

TEST_CASE("every binary op has the value and the derivatives of calculus, or the documented ones, at pairs of them") {
  for (const Truth& s : kBinary)
    for (DType t : {f32, f64, f16, bf16}) check(s, grid(t));
}

TEST_CASE("every comparison and test of floats is right at all special points and pairs of them") {
  for (const Claim& c : kClaims)
    for (DType t : {f32, f64, f16, bf16}) check(c, c.op->arity == 1 ? Literals{vec(t, points(t))} : grid(t));
}

// Conversions have attributes, and tables of their own in ops_eval_test.cpp.
TEST_CASE("no unary or binary op that takes floats is without a row in this matrix") {
  for (Op op : all_ops()) {
    if (!op->is_elementwise || op->arity > 2 || !contains(op->types, f32) || op->attrs.make) continue;
    if (!op->lower) continue;  // complex, real, imag: tests/ir/complex_test.cpp
    CHECK_MESSAGE((has_row(kUnary, op) || has_row(kBinary, op) || has_row(kClaims, op)), std::string(op->name));
    if (op->no_jvp != Absent::integer_result) CHECK_FALSE(has_row(kClaims, op));
  }
}
