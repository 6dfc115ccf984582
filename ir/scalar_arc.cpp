// Inverse trigonometric functions: each is brought to a short interval around 0, where one polynomial in the square
// serves, and a multiple of pi/4 is added back. Invariant: the added constant carries a second part, so that the sum
// is good to the last bit.
#include <limits>

#include "ir/scalar_expr.h"

namespace sheaf::ir {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

// pi/4 as a sum of two floats.
struct Constant {
  double high, low;
};
Constant quarter_pi(Expr x) {
  if (is_f64(x)) return {0x1.921fb54442d18p-1, 0x1.1a62633145c07p-55};
  return {0x1.921fb6p-1, -0x1.777a5cp-26};
}

// (atan t - t) / t for |t| <= tan(pi/8).
Expr atan_series(Expr t) {
  const Expr z = t * t;
  if (is_f64(t)) {
    return z * polynomial(z, {0.015485553133661487, -0.033779706472767, 0.045176025583888044, -0.05222125030562937,
                              0.05877647086749932, -0.06666296214864703, 0.07692287906151182, -0.09090908395377724,
                              0.11111111095898457, -0.142857142855268, 0.19999999999998921, -0.3333333333333333});
  }
  return z * polynomial(z, {-0.06448882, 0.10742046, -0.14263645, 0.19999519, -0.3333333});
}

// atan(numerator / denominator) of two magnitudes with numerator <= denominator, plus `quarters` pi/4, negated first
// if `is_negated`. The quotient past tan(pi/8) is turned by pi/4.
Expr turned_atan(Expr numerator, Expr denominator, Expr quarters, Expr is_negated) {
  const Expr is_upper = numerator > 0.41421356237309504880 * denominator;
  const Expr top = select(is_upper, numerator - denominator, numerator);
  const Expr bottom = select(is_upper, numerator + denominator, denominator);
  Expr t = top / bottom;
  t = select(is_negated, -t, t);
  const Expr step = select(is_negated, -1.0, t.like(1));
  const Expr turns = select(is_upper, quarters + step, quarters);
  const auto [high, low] = quarter_pi(t);
  const Expr tail = fma(t, atan_series(t), turns * low);
  // turns is 0 .. 4, so its product with `high` needs no second part; the sum is rounded once.
  return fma(turns, high, t + tail);
}

// (asin s - s) / s for s^2 = z <= 1/4.
Expr asin_series(Expr z) {
  if (is_f64(z)) {
    return z * polynomial(z, {0.029157403341427447, -0.015448207978882656, 0.017790629783376026, 0.00531097924593605,
                              0.01035781148933883, 0.011473642274556065, 0.013971799167469821, 0.01735235161704583,
                              0.02237217478674407, 0.03038194408884912, 0.044642857147071426, 0.0749999999999799,
                              0.16666666666666669});
  }
  return z * polynomial(z, {0.03836821, 0.026416512, 0.045022313, 0.074987546, 0.16666673});
}

// asin |x| directly up to 1/2, else through asin |x| = pi/2 - 2 asin sqrt((1 - |x|) / 2).
struct HalfAngle {
  Expr is_small;     // |x| <= 1/2
  Expr s, s_tail;    // |x|, or the root with what it rounded off
  Expr series;       // asin(s) = s + s_tail + s * series
};

HalfAngle half_angle(Expr a) {
  const Expr is_small = a <= 0.5;
  const Expr rest = fma(a, -0.5, 0.5);
  const Expr root = sqrt(rest);
  const Expr root_tail = fma(-root, root, rest) / (root + root);
  const Expr z = select(is_small, a * a, rest);
  const Expr is_exact = (root == 0.0) | is_small;
  return {is_small, select(is_small, a, root), select(is_exact, 0.0, root_tail), asin_series(z)};
}

}  // namespace

Expr atan(Expr x) {
  const Expr a = abs(x);
  const Expr is_steep = a > 1.0;  // atan a = pi/2 - atan(1/a)
  const Expr numerator = select(is_steep, 1.0, a);
  const Expr denominator = select(is_steep, a, 1.0);
  return copy_sign(turned_atan(numerator, denominator, select(is_steep, 2.0, x.like(0)), is_steep), x);
}

Expr atan2(Expr y, Expr x) {
  const Expr a = abs(y), b = abs(x);
  const Expr is_steep = a > b;
  const Expr is_left = to_int_bits(x) < 0.0;  // -0 counts as left
  // Halved, so that their sum is finite; infinities meet as 1 : 1, and 0 : 0 as 0 : 1.
  const Expr both_infinite = (a == kInf) & (b == kInf);
  const Expr smaller = select(is_steep, b, a), larger = select(is_steep, a, b);
  const Expr is_big = larger > (is_f64(x) ? 0x1p1022 : 0x1p126);
  const Expr scale = select(is_big, 0.5, x.like(1));
  const Expr numerator = select(both_infinite, 1.0, smaller * scale);
  const Expr denominator = select(both_infinite | (larger == 0.0), 1.0, larger * scale);
  const Expr quarters = select(is_steep, 2.0, select(is_left, 4.0, x.like(0)));
  const Expr value = turned_atan(numerator, denominator, quarters, is_steep ^ is_left);
  return copy_sign(value, y);
}

Expr asin(Expr x) {
  const auto [is_small, s, s_tail, series] = half_angle(abs(x));
  const Expr small = fma(s, series, s);
  const auto [high, low] = quarter_pi(x);
  // pi/2 - 2 asin s, the large terms last.
  const Expr tail = fma(s, series, s_tail) - low;
  const Expr large = 2.0 * (high - (s + tail));
  return copy_sign(select(is_small, small, large), x);
}

Expr acos(Expr x) {
  const auto [is_small, s, s_tail, series] = half_angle(abs(x));
  const auto [high, low] = quarter_pi(x);
  const Expr is_negative = x < 0.0;
  const Expr tail = fma(s, series, s_tail);
  const Expr signed_s = select(is_negative, -s, s), signed_tail = select(is_negative, -tail, tail);
  // |x| <= 1/2: pi/2 - asin x;  x > 1/2: 2 asin s;  x < -1/2: pi - 2 asin s.
  const Expr near_half_pi = 2.0 * high - (signed_s - (2.0 * low - signed_tail));
  const Expr base = select(is_negative, 2.0 * high, x.like(0)), base_low = select(is_negative, 2.0 * low, x.like(0));
  const Expr at_the_ends = 2.0 * (base + (signed_s + (base_low + signed_tail)));
  return select(is_small, near_half_pi, at_the_ends);
}

}  // namespace sheaf::ir
