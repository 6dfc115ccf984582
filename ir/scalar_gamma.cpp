// log |Gamma| and its derivative digamma. Both use: a polynomial on an interval of length 1, the recurrence
// Gamma(x + 1) = x Gamma(x) to get there from (-1/2, x0), an asymptotic series from x0 on, and the reflection formula
// below -1/2. Invariant: the factor that vanishes at a zero of the function (x - 1, x - 2; the root of digamma) is
// taken out exactly, so relative accuracy holds near the zeros for x > 0; near the zeros at negative x only absolute
// accuracy does.
#include <limits>

#include "ir/scalar_expr.h"

namespace sheaf::ir {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kPi = 3.14159265358979323846;

// sin and cos of pi x, up to their common sign, for x >= 0.
struct SinCos {
  Expr sin, cos;
};

SinCos sin_cos_of_pi_times(Expr x) {
  // x = an integer + half / 2 + r with |r| <= 1/4, exactly.
  const Expr rest = x - round_even(x);
  const Expr half = round_even(rest + rest);
  const Expr r = fma(half, -0.5, rest);
  const Expr is_odd = half != 0.0;
  const Expr z = r * r;
  const Expr s =
      r * polynomial(z, {-2.1716448358180037e-05, 0.00046628252560607, -0.007370429867581768, 0.08214588657934288,
                         -0.5992645293202826, 2.5501640398773415, -5.16771278004997, kPi});
  const Expr c = polynomial(z, {-0.00010355433993723847, 0.0019294628913039474, -0.025806885409473436,
                                0.23533063018058212, -1.3352627688516934, 4.058712126416745, -4.934802200544679, 1.0});
  return {select(is_odd, c, s), select(is_odd, -s, c)};
}

// log Gamma(2 + t) for |t| <= 1/2.
Expr lgamma_near_two(Expr t) {
  return t *
         polynomial(t, {-1.4328476799014248e-07, 2.7848901643471084e-07, -4.2005568594800693e-07, 9.203206244224693e-07,
                        -2.0497478868957097e-06, 4.384587099274819e-06, -9.437238489140582e-06, 2.0505618014637388e-05,
                        -4.4926530854473176e-05, 9.945766995098403e-05, -0.00022315473519061012, 0.0005096695156823253,
                        -0.0011927539127571656, 0.002890510331023486, -0.007385551028649739, 0.020580808427780574,
                        -0.06735230105319831, 0.32246703342411326, 0.42278433509846713});
}

// log |Gamma(x)| for x > -1/2, x != 0.
Expr lgamma_right(Expr x) {
  constexpr double kLarge = 6.5;
  // t = x + count - 2 lies in [-1/2, 1/2]; `product` has the factors between x and there.
  const Expr is_below_half = x < 0.5, is_below_two = x < 1.5;
  Expr t = select(is_below_two, select(is_below_half, x, x - 1.0), x - 2.0);
  Expr product = select(is_below_two, select(is_below_half, x * (x + 1.0), x), 1.0);
  for (int j = 1; j <= 4; ++j) {
    const Expr is_past = x >= j + 1.5;
    product = select(is_past, product * (x - double(j)), product);
    t = select(is_past, x - double(j + 2), t);
  }
  const Expr is_large = x >= kLarge;
  const Expr log_term = log(select(is_large, x, abs(product)));
  const Expr near = lgamma_near_two(t) + select(is_below_two, -log_term, log_term);

  const Expr w = 1.0 / x;
  const Expr series = w * polynomial(w * w, {-0.017814257324455008, 0.006015729538629215, -0.0019101479552990621,
                                             0.00084167234783611, -0.0005952376361199152, 0.0007936507923236236,
                                             -0.0027777777777763116, 0.08333333333333333});
  // (x - 1/2) (log x - 1) + (log(2 pi) - 1) / 2 + ...
  const Expr far = fma(x - 0.5, log_term - 1.0, 0.41893853320467274178 + series);
  return select(is_large, far, near);
}

Expr lgamma_f64(Expr x) {
  const Expr a = abs(x);
  const Expr is_reflected = x <= -0.5;
  const Expr right = lgamma_right(select(is_reflected, a, x));
  // Gamma(-a) Gamma(a) = -pi / (a sin(pi a)), with poles at the integers.
  const Expr sine = abs(sin_cos_of_pi_times(a).sin);
  const Expr reflected = select(sine == 0.0, kInf, log(kPi / (a * sine)) - right);
  const Expr value = select(is_reflected, reflected, right);
  return select(a < kInf, select(x == 0.0, kInf, value), abs(x));  // also NaN
}

// digamma(1.5 + t) for |t| <= 1/2: its only zero there is divided out of the polynomial.
Expr digamma_near_root(Expr t) {
  const Expr from_root = (t - (0x1.762d86356be3fp+0 - 1.5)) - 0x1.b86a722197829p-54;
  return from_root *
         polynomial(t, {0.00012117074950983246, -0.00017834985270857916, 9.32997941309136e-05,  -0.00014463477455904108,
                        0.0003258771957600899,  -0.0004860467787793845,  0.0006902836207715892, -0.0010364281980067087,
                        0.0015635030246950346,  -0.0023455005719212056,  0.003518088764711913,  -0.0052799365465260005,
                        0.007927023321430028,   -0.01190822015996442,    0.01790724823594765,   -0.026975796657315438,
                        0.04076083394337775,    -0.061922133275550455,   0.09498872445285002,   -0.1484049230538802,
                        0.24054248424078722,    -0.4236274212814606,     0.9510558760318328});
}

// digamma(x) for x > -1/2.
Expr digamma_right(Expr x) {
  constexpr double kLarge = 7;
  const Expr is_below_one = x < 1.0, is_below_zero = x < 0.0;
  // digamma(y + 1) = digamma(y) + 1/y; the sum of reciprocals is kept as one quotient.
  Expr t = select(is_below_one, select(is_below_zero, x + 0.5, x - 0.5), x - 1.5);
  Expr numerator = select(is_below_one, select(is_below_zero, fma(x, -2.0, -1.0), x.like(-1)), 0.0);
  Expr denominator = select(is_below_one, select(is_below_zero, x * (x + 1.0), x), 1.0);
  for (int j = 1; j <= 5; ++j) {
    const Expr is_past = x >= j + 1.0;
    const Expr y = x - double(j);
    numerator = select(is_past, fma(numerator, y, denominator), numerator);
    denominator = select(is_past, denominator * y, denominator);
    t = select(is_past, x - (j + 1.5), t);
  }
  const Expr near = digamma_near_root(t) + numerator / denominator;

  const Expr w = 1.0 / x;
  const Expr z = w * w;
  const Expr series =
      z * polynomial(z, {-0.26941207246602605, 0.07827490621981695, -0.021011067007893826, 0.007575007120424162,
                         -0.004166662879041458, 0.003968253958807998, -0.008333333333324332, 0.08333333333333333});
  const Expr far = log(x) - fma(w, 0.5, series);
  return select(x >= kLarge, far, near);
}

Expr digamma_f64(Expr x) {
  const Expr a = abs(x);
  const Expr is_reflected = x <= -0.5;
  const Expr right = digamma_right(select(is_reflected, a, x));
  // digamma(-a) = digamma(a) + 1/a + pi cot(pi a)
  const SinCos pi_a = sin_cos_of_pi_times(a);
  const Expr reflected = right + (1.0 / a + kPi * pi_a.cos / pi_a.sin);
  const Expr value = select(is_reflected, select(pi_a.sin == 0.0, kNaN, reflected), right);
  return select(x == 0.0, -1.0 / x, select(x > -kInf, value, kNaN));  // the pole at 0 has the sign of its side
}

}  // namespace

Expr lgamma(Expr x) { return is_f64(x) ? lgamma_f64(x) : through_f64(x, lgamma_f64); }
Expr digamma(Expr x) { return is_f64(x) ? digamma_f64(x) : through_f64(x, digamma_f64); }

}  // namespace sheaf::ir
