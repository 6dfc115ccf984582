// Functions beyond arithmetic. The kernels run the DAGs of ir/scalar_functions.cpp; the reference is libm in f64; the
// derivatives are the textbook ones, written through the result where that is cheaper.
#include <numbers>

#include "ir/ops/complex.h"
#include "ir/ops/sheet.h"

namespace sheaf::ir::ops {
namespace {

constexpr double kPi = std::numbers::pi;

const ScalarFunctionInfo& info(std::string_view name) {
  for (const ScalarFunctionInfo& f : scalar_functions())
    if (f.name == name) return f;
  SHEAF_CHECK(false, "no scalar function " + std::string(name));
}

Lowering lower_function(const Eqn& e) {
  const DType t = e.out().dtype();
  const ScalarFn* fn = scalar_function(e.op->name, t);
  SHEAF_CHECK(fn, "no scalar function " + std::string(e.op->name));
  return lowering::Map{*fn};
}

void eval_function(const Eqn& e, std::span<const Literal> in, std::span<Literal> out) {
  const auto reference = info(e.op->name).reference;
  for (std::int64_t i = 0; i < out[0].size(); ++i) {
    const auto arg = [&](std::size_t k) { return k < in.size() ? in[k].get(in[k].dims().empty() ? 0 : i) : 0.0; };
    out[0].set(i, reference(arg(0), arg(1)));
  }
}

constexpr OpDef function(OpDef d, int arity = 1) {
  d.types = d.on_parts ? Dtypes::differentiable : Dtypes::floating;
  d.lower = lower_function;
  d.eval = eval_function;
  return elementwise(d, arity);
}

Value call1(const OpDef& op, Value x) { return x.builder().emit(op, {x}); }
Value square(Value x) { return x * x; }
// 1 / cos(asin x); the product keeps the bits that 1 - x^2 loses near 1.
Value inverse_cosine(Value x) { return call1(rsqrt, (1.0 - x) * (1.0 + x)); }
Value equals(Value x, double v) { return x.builder().emit(eq, {x, number(x, v)}); }

// y x^(y-1), 0 where y is 0. Half types compute it in f32: in theirs y - 1 may round to y, and with it the sign be
// lost.
Value pow_slope_in_base(Value x, Value y) {
  if (const DType computed = compute_dtype(x.dtype()); computed != x.dtype())
    return convert_to(pow_slope_in_base(convert_to(x, computed), convert_to(y, computed)), x.dtype());
  Builder& b = x.builder();
  const Value slope = y * b.emit(pow, {x, y - 1.0});
  return where(equals(y, 0), b.zeros(slope.type()), slope);
}

// dy: out log x, with log 1 for x = 0, so that 0^y has derivative 0 in y >= 0.
Values pow_jvp(Builder&, const Eqn& e, const Values& t) {
  const Value x = e.in(0);
  Value sum;
  if (t[0]) sum = t[0] * pow_slope_in_base(x, e.in(1));
  if (t[1]) {
    const Value log_x = call1(log, where(equals(x, 0), number(x, 1), x));
    sum = sum_of(sum, t[1] * (e.out() * log_x));
  }
  return {widened(e, sum)};
}

// (x dy - y dx) / (x^2 + y^2) for atan2(y, x), with both divided by the larger first, since a square leaves the range
// long before its root; 0 at the origin, which has no direction.
Values atan2_jvp(Builder& b, const Eqn& e, const Values& t) {
  const Value size = b.emit(max, {b.emit(abs, {e.in(0)}), b.emit(abs, {e.in(1)})});
  const Value is_ordinary = b.emit(and_, {greater(size, number(size, 0)), b.emit(is_finite, {size})});
  const Value m = where(is_ordinary, size, number(size, 1));
  const Value y = e.in(0) / m, x = e.in(1) / m;
  const Value r2 = square(x) + square(y);
  const Value scale = where(equals(r2, 0), number(r2, 1), r2);
  const Value of_y = t[0] ? t[0] * (x / scale / m) : Value(), of_x = t[1] ? -(t[1] * (y / scale / m)) : Value();
  return {widened(e, sum_of(of_y, of_x))};
}

// Beyond this x^2 + 1 is x^2 to the last bit, and 1 / x^2 still in range where x^2 need not be.
Value is_large(Value x) {
  const double bound = x.dtype() == f64 ? 0x1p28 : x.dtype() == f32 ? 0x1p14 : 0x1p7;
  return greater(call1(abs, x), number(x, bound));
}
Value inverse_of_square_plus_one(Value x) { return where(is_large(x), square(1.0 / x), 1.0 / (square(x) + 1.0)); }
Value inverse_root_of_square_plus_one(Value x) {
  return where(is_large(x), 1.0 / call1(abs, x), call1(rsqrt, square(x) + 1.0));
}

// The derivative of digamma: the recurrence up to an argument of 10 and more, where the asymptotic series (Abramowitz
// and Stegun 6.4.12) holds to f64; the reflection formula 6.4.7 left of 1/2.
Value trigamma(Value x) {
  if (const DType computed = compute_dtype(x.dtype()); computed != x.dtype())
    return convert_to(trigamma(convert_to(x, computed)), x.dtype());
  Builder& b = x.builder();
  const Value left = b.emit(lt, {x, number(x, 0.5)});
  const Value z = where(left, 1.0 - x, x);
  Value sum;
  for (int k = 0; k < 10; ++k) {
    const Value term = 1.0 / square(z + static_cast<double>(k));
    sum = sum ? sum + term : term;
  }
  const Value r = 1.0 / (z + 10.0), r2 = r * r;
  Value series = number(x, 7.0 / 6);
  for (double c : {-691.0 / 2730, 5.0 / 66, -1.0 / 30, 1.0 / 42, -1.0 / 30, 1.0 / 6}) series = series * r2 + c;
  const Value right = sum + (r + 0.5 * r2 + r * r2 * series);
  // The distance to the nearest pole, which is exact: at a pole the derivative is infinite.
  const Value reflected = (kPi * kPi) / square(call1(sin, kPi * (x - call1(round, x))));
  return where(left, reflected - right, right);
}

}  // namespace

constinit const OpDef exp = function({
    .name = "exp",
    .doc = "e to the x.",
    .jvp = [](Builder&, const Eqn& e, const Values& t) -> Values { return {t[0] * e.out()}; },
    .on_parts = exp_on_parts,
    .ulp = 1,
    .samples =
        [] {
          return Samples{"exp f32[2, 3]", "exp f64[4]",    "exp bf16[3]", "exp f16[3]", "exp f32[]",
                         "exp f64[]",     "exp f32[0, 2]", "exp c64[3]",  "exp c128[2]"};
        },
});

constinit const OpDef exp2 = function({
    .name = "exp2",
    .doc = "2 to the x.",
    .jvp = [](Builder&, const Eqn& e, const Values& t) -> Values { return {t[0] * (std::numbers::ln2 * e.out())}; },
    .ulp = 1.1,
    .samples =
        [] {
          return Samples{"exp2 f32[2, 3]", "exp2 f64[4]", "exp2 bf16[3]",
                         "exp2 f16[2, 1]", "exp2 f64[]",  "exp2 f32[0, 2]"};
        },
});

constinit const OpDef expm1 = function({
    .name = "expm1",
    .doc = "e to the x, minus 1, accurate near 0.",
    .jvp = [](Builder&, const Eqn& e, const Values& t) -> Values { return {t[0] * (e.out() + 1.0)}; },
    .ulp = 1.5,
    .samples =
        [] {
          return Samples{"expm1 f32[2, 3]", "expm1 f64[4]", "expm1 bf16[3]",
                         "expm1 f16[2, 1]", "expm1 f64[]",  "expm1 f32[0, 2]"};
        },
});

constinit const OpDef log = function({
    .name = "log",
    .doc = "The natural logarithm; -inf at 0, NaN below; of a complex number with an imaginary part in [-pi, pi].",
    .jvp = [](Builder&, const Eqn& e, const Values& t) -> Values { return {t[0] / e.in(0)}; },
    .on_parts = log_on_parts,
    .ulp = 0.9,
    .samples =
        [] {
          return Samples{"log f32[2, 3] in (0.1, 5)",
                         "log f64[4] in (0.1, 5)",
                         "log bf16[3] in (0.1, 5)",
                         "log f16[2, 1] in (0.1, 5)",
                         "log f64[] in (0.1, 5)",
                         "log f32[0, 2] in (0.1, 5)",
                         "log c64[3]",
                         "log c128[2]"};
        },
});

constinit const OpDef log2 = function({
    .name = "log2",
    .doc = "The logarithm to base 2; -inf at 0, NaN below. Exact at powers of two.",
    .jvp = [](Builder&, const Eqn& e, const Values& t) -> Values { return {t[0] / (std::numbers::ln2 * e.in(0))}; },
    .ulp = 1.1,
    .samples =
        [] {
          return Samples{"log2 f32[2, 3] in (0.1, 5)", "log2 f64[4] in (0.1, 5)", "log2 bf16[3] in (0.1, 5)",
                         "log2 f16[2, 1] in (0.1, 5)", "log2 f64[] in (0.1, 5)",  "log2 f32[0, 2] in (0.1, 5)"};
        },
});

constinit const OpDef log1p = function({
    .name = "log1p",
    .doc = "log(1 + x), accurate near 0.",
    .jvp = [](Builder&, const Eqn& e, const Values& t) -> Values { return {t[0] / (1.0 + e.in(0))}; },
    .ulp = 1,
    .samples =
        [] {
          return Samples{"log1p f32[2, 3] in (-0.5, 5)", "log1p f64[4] in (-0.5, 5)", "log1p bf16[3] in (-0.5, 5)",
                         "log1p f16[2, 1] in (-0.5, 5)", "log1p f64[] in (-0.5, 5)",  "log1p f32[0, 2] in (-0.5, 5)"};
        },
});

constinit const OpDef sin = function({
    .name = "sin",
    .doc = "The sine of x radians, for every finite x.",
    .jvp = [](Builder&, const Eqn& e, const Values& t) -> Values { return {t[0] * call1(cos, e.in(0))}; },
    .ulp = 0.8,
    .samples =
        [] {
          return Samples{"sin f32[2, 3] in (-9, 9)", "sin f64[4] in (-9, 9)", "sin f16[3]",
                         "sin bf16[3] in (-9, 9)",   "sin f64[] in (-9, 9)",  "sin f32[0, 2] in (-9, 9)"};
        },
});

constinit const OpDef cos = function({
    .name = "cos",
    .doc = "The cosine of x radians, for every finite x.",
    .jvp = [](Builder&, const Eqn& e, const Values& t) -> Values { return {-(t[0] * call1(sin, e.in(0)))}; },
    .ulp = 0.8,
    .samples =
        [] {
          return Samples{"cos f32[2, 3] in (-9, 9)", "cos f64[4] in (-9, 9)", "cos bf16[3] in (-9, 9)",
                         "cos f16[2, 1] in (-9, 9)", "cos f64[] in (-9, 9)",  "cos f32[0, 2] in (-9, 9)"};
        },
});

constinit const OpDef tan = function({
    .name = "tan",
    .doc = "The tangent of x radians.",
    .jvp = [](Builder&, const Eqn& e, const Values& t) -> Values { return {t[0] * (1.0 + square(e.out()))}; },
    .ulp = 2.3,
    .samples =
        [] {
          return Samples{"tan f32[2, 3] in (-1, 1)", "tan f64[4] in (-1, 1)", "tan bf16[3] in (-1, 1)",
                         "tan f16[2, 1] in (-1, 1)", "tan f64[] in (-1, 1)",  "tan f32[0, 2] in (-1, 1)"};
        },
});

constinit const OpDef asin = function({
    .name = "asin",
    .doc = "The angle in [-pi/2, pi/2] whose sine is x; NaN outside [-1, 1].",
    .jvp = [](Builder&, const Eqn& e, const Values& t) -> Values { return {t[0] * inverse_cosine(e.in(0))}; },
    .ulp = 1.4,
    .samples =
        [] {
          return Samples{"asin f32[2, 3] in (-0.9, 0.9)", "asin f64[4] in (-0.9, 0.9)",
                         "asin bf16[3] in (-0.9, 0.9)",   "asin f16[2, 1] in (-0.9, 0.9)",
                         "asin f64[] in (-0.9, 0.9)",     "asin f32[0, 2] in (-0.9, 0.9)"};
        },
});

constinit const OpDef acos = function({
    .name = "acos",
    .doc = "The angle in [0, pi] whose cosine is x; NaN outside [-1, 1].",
    .jvp = [](Builder&, const Eqn& e, const Values& t) -> Values { return {-(t[0] * inverse_cosine(e.in(0)))}; },
    .ulp = 0.9,
    .samples =
        [] {
          return Samples{"acos f32[2, 3] in (-0.9, 0.9)", "acos f64[4] in (-0.9, 0.9)",
                         "acos bf16[3] in (-0.9, 0.9)",   "acos f16[2, 1] in (-0.9, 0.9)",
                         "acos f64[] in (-0.9, 0.9)",     "acos f32[0, 2] in (-0.9, 0.9)"};
        },
});

constinit const OpDef atan = function({
    .name = "atan",
    .doc = "The angle in (-pi/2, pi/2) whose tangent is x.",
    .jvp = [](Builder&, const Eqn& e, const Values& t) -> Values {
      return {t[0] * inverse_of_square_plus_one(e.in(0))};
    },
    .ulp = 1.9,
    .samples =
        [] {
          return Samples{"atan f32[2, 3]", "atan f64[4]", "atan bf16[3]",
                         "atan f16[2, 1]", "atan f64[]",  "atan f32[0, 2]"};
        },
});

constinit const OpDef sinh = function({
    .name = "sinh",
    .doc = "The hyperbolic sine.",
    .jvp = [](Builder&, const Eqn& e, const Values& t) -> Values { return {t[0] * call1(cosh, e.in(0))}; },
    .ulp = 1.7,
    .samples =
        [] {
          return Samples{"sinh f32[2, 3]", "sinh f64[4]", "sinh bf16[3]",
                         "sinh f16[2, 1]", "sinh f64[]",  "sinh f32[0, 2]"};
        },
});

constinit const OpDef cosh = function({
    .name = "cosh",
    .doc = "The hyperbolic cosine.",
    .jvp = [](Builder&, const Eqn& e, const Values& t) -> Values { return {t[0] * call1(sinh, e.in(0))}; },
    .ulp = 1.5,
    .samples =
        [] {
          return Samples{"cosh f32[2, 3]", "cosh f64[4]", "cosh bf16[3]",
                         "cosh f16[2, 1]", "cosh f64[]",  "cosh f32[0, 2]"};
        },
});

constinit const OpDef tanh = function({
    .name = "tanh",
    .doc = "The hyperbolic tangent.",
    .jvp = [](Builder&, const Eqn& e, const Values& t) -> Values {
      return {t[0] * ((1.0 + e.out()) * (1.0 - e.out()))};
    },
    .ulp = 2.5,
    .samples =
        [] {
          return Samples{"tanh f32[2, 3]", "tanh f64[4]", "tanh bf16[3]",
                         "tanh f16[3]",    "tanh f64[]",  "tanh f32[0, 2]"};
        },
});

constinit const OpDef asinh = function({
    .name = "asinh",
    .doc = "The inverse of sinh.",
    .jvp = [](Builder&, const Eqn& e, const Values& t) -> Values {
      return {t[0] * inverse_root_of_square_plus_one(e.in(0))};
    },
    .ulp = 1.8,
    .samples =
        [] {
          return Samples{"asinh f32[2, 3]", "asinh f64[4]", "asinh bf16[3]",
                         "asinh f16[2, 1]", "asinh f64[]",  "asinh f32[0, 2]"};
        },
});

constinit const OpDef acosh = function({
    .name = "acosh",
    .doc = "The inverse of cosh on [1, inf); NaN below 1.",
    .jvp = [](Builder&, const Eqn& e, const Values& t) -> Values {
      // Two roots: their product is NaN wherever the value is, and does not overflow.
      return {t[0] * (call1(rsqrt, e.in(0) - 1.0) * call1(rsqrt, e.in(0) + 1.0))};
    },
    .ulp = 2,
    .samples =
        [] {
          return Samples{"acosh f32[2, 3] in (1.2, 5)", "acosh f64[4] in (1.2, 5)", "acosh bf16[3] in (1.2, 5)",
                         "acosh f16[2, 1] in (1.2, 5)", "acosh f64[] in (1.2, 5)",  "acosh f32[0, 2] in (1.2, 5)"};
        },
});

constinit const OpDef atanh = function({
    .name = "atanh",
    .doc = "The inverse of tanh on (-1, 1); infinite at the ends, NaN outside.",
    .jvp = [](Builder&, const Eqn& e, const Values& t) -> Values {
      return {t[0] / ((1.0 + e.in(0)) * (1.0 - e.in(0)))};
    },
    .ulp = 2.1,
    .samples =
        [] {
          return Samples{"atanh f32[2, 3] in (-0.9, 0.9)", "atanh f64[4] in (-0.9, 0.9)",
                         "atanh bf16[3] in (-0.9, 0.9)",   "atanh f16[2, 1] in (-0.9, 0.9)",
                         "atanh f64[] in (-0.9, 0.9)",     "atanh f32[0, 2] in (-0.9, 0.9)"};
        },
});

constinit const OpDef logistic = function({
    .name = "logistic",
    .doc = "1 / (1 + exp(-x)).",
    .jvp = [](Builder&, const Eqn& e, const Values& t) -> Values { return {t[0] * (e.out() * (1.0 - e.out()))}; },
    .ulp = 2.4,
    .samples =
        [] {
          return Samples{"logistic f32[2, 3]", "logistic f64[4]", "logistic bf16[3]",
                         "logistic f16[2, 1]", "logistic f64[]",  "logistic f32[0, 2]"};
        },
});

constinit const OpDef erf = function({
    .name = "erf",
    .doc = "The error function.",
    .jvp = [](Builder&, const Eqn& e, const Values& t) -> Values {
      return {t[0] * (2 * std::numbers::inv_sqrtpi * call1(exp, -square(e.in(0))))};
    },
    .ulp = 1.1,
    .samples =
        [] {
          return Samples{"erf f32[2, 3]", "erf f64[4]", "erf bf16[3]", "erf f16[2, 1]", "erf f64[]", "erf f32[0, 2]"};
        },
});

constinit const OpDef erfc = function({
    .name = "erfc",
    .doc = "1 - erf(x), accurate where that is small.",
    .jvp = [](Builder&, const Eqn& e, const Values& t) -> Values {
      return {t[0] * (-2 * std::numbers::inv_sqrtpi * call1(exp, -square(e.in(0))))};
    },
    .ulp = 3.6,
    .samples =
        [] {
          return Samples{"erfc f32[2, 3]", "erfc f64[4]", "erfc bf16[3]",
                         "erfc f16[2, 1]", "erfc f64[]",  "erfc f32[0, 2]"};
        },
});

constinit const OpDef erf_inv = function({
    .name = "erf_inv",
    .doc = "The inverse of erf on (-1, 1); infinite at the ends, NaN outside.",
    .jvp = [](Builder&, const Eqn& e, const Values& t) -> Values {
      return {t[0] * (0.5 / std::numbers::inv_sqrtpi * call1(exp, square(e.out())))};
    },
    .ulp = 2.7,
    .samples =
        [] {
          return Samples{"erf_inv f32[2, 3] in (-0.9, 0.9)", "erf_inv f64[4] in (-0.9, 0.9)",
                         "erf_inv bf16[3] in (-0.9, 0.9)",   "erf_inv f16[2, 1] in (-0.9, 0.9)",
                         "erf_inv f64[] in (-0.9, 0.9)",     "erf_inv f32[0, 2] in (-0.9, 0.9)"};
        },
});

constinit const OpDef rsqrt = function({
    .name = "rsqrt",
    .doc = "1 / sqrt(x); inf at 0, NaN below.",
    .jvp = [](Builder&, const Eqn& e, const Values& t) -> Values { return {t[0] * (-0.5 * (e.out() / e.in(0)))}; },
    .ulp = 1.5,
    .samples =
        [] {
          return Samples{"rsqrt f32[2, 3] in (0.1, 9)", "rsqrt f64[4] in (0.1, 9)", "rsqrt bf16[3] in (0.1, 9)",
                         "rsqrt f16[2, 1] in (0.1, 9)", "rsqrt f64[] in (0.1, 9)",  "rsqrt f32[0, 2] in (0.1, 9)"};
        },
});

constinit const OpDef cbrt = function({
    .name = "cbrt",
    .doc = "The real cube root. The derivative at 0 is +inf.",
    .jvp = [](Builder&, const Eqn& e, const Values& t) -> Values { return {t[0] / (3.0 * square(e.out()))}; },
    .ulp = 0.8,
    .samples =
        [] {
          return Samples{"cbrt f32[2, 3] in (0.5, 2)", "cbrt f64[4] in (-2, -0.5)", "cbrt bf16[3] in (0.5, 2)",
                         "cbrt f16[2, 1] in (0.5, 2)", "cbrt f64[] in (0.5, 2)",    "cbrt f32[0, 2] in (0.5, 2)"};
        },
});

constinit const OpDef lgamma = function({
    .name = "lgamma",
    .doc = "log |gamma(x)|; inf at 0 and the negative integers. The stated error is for x > 0.",
    .jvp = [](Builder&, const Eqn& e, const Values& t) -> Values { return {t[0] * call1(digamma, e.in(0))}; },
    .ulp = 0.6,
    .samples =
        [] {
          return Samples{"lgamma f32[2, 3] in (2.5, 9)", "lgamma f64[4] in (0.3, 0.8)", "lgamma bf16[3] in (2.5, 9)",
                         "lgamma f16[2, 1] in (2.5, 9)", "lgamma f64[] in (2.5, 9)",    "lgamma f32[0, 2] in (2.5, 9)"};
        },
});

constinit const OpDef digamma = function({
    .name = "digamma",
    .doc = "The derivative of lgamma. The stated error is for x > 0.",
    .jvp = [](Builder&, const Eqn& e, const Values& t) -> Values { return {t[0] * trigamma(e.in(0))}; },
    .ulp = 0.6,
    .samples =
        [] {
          return Samples{"digamma f32[2, 3] in (2.5, 9)",  "digamma f64[4] in (0.3, 0.8)",
                         "digamma f64[3] in (-0.8, -0.2)", "digamma bf16[3] in (2.5, 9)",
                         "digamma f16[2, 1] in (2.5, 9)",  "digamma f64[] in (2.5, 9)",
                         "digamma f32[0, 2] in (2.5, 9)"};
        },
});

constinit const OpDef pow = function(
    {
        .name = "pow",
        .doc = "x to the y, as C's pow. Derivatives at x = 0 and y = 0: docs/numerics.md.",
        .jvp = pow_jvp,
        .on_parts = pow_on_parts,
        .ulp = 0.6,
        .samples =
            [] {
              return Samples{"pow f32[2, 3] in (0.3, 3), f32[2, 3]",
                             "pow f64[4] in (0.3, 3), f64[4]",
                             "pow f64[3] in (0.3, 3), f64[]",
                             "pow f64[] in (0.3, 3), f64[3]",
                             "pow bf16[3] in (0.3, 3), bf16[3]",
                             "pow f16[2, 1] in (0.3, 3), f16[]",
                             "pow f64[] in (0.3, 3), f64[]",
                             "pow f32[0], f32[]",
                             "pow c64[3], c64[]",
                             "pow c128[2], c128[2]"};
            },
    },
    2);

constinit const OpDef atan2 = function(
    {
        .name = "atan2",
        .doc = "The angle of the point (x, y), operands y, x, in [-pi, pi]. The derivative at the origin is 0.",
        .jvp = atan2_jvp,
        .ulp = 2,
        .samples =
            [] {
              return Samples{"atan2 f32[2, 3], f32[2, 3]",         "atan2 f64[4], f64[4] in (0.2, 2)",
                             "atan2 f64[3], f64[] in (0.2, 2)",    "atan2 bf16[3], bf16[3] in (0.2, 2)",
                             "atan2 f16[2, 1], f16[] in (0.2, 2)", "atan2 f64[], f64[2] in (0.2, 2)",
                             "atan2 f64[] in (0.2, 2), f64[]",     "atan2 f32[0], f32[]"};
            },
    },
    2);

}  // namespace sheaf::ir::ops
