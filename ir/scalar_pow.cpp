// Powers and roots. pow is e^(y log x) with the logarithm in more precision than the result: in f64 for f32, as a sum
// of two floats for f64. Invariant: the special cases are C's (pow(x, 0) = pow(1, y) = 1 even for NaN).
#include <limits>

#include "ir/scalar_expr.h"

namespace sheaf::ir {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// A number as an unevaluated sum, |low| at most half an ulp of high.
struct Sum {
  Expr high, low;
};

// a + b exactly, for |a| >= |b| or a = 0.
Sum exact_sum(Expr a, Expr b) {
  const Expr high = a + b;
  return {high, (a - high) + b};
}

// x^y for positive finite x that came from f32, both in f64; |log2| of the result is limited to 200.
Expr pow_magnitude_f32(Expr x, Expr y) {
  const auto [e, f] = split_normal(x);
  const Expr s = f / (2.0 + f);
  const Expr z = s * s;
  // log2(1 + f) = 2 atanh(s) / ln 2
  const Expr series = polynomial(z, {0.23992663040082934, 0.26169925417052065, 0.3206083298394781, 0.41219851727783924,
                                     0.5770780165234236, 0.9617966939259063});
  const Expr log2_x = fma(s, fma(z, series, 2.8853900817779268147), e);
  const Expr power = clamp(y * log2_x, -200, 200);
  const Expr shifted = power + 0x1.8p52;  // rounds to an integer and leaves it in the low bits
  const Expr r = power - (shifted - 0x1.8p52);
  const Expr scale = from_int_bits((to_int_bits(shifted) << 52) + to_int_bits(x.like(1)));
  return scale *
         polynomial(r, {1.5316719125878197e-05, 0.00015469997237347078, 0.0013333421548880461, 0.009618024772557205,
                        0.055504109774426595, 0.24022651219833455, 0.6931471805346211, 0.9999999999588975});
}

// log x for positive finite f64, to about 2^-68 relative.
Sum log_extended(Expr x) {
  const auto [e, f] = split_positive(x);

  // s = f / (2 + f) as a sum; the denominator needs one too.
  const Expr bottom = 2.0 + f;
  const Expr bottom_low = f - (bottom - 2.0);
  const Expr reciprocal = 1.0 / bottom;
  const Expr s = f * reciprocal;
  const Expr s_low = fma(-s, bottom_low, fma(-s, bottom, f)) * reciprocal;

  // log(1 + f) = 2 s + 2/3 s^3 + s^5 P(s^2): the cube as a sum, the rest is small enough.
  const Expr z = s * s;
  const Expr z_low = fma(2.0 * s, s_low, fma(s, s, -z));
  const Expr cube = z * s;
  const Expr cube_low = fma(z_low, s, fma(z, s_low, fma(z, s, -cube)));
  const double two_thirds = 0x1.5555555555555p-1, two_thirds_low = 0x1.5555555555555p-55;
  const Expr third = cube * two_thirds;
  const Expr third_low = fma(cube_low, two_thirds, fma(cube, two_thirds_low, fma(cube, two_thirds, -third)));
  const Expr rest =
      cube * z *
      polynomial(z, {0.2526958659735587, 0.08631341068596692, 0.1186134752689275, 0.13330698153493012,
                     0.15384656437062466, 0.1818181781843516, 0.22222222223929616, 0.28571428571424967, 0.4});

  // ln 2 with its first part short, so that e times it is exact.
  const Sum with_exponent = exact_sum(e * 0x1.62e42fefa38p-1, s + s);
  const Sum with_cube = exact_sum(with_exponent.high, third);
  const Expr low = fma(s_low, 2.0, third_low + rest) + (with_exponent.low + with_cube.low);
  return exact_sum(with_cube.high, fma(e, 0x1.ef35793c7673p-45, low));
}

Expr pow_magnitude_f64(Expr x, Expr y) {
  const Sum log_x = log_extended(x);
  const Expr product = y * log_x.high;
  const Expr limited = clamp(product, -800, 800);
  // Where the limit applies the tail may be inf - inf, and must not matter.
  const Expr tail = select(limited == product, fma(y, log_x.low, fma(y, log_x.high, -product)), 0.0);
  const ScaledExp e = scaled_exp(limited, tail);
  return scale_by_power_of_two(e.value, e.n);
}

}  // namespace

Expr pow(Expr x, Expr y) {
  const Expr a = abs(x);
  // Special magnitudes enter as 1 and are put right below.
  const Expr is_ordinary = (a > 0.0) & (a < kInf);
  const Expr base = select(is_ordinary, a, 1.0);
  Expr magnitude = is_f64(x)
                       ? pow_magnitude_f64(base, y)
                       : convert(pow_magnitude_f32(convert(base, DType::f64), convert(y, DType::f64)), DType::f32);
  const Expr grows = (a > 1.0) ^ (y < 0.0);  // 0 and inf to the power y give inf, else 0
  magnitude = select(is_ordinary, magnitude, select(grows, kInf, x.like(0)));
  magnitude = select(a == 1.0, 1.0, magnitude);  // also to an infinite power

  const Expr half_y = y * 0.5;
  const Expr is_integer = trunc(y) == y;
  const Expr is_odd = is_integer & (trunc(half_y) != half_y);
  const Expr is_negative = to_int_bits(x) < 0.0;
  Expr value = select(is_negative & is_odd, -magnitude, magnitude);
  value = select((x < 0.0) & !is_integer & (a < kInf), kNaN, value);
  value = select((x != x) | (y != y), kNaN, value);
  return select((x == 1.0) | (y == 0.0), 1.0, value);
}

// After FreeBSD's s_cbrt.c: a guess from the exponent divided by 3, a polynomial, and one step of Halley's method from
// a value short enough that its square is exact.
Expr cbrt(Expr x) {
  const bool is_wide = is_f64(x);
  const Expr magnitude = abs(x);
  const Expr is_subnormal = magnitude < (is_wide ? 0x1p-1022 : 0x1p-126);
  const Expr a = select(is_subnormal, magnitude * (is_wide ? 0x1p54 : 0x1p24), magnitude);

  const Expr word = is_wide ? convert(shr_logical(bitcast(a, DType::u64), 32), DType::u32) : bitcast(a, DType::u32);
  const Expr third = shr_logical(emit(ScalarOp::mul_hi, word, word.like(0xaaaaaaab)), 1);
  const Expr guess_word = third + third.like(is_wide ? 715094163 : 709958130);
  const Expr guess =
      is_wide ? bitcast(convert(guess_word, DType::u64) << 32, DType::f64) : bitcast(guess_word, DType::f32);

  const Expr r = guess * guess * (guess / a);
  const Expr better = guess * polynomial(r, {0.145996192886612446982, -0.758397934778766047437, 1.621429720105354466140,
                                             -1.88497979543377169875, 1.87595182427177009643});
  const Expr bits = to_int_bits(better);
  const double half_unit = is_wide ? 0x1p29 : 0x1p11;  // of the bits to drop
  const Expr t = from_int_bits((bits + half_unit) & !bits.like(2 * half_unit - 1));
  const Expr quotient = a / (t * t);
  const Expr root = fma(t, (quotient - t) / (t + t + quotient), t);
  const Expr scaled = root * select(is_subnormal, is_wide ? 0x1p-18 : 0x1p-8, x.like(1));
  return copy_sign(select((magnitude > 0.0) & (magnitude < kInf), scaled, magnitude), x);
}

Expr rsqrt(Expr x) { return 1.0 / sqrt(x); }

}  // namespace sheaf::ir
