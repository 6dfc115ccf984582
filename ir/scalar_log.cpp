// Logarithms. x = 2^e m with m in [sqrt(1/2), sqrt 2), then a series in m - 1 added to e ln 2, small terms first.
// Invariant: log(+-0) = -inf, log of a negative number is NaN, log(+inf) = +inf, and subnormals are scaled up first.
#include <limits>

#include "ir/scalar_expr.h"

namespace sheaf::ir {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// x = 2^exponent * (1 + fraction)
struct Split {
  Expr exponent;  // a float
  Expr fraction;  // in [sqrt(1/2) - 1, sqrt 2 - 1]
};

Split split_at_sqrt_half(Expr x) {
  const bool is_wide = is_f64(x);
  const int mantissa_bits = is_wide ? 52 : 23;
  const Expr is_tiny = x < (is_wide ? 0x1p-1022 : 0x1p-126);
  const Expr bits = to_int_bits(select(is_tiny, x * (is_wide ? 0x1p54 : 0x1p25), x));
  const Expr origin = to_int_bits(x.like(0.70710678118654752));
  const Expr offset = bits - origin;
  const Expr exponent = convert(shr_arith(offset, mantissa_bits), x.dtype());
  const Expr mantissa_mask = offset.like(static_cast<double>((std::int64_t{1} << mantissa_bits) - 1));
  const Expr mantissa = from_int_bits((offset & mantissa_mask) + origin);
  const Expr bias = select(is_tiny, is_wide ? -54.0 : -25.0, x.like(0));
  return {exponent + bias, mantissa - 1.0};
}

// log(1 + f) - f + f^2 / 2 for f in the range of `Split`.
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
  return f * f * f * polynomial(f, {0.07341342, -0.11662587, 0.11632362, -0.123961605, 0.14251374, -0.16669184,
                                    0.2000068, -0.2499998, 0.3333333});
}

// Replaces the value of a logarithm at the edges of its domain.
Expr with_log_edges(Expr x, Expr value) {
  value = select(x < kInf, value, x);  // +inf and NaN
  return select(x > 0.0, value, select(x == 0.0, -kInf, select(x < 0.0, kNaN, x)));
}

}  // namespace

Expr log(Expr x) {
  const Split split = split_at_sqrt_half(x);
  const Expr f = split.fraction, e = split.exponent;
  const double high = is_f64(x) ? 6.93147180369123816490e-01 : 0.693359375;
  const double low = is_f64(x) ? 1.90821492927058770002e-10 : -2.12194440e-4;
  const Expr tail = fma(e, low, log1p_tail(f));
  return with_log_edges(x, fma(e, high, f + fma(f * f, -0.5, tail)));
}

}  // namespace sheaf::ir
