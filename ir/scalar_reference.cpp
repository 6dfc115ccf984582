#include "ir/scalar_reference.h"

#include <cmath>
#include <limits>

namespace sheaf::ir {
namespace {

constexpr long double kInf = std::numeric_limits<long double>::infinity();
constexpr long double kNaN = std::numeric_limits<long double>::quiet_NaN();
constexpr long double kPi = 3.14159265358979323846264338328L;
constexpr long double kTwoOverRootPi = 1.12837916709551257389616L;

}  // namespace

long double logistic_reference(long double x) { return 1 / (1 + std::exp(-x)); }

long double rsqrt_reference(long double x) { return 1 / std::sqrt(x); }

long double erf_inv_reference(long double x) {
  const long double a = std::fabs(x);
  if (!(a < 1)) return a == 1 ? std::copysign(kInf, x) : kNaN;
  // Newton's method: on erf near zero; else on log erfc, which is nearly quadratic, from an asymptotic guess.
  const bool is_central = a < 0.5L;
  long double y = is_central ? a * 0.886L : 0.9L * std::sqrt(-std::log((1 - a) * (1 + a)));
  for (int i = 0; i < 60; ++i) {
    const long double slope = kTwoOverRootPi * std::exp(-y * y);
    const long double complement = std::erfc(y);
    const long double step =
        is_central ? (std::erf(y) - a) / slope : (std::log1p(-a) - std::log(complement)) * complement / slope;
    y -= step;
    if (std::fabs(step) <= 1e-19L * y) break;
  }
  return std::copysign(y, x);
}

long double lgamma_reference(long double x) {
  int sign;
  return lgammal_r(x, &sign);
}

long double digamma_reference(long double x) {
  if (x == 0) return -1 / x;
  if (std::isinf(x)) return x > 0 ? x : kNaN;
  long double sum = 0;
  if (x < 0) {
    const long double r = x - std::round(x);
    if (r == 0) return kNaN;
    sum = -kPi / std::tan(kPi * r);
    x = 1 - x;
  }
  for (; x < 20; x += 1) sum -= 1 / x;
  const long double z = 1 / (x * x);
  constexpr long double terms[] = {-3617.0L / 8160, 1.0L / 12,  -691.0L / 32760, 1.0L / 132,
                                   -1.0L / 240,     1.0L / 252, -1.0L / 120,     1.0L / 12};
  long double series = 0;
  for (long double term : terms) series = series * z + term;
  return sum + std::log(x) - 1 / (2 * x) - series * z;
}

}  // namespace sheaf::ir
