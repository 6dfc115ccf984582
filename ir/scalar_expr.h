// Arithmetic notation for scalar DAGs: with `Expr`, a formula in the definitions of exp, log, ... reads as it does in
// the paper it comes from. Invariant: an operator emits exactly one ScalarOp (or folds it), so cost can be read off.
#pragma once

#include <initializer_list>

#include "ir/check.h"
#include "ir/scalar.h"

namespace sheaf::ir {

struct Expr {
  ScalarBuilder* builder;
  ScalarBuilder::Ref ref;

  DType dtype() const { return builder->dtype(ref); }
  /// A constant of this expression's dtype.
  Expr like(double value) const { return {builder, builder->constant(dtype(), value)}; }
  Expr like_bits(std::uint64_t bits) const { return {builder, builder->constant_bits(dtype(), bits)}; }
};

inline Expr emit(ScalarOp op, Expr a) { return {a.builder, a.builder->emit(op, a.ref)}; }
inline Expr emit(ScalarOp op, Expr a, Expr b) { return {a.builder, a.builder->emit(op, a.ref, b.ref)}; }
inline Expr emit(ScalarOp op, Expr a, Expr b, Expr c) { return {a.builder, a.builder->emit(op, a.ref, b.ref, c.ref)}; }

inline Expr operator+(Expr a, Expr b) { return emit(ScalarOp::add, a, b); }
inline Expr operator-(Expr a, Expr b) { return emit(ScalarOp::sub, a, b); }
inline Expr operator*(Expr a, Expr b) { return emit(ScalarOp::mul, a, b); }
inline Expr operator/(Expr a, Expr b) { return emit(ScalarOp::div, a, b); }
inline Expr operator-(Expr a) { return emit(ScalarOp::neg, a); }
inline Expr operator+(Expr a, double b) { return a + a.like(b); }
inline Expr operator-(Expr a, double b) { return a - a.like(b); }
inline Expr operator*(Expr a, double b) { return a * a.like(b); }
inline Expr operator/(Expr a, double b) { return a / a.like(b); }
inline Expr operator+(double a, Expr b) { return b.like(a) + b; }
inline Expr operator-(double a, Expr b) { return b.like(a) - b; }
inline Expr operator*(double a, Expr b) { return b.like(a) * b; }
inline Expr operator/(double a, Expr b) { return b.like(a) / b; }

inline Expr operator<(Expr a, Expr b) { return emit(ScalarOp::lt, a, b); }
inline Expr operator<=(Expr a, Expr b) { return emit(ScalarOp::le, a, b); }
inline Expr operator>(Expr a, Expr b) { return emit(ScalarOp::gt, a, b); }
inline Expr operator>=(Expr a, Expr b) { return emit(ScalarOp::ge, a, b); }
inline Expr operator==(Expr a, Expr b) { return emit(ScalarOp::eq, a, b); }
inline Expr operator!=(Expr a, Expr b) { return emit(ScalarOp::ne, a, b); }
inline Expr operator<(Expr a, double b) { return a < a.like(b); }
inline Expr operator<=(Expr a, double b) { return a <= a.like(b); }
inline Expr operator>(Expr a, double b) { return a > a.like(b); }
inline Expr operator>=(Expr a, double b) { return a >= a.like(b); }
inline Expr operator==(Expr a, double b) { return a == a.like(b); }
inline Expr operator!=(Expr a, double b) { return a != a.like(b); }

inline Expr operator&(Expr a, Expr b) { return emit(ScalarOp::and_, a, b); }
inline Expr operator|(Expr a, Expr b) { return emit(ScalarOp::or_, a, b); }
inline Expr operator^(Expr a, Expr b) { return emit(ScalarOp::xor_, a, b); }
inline Expr operator!(Expr a) { return emit(ScalarOp::not_, a); }
inline Expr operator<<(Expr a, int amount) { return emit(ScalarOp::shl, a, a.like(amount)); }
inline Expr shr_arith(Expr a, int amount) { return emit(ScalarOp::shr_arith, a, a.like(amount)); }
inline Expr shr_logical(Expr a, int amount) { return emit(ScalarOp::shr_logical, a, a.like(amount)); }

inline Expr abs(Expr a) { return emit(ScalarOp::abs, a); }
inline Expr sqrt(Expr a) { return emit(ScalarOp::sqrt, a); }
inline Expr floor(Expr a) { return emit(ScalarOp::floor, a); }
inline Expr trunc(Expr a) { return emit(ScalarOp::trunc, a); }
inline Expr round_even(Expr a) { return emit(ScalarOp::round_even, a); }
inline Expr fma(Expr a, Expr b, Expr c) { return emit(ScalarOp::fma, a, b, c); }
inline Expr fma(Expr a, double b, Expr c) { return emit(ScalarOp::fma, a, a.like(b), c); }
inline Expr fma(Expr a, Expr b, double c) { return emit(ScalarOp::fma, a, b, a.like(c)); }
inline Expr fma(Expr a, double b, double c) { return emit(ScalarOp::fma, a, a.like(b), a.like(c)); }
inline Expr select(Expr condition, Expr a, Expr b) { return emit(ScalarOp::select, condition, a, b); }
inline Expr select(Expr condition, double a, Expr b) { return select(condition, b.like(a), b); }
inline Expr select(Expr condition, Expr a, double b) { return select(condition, a, a.like(b)); }

inline Expr convert(Expr a, DType to) { return {a.builder, a.builder->convert(a.ref, to)}; }
inline Expr bitcast(Expr a, DType to) { return {a.builder, a.builder->bitcast(a.ref, to)}; }

inline bool is_f64(Expr x) { return x.dtype() == DType::f64; }

/// The integer with the bits of the float `x`, and back.
inline Expr to_int_bits(Expr x) { return bitcast(x, is_f64(x) ? DType::i64 : DType::i32); }
inline Expr from_int_bits(Expr i) { return bitcast(i, i.dtype() == DType::i64 ? DType::f64 : DType::f32); }

/// Horner's rule with fma; coefficients from the highest degree down.
inline Expr polynomial(Expr x, std::initializer_list<double> coefficients) {
  Expr sum = x.like(*coefficients.begin());
  for (const double* c = coefficients.begin() + 1; c != coefficients.end(); ++c) sum = fma(sum, x, *c);
  return sum;
}

/// `x` limited to [low, high]; NaN stays. Selects rather than min and max: NaN and signed zeros need no care here, and
/// the selects are one machine instruction each.
inline Expr clamp(Expr x, double low, double high) {
  x = select(x.like(low) > x, low, x);
  return select(x.like(high) < x, high, x);
}

/// The magnitude of `x` with the sign bit of `sign`.
Expr copy_sign(Expr x, Expr sign);

/// x 2^n with one rounding, for |n| up to twice the exponent range; n is an integer of x's width.
Expr scale_by_power_of_two(Expr x, Expr n);

/// e^(x + tail) = value 2^n with value near 1, for a caller that has more factors to apply before the one rounding of
/// `scale_by_power_of_two`. |x| must stay within about 1.5 times the range of exp, and tail be far below 1.
struct ScaledExp {
  Expr value, n;
};
ScaledExp scaled_exp(Expr x, Expr tail);

/// exp where the result is a normal number, without the care for the rest of the range.
Expr exp_to_normal(Expr x);

/// x = 2^exponent (1 + fraction) for a positive normal x; the exponent is an integer in x's own dtype.
struct BinarySplit {
  Expr exponent;
  Expr fraction;  // in [sqrt(1/2) - 1, sqrt 2 - 1]
};
BinarySplit split_normal(Expr x);
/// The same for any positive finite x.
BinarySplit split_positive(Expr x);

/// ln 2 as a sum of two; the high part ends in zeros, so that a binary exponent times it is exact.
struct Ln2 {
  double high, low;
};
inline Ln2 ln2_parts(Expr x) {
  if (is_f64(x)) return {0x1.62e42feep-1, 0x1.a39ef35793c76p-33};
  return {0x1.62e4p-1, 0x1.7f7d1cp-20};
}

/// log of a positive normal number; anything for other arguments.
Expr log_of_normal(Expr x);

/// Evaluates `f` in f64 when `x` is f32: one rounding at the end makes the result good to about half an ulp.
template <class F>
Expr through_f64(Expr x, F&& f) {
  return convert(f(convert(x, DType::f64)), x.dtype());
}

// The definitions, each over f32 and f64.
Expr exp(Expr x);
Expr expm1(Expr x);
Expr exp2(Expr x);
Expr sinh(Expr x);
Expr cosh(Expr x);
Expr tanh(Expr x);
Expr logistic(Expr x);
Expr log(Expr x);
Expr log1p(Expr x);
Expr log2(Expr x);
Expr asinh(Expr x);
Expr acosh(Expr x);
Expr atanh(Expr x);
Expr sin(Expr x);
Expr cos(Expr x);
Expr tan(Expr x);
Expr asin(Expr x);
Expr acos(Expr x);
Expr atan(Expr x);
Expr atan2(Expr y, Expr x);
Expr pow(Expr x, Expr y);
Expr cbrt(Expr x);
Expr rsqrt(Expr x);
Expr erf(Expr x);
Expr erfc(Expr x);
Expr erf_inv(Expr x);
Expr lgamma(Expr x);
Expr digamma(Expr x);

}  // namespace sheaf::ir
