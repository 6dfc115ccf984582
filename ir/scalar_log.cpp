// Logarithms. x = 2^e m with m in [sqrt(1/2), sqrt 2), then a series in m - 1 added to e ln 2, small terms first.
// Invariant: log(+-0) = -inf, log of a negative number is NaN, log(+inf) = +inf, and subnormals are scaled up first.
#include <cmath>
#include <limits>

#include "ir/scalar_expr.h"

namespace sheaf::ir {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kLn2 = 0.69314718055994530942;

// e ln 2 + leading + trailing
Expr add_exponent(Expr e, Expr leading, Expr trailing) {
  const auto [high, low] = ln2_parts(e);
  return fma(e, high, leading + fma(e, low, trailing));
}

// log(1 + f) - f + f^2 / 2 for f in the range of `BinarySplit`.
Expr log1p_tail(Expr f) {
  if (is_f64(f)) {
    // log(1 + f) = 2 atanh(s), after fdlibm's e_log.c.
    const Expr s = f / (2.0 + f);
    const Expr z = s * s;
    const Expr series = z * polynomial(z, {1.479819860511658591e-01, 1.531383769920937332e-01, 1.818357216161805012e-01,
                                           2.222219843214978396e-01, 2.857142874366239149e-01, 3.999999999940941908e-01,
                                           6.666666666666735130e-01});
    return s * fma(0.5 * f, f, series);
  }
  return f * f * f *
         polynomial(f, {0.07341342, -0.11662587, 0.11632362, -0.123961605, 0.14251374, -0.16669184, 0.2000068,
                        -0.2499998, 0.3333333});
}

// Replaces the value of a logarithm of `x` at the edges of its domain.
Expr with_log_edges(Expr x, Expr value) {
  value = select(x < kInf, value, x);  // +inf and NaN
  return select(x > 0.0, value, select(x == 0.0, -kInf, select(x < 0.0, kNaN, x)));
}

Expr log_from(BinarySplit parts) {
  const auto [e, f] = parts;
  return add_exponent(e, f, fma(f * f, -0.5, log1p_tail(f)));
}

}  // namespace

BinarySplit split_normal(Expr x) {
  const int mantissa_bits = is_f64(x) ? 52 : 23;
  const Expr origin = to_int_bits(x.like(0.70710678118654752));
  const Expr offset = to_int_bits(x) - origin;
  const Expr exponent = convert(shr_arith(offset, mantissa_bits), x.dtype());
  const Expr mantissa_mask = offset.like_bits((std::uint64_t{1} << mantissa_bits) - 1);
  return {exponent, from_int_bits((offset & mantissa_mask) + origin) - 1.0};
}

BinarySplit split_positive(Expr x) {
  const Expr is_subnormal = x < (is_f64(x) ? 0x1p-1022 : 0x1p-126);
  const double lift = is_f64(x) ? 54 : 25;
  const BinarySplit parts = split_normal(select(is_subnormal, x * std::exp2(lift), x));
  return {parts.exponent - select(is_subnormal, lift, x.like(0)), parts.fraction};
}

Expr log_of_normal(Expr x) { return log_from(split_normal(x)); }

Expr log(Expr x) { return with_log_edges(x, log_from(split_positive(x))); }

Expr log2(Expr x) {
  const auto [e, f] = split_positive(x);
  // f / ln 2 in two parts: only e and the leading product are large.
  const double high = is_f64(x) ? 0x1.71547652b82fep+0 : 0x1.715476p+0;
  const double low = is_f64(x) ? 0x1.777d0ffda0d24p-56 : 0x1.4ae0cp-26;
  const Expr trailing = fma(f * f, -0.5, log1p_tail(f));
  const Expr leading = f * high;
  const Expr leading_tail = fma(f, high, -leading);
  const Expr small = fma(trailing, high, fma(f, low, leading_tail));
  return with_log_edges(x, e + (leading + small));
}

Expr log1p(Expr x) {
  const Expr u = 1.0 + x;
  // What the addition rounded off, relative to u.
  const Expr lost = select(u < 2.0, x - (u - 1.0), 1.0 - (u - x)) / u;
  const BinarySplit parts = split_normal(u);
  // With no exponent, x itself is the fraction, exactly.
  const Expr is_near_zero = parts.exponent == 0.0;
  const Expr f = select(is_near_zero, x, parts.fraction);
  const Expr trailing = fma(f * f, -0.5, log1p_tail(f)) + select(is_near_zero, x.like(0), lost);
  const Expr value = with_log_edges(u, add_exponent(parts.exponent, f, trailing));
  return select(abs(x) < (is_f64(x) ? 0x1p-54 : 0x1p-25), x, value);  // keeps -0 and subnormals
}

Expr asinh(Expr x) {
  const Expr a = abs(x);
  const Expr is_large = a > (is_f64(x) ? 0x1p60 : 0x1p30);  // there asinh a = ln 2a = ln(1 + a) + ln 2
  const Expr z = a * a;
  const Expr value = log1p(select(is_large, a, a + z / (1.0 + sqrt(z + 1.0))));
  return copy_sign(value + select(is_large, kLn2, x.like(0)), x);
}

Expr acosh(Expr x) {
  const Expr is_large = x > (is_f64(x) ? 0x1p60 : 0x1p30);  // there acosh x = ln 2x = ln(1 + x) + ln 2
  const Expr t = x - 1.0;
  const Expr value = log1p(select(is_large, x, t + sqrt(fma(t, t, t + t))));
  return select(x < 1.0, kNaN, value + select(is_large, kLn2, x.like(0)));
}

Expr atanh(Expr x) {
  const Expr a = abs(x);
  const Expr value = 0.5 * log1p((a + a) / (1.0 - a));
  return copy_sign(value, x);
}

}  // namespace sheaf::ir
