// The error function, its complement and its inverse. Near zero erf is an odd polynomial; in the tail everything goes
// through e^(-x^2), so that erfc keeps its relative accuracy down to the smallest subnormal.
// Invariant: the square in e^(-x^2) carries its rounding error along, or the tail would lose all its digits.
#include <limits>

#include "ir/scalar_expr.h"

namespace sheaf::ir {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// erf x for |x| <= 0.9277.
Expr erf_near_zero(Expr x) {
  const Expr z = x * x;
  const Expr series = is_f64(x)
                          ? polynomial(z, {-8.431685766993557e-10, 1.4031367058061182e-08, -1.6274381466688186e-07,
                                           1.6455319020579469e-06, -1.4925325256336088e-05, 0.00012055323150235606,
                                           -0.0008548326850016841, 0.005223977624127003, -0.026866170645195316,
                                           0.1128379167095692, -0.3761263890318385, 0.1283791670955126})
                          : polynomial(z, {8.312385e-05, -0.00081276195, 0.005199511, -0.026858658, 0.11283678,
                                           -0.37612632, 0.12837917});
  return fma(series, x, x);  // erf'(0) = 1.128...: the 1 is exact
}

// e^(a^2) erfc(a) (1 + 2 a) for a >= 0.47, a smooth function of (a - k) / (a + k).
// After M. M. Shepherd and J. G. Laframboise, "Chebyshev Approximation of (1+2x)exp(x^2)erfc x in 0<=x<inf" (1981).
Expr erfc_scaled(Expr a) {
  const double k = is_f64(a) ? 4 : 2;
  const Expr q = (a - k) / (a + k);
  if (is_f64(a)) {
    return polynomial(
        q, {1.6073942803827625e-09,  -9.750948603460718e-09,  -1.7288957582423656e-08, 1.0352992795991876e-07,
            7.392416046652417e-08,   -8.198311005821521e-07,  2.942398172636926e-07,   5.706706742088975e-06,
            -1.1222183525889137e-05, -2.4398142269395154e-05, 0.00015062170929984746,  -0.00019925694419572243,
            -0.0007577732928282109,  0.005031970015227096,    -0.016197734057568816,   0.037167515534105834,
            -0.06633036581220969,    0.09373283499851853,     -0.10103906603630575,    0.06809705425468882,
            0.015379652102619783,    -0.1396211168405625,     1.2329951186255526});
  }
  return polynomial(q, {-0.00024662557, -0.001254092, 0.0011614976, 0.008651616, -0.008009123, -0.054209735, 0.16404901,
                        -0.16603091, -0.09276377, 1.2769784});
}

// erfc a for a >= 0.47.
Expr erfc_tail(Expr a) {
  const double limit = is_f64(a) ? 28 : 10.5;  // the result is 0 from here on
  a = select(a.like(limit) < a, limit, a);
  const Expr square = a * a;
  const Expr square_tail = fma(a, a, -square);
  const ScaledExp e = scaled_exp(-square, -square_tail);
  return scale_by_power_of_two(erfc_scaled(a) / fma(a, 2.0, 1.0) * e.value, e.n);
}

// erf a for a in [0.9277, inf), in f32: 1 - e^p(a) with p fitted to log erfc.
Expr erf_tail_f32(Expr a) {
  const Expr limited = select(a.like(4) < a, 4.0, a);
  const Expr p = polynomial(
      limited, {-1.1801636e-05, 0.0003284648, -0.0036652668, 0.023809828, -0.10629175, -0.6351185, -0.12865648});
  return 1.0 - exp_to_normal(fma(p, limited, -limited));
}

// The inverse as x p(w) with w = -log(1 - x^2), after M. Giles, "Approximating the erfinv function" (2010).
Expr erf_inv_factor(Expr w) {
  const Expr root = sqrt(w);
  if (!is_f64(w)) {
    const Expr central =
        polynomial(w - 2.5, {3.3509612e-10, -8.772967e-09, 1.8045226e-08, 4.6589668e-07, -3.4346626e-06, -4.9619484e-06,
                             0.00021828276, -0.0012527446, -0.0041773394, 0.2466403, 1.5014094});
    const Expr tail = polynomial(root - 3.0, {0.00012586307, -0.0003169478, -7.196087e-05, 0.0014938359, -0.003589398,
                                              0.0056838556, -0.007638938, 0.009445617, 1.001675, 2.8329768});
    return select(w < 5.0, central, tail);
  }
  const Expr central = polynomial(
      w - 3.125, {3.377734367365843e-21,   -1.0226018794703617e-21, -3.5767708562565144e-19, 1.145136780338766e-18,
                  1.5763311483427308e-17,  -1.3005586447816153e-16, -4.292139434802792e-17,  6.594919705367486e-15,
                  -3.998922626710227e-14,  -8.117187120511429e-14,  2.630351011844645e-12,   -1.297694898108124e-11,
                  -5.4142374922449414e-11, 1.0512183672975468e-09,  -4.112662018616301e-09,  -2.90703827100436e-08,
                  4.2347881914540446e-07,  -1.3654691845135556e-06, -1.3882523395854313e-05, 0.00018673420802430536,
                  -0.0007407025341539279,  -0.0060336708714277655,  0.24015818242558826,     1.6536545626831027});
  const Expr middle = polynomial(
      root - 3.25, {3.2420835878513567e-09, 9.088038526136379e-08, -2.7778257879544867e-07, 1.7939422612412025e-08,
                    1.505496744344578e-06, -4.013567876348986e-06, 2.9218747075938317e-06, 1.2475145792211125e-05,
                    -4.7317707843775836e-05, 6.828489932627908e-05, 2.4031008806465815e-05, -0.00035503752855787466,
                    0.0009532893908568105, -0.0016882755552780453, 0.002491442095498077, -0.003751208507599897,
                    0.0053709145536029405, 1.0052589676941597, 3.0838856104922203});
  const Expr tail = polynomial(
      root - 5.0, {3.2166405871345637e-11, -2.6212304316145268e-11, -3.9206057340473645e-10, 1.5046430597923554e-09,
                   -3.550654634814368e-09, 7.619688649772994e-09, -1.518210328290872e-08, 2.9145305920529287e-08,
                   -6.759412418948506e-08, 2.2900575706865723e-07, -9.9301831935785e-07, 4.526062424051325e-06,
                   -1.9681772387194446e-05, 7.599527704591527e-05, -0.00021503011971472794, -0.0001387193183368679,
                   1.0103004648645433, 4.849906401408584});
  return select(w < 6.25, central, select(w < 16.0, middle, tail));
}

}  // namespace

Expr erf(Expr x) {
  const Expr a = abs(x);
  const Expr tail = is_f64(x) ? 1.0 - erfc_tail(a) : erf_tail_f32(a);
  return copy_sign(select(a < 0.9277, erf_near_zero(a), tail), x);
}

Expr erfc(Expr x) {
  const Expr a = abs(x);
  const Expr tail = erfc_tail(a);
  return select(a < 0.5, 1.0 - erf_near_zero(x), select(x < 0.0, 2.0 - tail, tail));
}

Expr erf_inv(Expr x) {
  const Expr a = abs(x);
  const Expr w = -log_of_normal(fma(-x, x, 1.0));  // at least ulp(1); |x| >= 1 is handled below
  const Expr value = select(a == 1.0, kInf, a * erf_inv_factor(w));
  return copy_sign(select(a <= 1.0, value, kNaN), x);
}

}  // namespace sheaf::ir
