// exp and its kin. All reduce to x = n ln 2 + r with |r| <= ln 2 / 2 and one polynomial in r; 2^n is assembled from
// bits, in two factors, so that results below the normal range are rounded once and none overflows early. Invariant:
// NaN passes through every reduction unharmed, so no function here tests for it.
#include "ir/scalar_expr.h"

namespace sheaf::ir {
namespace {

// x = n ln 2 + r.
struct Reduced {
  Expr n;       // an integer of x's width
  Expr real_n;  // the same as a float
  Expr r;
};

// Rounds `t` to an integer by adding 1.5 * 2^mantissa_bits, whose low bits then hold it: cheaper than a conversion,
// which would have to saturate. Valid for |t| < 2^(mantissa_bits - 1); anything goes for NaN.
Reduced round_scaled(Expr x, double scale) {
  const double magic = is_f64(x) ? 0x1.8p52 : 0x1.8p23;
  const Expr shifted = fma(x, scale, magic);
  const Expr n = to_int_bits(shifted) - to_int_bits(x.like(magic));
  return {n, shifted - magic, x};
}

Reduced reduce_by_ln2(Expr x) {
  const auto [high, low] = ln2_parts(x);
  Reduced reduced = round_scaled(x, 1.4426950408889634074);
  reduced.r = fma(reduced.real_n, -low, fma(reduced.real_n, -high, x));
  return reduced;
}

// (e^r - 1 - r) / r^2 for |r| <= ln 2 / 2.
Expr exp_tail(Expr r) {
  if (is_f64(r)) {
    return polynomial(r, {2.092035009773025e-09, 2.5105415038678484e-08, 2.75572570054647e-07, 2.7557254814754507e-06,
                          2.480158734242227e-05, 0.00019841269875417748, 0.0013888888888876985, 0.008333333333325895,
                          0.04166666666666668, 0.1666666666666667, 0.5});
  }
  return polynomial(r, {0.00019972328, 0.0013930502, 0.008333177, 0.04166651, 0.16666667, 0.5});
}

Expr expm1_reduced(Expr r) { return fma(exp_tail(r), r * r, r); }

// 2^n for n in the normal exponent range.
Expr power_of_two(Expr n) {
  const bool is_wide = n.dtype() == DType::i64;
  return from_int_bits((n + (is_wide ? 1023 : 127)) << (is_wide ? 52 : 23));
}

// e^a / 2 for a >= 0, finite where e^a already overflows.
Expr half_exp(Expr a) {
  const Reduced reduced = reduce_by_ln2(clamp(a, 0, is_f64(a) ? 711 : 90));
  return scale_by_power_of_two(1.0 + expm1_reduced(reduced.r), reduced.n - reduced.n.like(1));
}

// (sinh x - x) / x^3 for |x| <= 1, in z = x^2.
Expr sinh_series(Expr z) {
  if (is_f64(z)) {
    return polynomial(z, {1.2248127024625495e-14, 7.290440704705655e-13, 1.6064445059623238e-10, 2.5052066722372712e-08,
                          2.75573193961257e-06, 0.00019841269840904682, 0.008333333333333675, 0.16666666666666666});
  }
  return polynomial(z, {2.7616586e-06, 0.00019846034, 0.008333299, 0.16666667});
}

}  // namespace

Expr scale_by_power_of_two(Expr x, Expr n) {
  const Expr half = shr_arith(n, 1);
  return x * power_of_two(half) * power_of_two(n - half);
}

ScaledExp scaled_exp(Expr x, Expr tail) {
  const auto [high, low] = ln2_parts(x);
  const Reduced reduced = round_scaled(x, 1.4426950408889634074);
  const Expr leading = fma(reduced.real_n, -high, x);
  const Expr trailing = fma(reduced.real_n, -low, tail);
  const Expr r = leading + trailing;
  const Expr lost = (leading - r) + trailing;
  return {1.0 + (r + fma(exp_tail(r), r * r, lost)), reduced.n};
}

Expr exp_to_normal(Expr x) {
  const Reduced reduced = reduce_by_ln2(x);
  return (1.0 + expm1_reduced(reduced.r)) * power_of_two(reduced.n);
}

Expr exp(Expr x) {
  x = is_f64(x) ? clamp(x, -746, 710) : clamp(x, -104, 89);  // beyond these the result is 0 or inf
  const Reduced reduced = reduce_by_ln2(x);
  return scale_by_power_of_two(1.0 + expm1_reduced(reduced.r), reduced.n);
}

Expr exp2(Expr x) {
  x = is_f64(x) ? clamp(x, -1080, 1025) : clamp(x, -152, 129);
  const Reduced reduced = round_scaled(x, 1);
  const Expr r = (x - reduced.real_n) * 0.69314718055994530942;  // exact before the product
  return scale_by_power_of_two(1.0 + expm1_reduced(r), reduced.n);
}

Expr expm1(Expr x) {
  const Expr limited = is_f64(x) ? clamp(x, -40, 710) : clamp(x, -20, 89);  // beyond these the result is -1 or inf
  const Reduced reduced = reduce_by_ln2(limited);
  // Half the result first: 2^n itself may overflow where the result does not.
  const Expr scale = power_of_two(reduced.n - reduced.n.like(1));
  const Expr half = fma(scale, expm1_reduced(reduced.r), scale - 0.5);
  return select(abs(x) < (is_f64(x) ? 0x1p-55 : 0x1p-26), x, half + half);  // keeps -0 and subnormals
}

Expr sinh(Expr x) {
  const Expr a = abs(x);
  const Expr e = half_exp(a);
  const Expr z = a * a;
  const Expr near_zero = fma(z * a, sinh_series(z), a);
  return copy_sign(select(a < 1.0, near_zero, e - 0.25 / e), x);
}

Expr cosh(Expr x) {
  const Expr e = half_exp(abs(x));
  return e + 0.25 / e;
}

Expr tanh(Expr x) {
  const Expr magnitude = abs(x);
  const double limit = is_f64(x) ? 20 : 10;  // past it tanh rounds to 1
  const Expr a = select(magnitude.like(limit) < magnitude, limit, magnitude);
  const Reduced reduced = reduce_by_ln2(a + a);
  const Expr scale = power_of_two(reduced.n);
  const Expr expm1 = fma(scale, expm1_reduced(reduced.r), scale - 1.0);
  return copy_sign(expm1 / (expm1 + 2.0), x);
}

Expr logistic(Expr x) {
  // e^-|x| cannot overflow, so that the result for a very negative x is the tiny e^x and not 0.
  const Expr e = exp(-abs(x));
  return select(x < 0.0, e, 1.0) / (1.0 + e);
}

}  // namespace sheaf::ir
