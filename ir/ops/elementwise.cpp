// Arithmetic and rounding ops: each is one exact scalar operation, or a few, so the DAG that kernels run is also
// the reference. Conventions at special points are listed in docs/numerics.md.
#include <cmath>

#include "ir/ops/complex.h"
#include "ir/ops/sheet.h"

namespace sheaf::ir::ops {
namespace {

using Refs = const std::vector<ScalarRef>&;

Values add_jvp(Builder&, const Eqn& e, const Values& t) { return {widened(e, sum_of(t[0], t[1]))}; }

Values add_transpose(Builder&, const Eqn& e, const Values& x, const Values& ct) {
  Values in(2);
  for (int k = 0; k < 2; ++k)
    if (!x[k]) in[k] = unbroadcast(ct[0], e.in(k).type());
  return in;
}

Values sub_jvp(Builder&, const Eqn& e, const Values& t) {
  const Value d = !t[1] ? t[0] : !t[0] ? -t[1] : t[0] - t[1];
  return {widened(e, d)};
}

Values sub_transpose(Builder&, const Eqn& e, const Values& x, const Values& ct) {
  Values in(2);
  if (!x[0]) in[0] = unbroadcast(ct[0], e.in(0).type());
  if (!x[1]) in[1] = unbroadcast(-ct[0], e.in(1).type());
  return in;
}

// Written out because a rank-0 tangent beside a rank-0 primal may still meet a full other operand.
Values mul_jvp(Builder&, const Eqn& e, const Values& t) {
  const Value a = t[0] ? t[0] * e.in(1) : Value(), b = t[1] ? e.in(0) * t[1] : Value();
  return {widened(e, sum_of(a, b))};
}

Values mul_transpose(Builder&, const Eqn& e, const Values& x, const Values& ct) {
  Values in(2);
  for (int k = 0; k < 2; ++k)
    if (!x[k]) in[k] = unbroadcast(ct[0] * x[1 - k], e.in(k).type());
  return in;
}

Values div_jvp(Builder&, const Eqn& e, const Values& t) {
  const Value a = t[0] ? t[0] / e.in(1) : Value(), b = t[1] ? -(t[1] * (e.out() / e.in(1))) : Value();
  return {widened(e, sum_of(a, b))};
}

Values div_transpose(Builder&, const Eqn& e, const Values& x, const Values& ct) {
  return {unbroadcast(ct[0] / x[1], e.in(0).type()), Value()};
}

// x = y * n + rem with a whole n, so d/dy = -n. Truncating x / y would miss n where the quotient rounds up to a whole
// number; (x - rem) / y lies next to one.
Values rem_jvp(Builder& b, const Eqn& e, const Values& t) {
  Value dy;
  if (t[1]) dy = -(t[1] * b.emit(round, {(e.in(0) - e.out()) / e.in(1)}));
  return {widened(e, sum_of(t[0], dy))};
}

// The winner's tangent; ties share (NaNs count as a tie: the value is NaN whichever wins).
Values extreme_jvp(Builder& b, const Eqn& e, const Values& t, bool is_max) {
  const Type type = e.out().type();
  const Value zero = b.zeros(type);
  const Value tx = t[0] ? widened(e, t[0]) : zero, ty = t[1] ? widened(e, t[1]) : zero;
  const Value x = e.in(is_max ? 0 : 1), y = e.in(is_max ? 1 : 0);
  const Value shared = !t[0] ? 0.5 * ty : !t[1] ? 0.5 * tx : 0.5 * (tx + ty);
  return {where(greater(x, y), tx, where(greater(y, x), ty, shared))};
}

ScalarRef sign_of(ScalarBuilder& s, ScalarRef x) {
  const DType t = s.dtype(x);
  const ScalarRef zero = s.constant(t, 0), one = s.constant(t, 1);
  if (is_unsigned_int(t)) return s.emit(ScalarOp::select, s.emit(ScalarOp::ne, x, zero), one, zero);
  const ScalarRef negative =
      s.emit(ScalarOp::select, s.emit(ScalarOp::lt, x, zero), s.constant(t, -1), x);  // x: 0, -0, NaN
  return s.emit(ScalarOp::select, s.emit(ScalarOp::gt, x, zero), one, negative);
}

// Of the operand that the value is; 0 where x lies on a bound. NaN x keeps its own tangent, as it is the value.
Values clamp_jvp(Builder& b, const Eqn& e, const Values& t) {
  const Value low = e.in(0), x = e.in(1), high = e.in(2), zero = b.zeros(e.out().type());
  const auto tangent = [&](int k) { return t[k] ? widened(e, t[k]) : zero; };
  const Value on_bound = b.emit(or_, {b.emit(eq, {x, low}), b.emit(eq, {x, high})});
  Value d = where(on_bound, zero, tangent(1));
  d = where(greater(low, x), tangent(0), d);
  return {where(greater(b.emit(max, {x, low}), high), tangent(2), d)};  // last: high wins when low > high
}

absl::StatusOr<std::vector<DType>> to_part(const Eqn& e) { return std::vector<DType>{part_dtype(e.in(0).dtype())}; }

// Along the direction of a complex number: the real part of its conjugate, scaled to length 1, times the tangent.
Values abs_jvp(Builder& b, const Eqn& e, const Values& t) {
  const Value x = e.in(0), y = e.out();
  if (!is_complex(x.dtype())) return {t[0] * b.emit(sign, {x})};
  const Value is_zero = b.emit(eq, {y, number(y, 0)}), size = where(is_zero, number(y, 1), y);
  const auto along = [&](const OpDef& part) { return b.emit(part, {t[0]}) * (b.emit(part, {x}) / size); };
  return {along(real) + along(imag)};
}

absl::StatusOr<std::vector<DType>> to_bool(const Eqn&) { return std::vector<DType>{DType::bool_}; }

}  // namespace

constinit const OpDef neg = unary({
    .name = "neg",
    .doc = "-x. Integers wrap: -INT_MIN is INT_MIN.",
    .types = Dtypes::numeric,
    .linear = jointly(1),
    .transpose = [](Builder&, const Eqn&, const Values&, const Values& ct) -> Values { return {-ct[0]}; },
    .lower = map_primitive<ScalarOp::neg>,
    .samples =
        [] {
          return Samples{"neg f32[2, 3]", "neg f64[4]",    "neg i32[5]",    "neg u8[3]", "neg bf16[2, 2]",
                         "neg f32[]",     "neg f32[0, 3]", "neg f16[2, 1]", "neg i8[3]", "neg i16[3]",
                         "neg i64[3]",    "neg u64[2]",    "neg c64[3]"};
        },
});

constinit const OpDef abs = unary({
    .name = "abs",
    .doc = "|x|, of a complex number its length. abs(INT_MIN) is INT_MIN. The derivative at 0 is 0.",
    .types = Dtypes::numeric,
    .dtypes = to_part,
    .jvp = abs_jvp,
    .lower = map_primitive<ScalarOp::abs>,
    .on_parts = abs_on_parts,
    .samples =
        [] {
          return Samples{"abs f32[2, 3]",  "abs f64[5]", "abs i16[5]", "abs f16[3]", "abs f64[]",
                         "abs bf16[2, 1]", "abs i8[3]",  "abs i32[4]", "abs i64[3]", "abs u8[3]",
                         "abs f32[0, 2]",  "abs c64[4]", "abs c128[3]"};
        },
});

constinit const OpDef sign = unary({
    .name = "sign",
    .doc = "-1, 0 or 1 as x is negative, zero or positive; zeros keep their sign and NaN is NaN.",
    .types = Dtypes::real,
    .no_jvp = Absent::piecewise_constant,
    .lower = [](const Eqn& e) { return map_of(e, [](ScalarBuilder& s, Refs in) { return sign_of(s, in[0]); }); },
    .samples =
        [] {
          return Samples{"sign f32[2, 3]", "sign i32[5]", "sign u8[4]", "sign f64[3]", "sign bf16[3]",
                         "sign f16[2, 1]", "sign i64[3]", "sign f64[]", "sign f32[0]"};
        },
});

constinit const OpDef floor = unary({
    .name = "floor",
    .doc = "The largest integral value not above x.",
    .types = Dtypes::floating,
    .no_jvp = Absent::piecewise_constant,
    .lower = map_primitive<ScalarOp::floor>,
    .samples =
        [] {
          return Samples{"floor f32[2, 3] in (-5, 5)", "floor f64[4] in (-5, 5)", "floor bf16[4]",
                         "floor f16[2, 1] in (-5, 5)", "floor f64[] in (-5, 5)",  "floor f32[0]"};
        },
});

constinit const OpDef ceil = unary({
    .name = "ceil",
    .doc = "The smallest integral value not below x.",
    .types = Dtypes::floating,
    .no_jvp = Absent::piecewise_constant,
    .lower = map_primitive<ScalarOp::ceil>,
    .samples =
        [] {
          return Samples{"ceil f32[2, 3] in (-5, 5)",
                         "ceil f64[4] in (-5, 5)",
                         "ceil bf16[3] in (-5, 5)",
                         "ceil f16[2, 1] in (-5, 5)",
                         "ceil f64[]",
                         "ceil f32[0]"};
        },
});

constinit const OpDef round = unary({
    .name = "round",
    .doc = "The nearest integral value; halves go to the even one.",
    .types = Dtypes::floating,
    .no_jvp = Absent::piecewise_constant,
    .lower = map_primitive<ScalarOp::round_even>,
    .samples =
        [] {
          return Samples{"round f32[2, 3] in (-5, 5)",
                         "round f64[4] in (-5, 5)",
                         "round bf16[3] in (-5, 5)",
                         "round f16[2, 1] in (-5, 5)",
                         "round f64[]",
                         "round f32[0]"};
        },
});

constinit const OpDef sqrt = unary({
    .name = "sqrt",
    .doc =
        "The square root, correctly rounded; NaN below -0. Of a complex number the root with a real part of at least 0, cut along the negative axis: "
        "-1 - 0i has -i. The derivative at 0 is infinite, with the zero's sign.",
    .types = Dtypes::differentiable,
    .jvp = [](Builder&, const Eqn& e, const Values& t) -> Values { return {t[0] * (0.5 / e.out())}; },
    .lower = map_primitive<ScalarOp::sqrt>,
    .on_parts = sqrt_on_parts,
    .samples =
        [] {
          return Samples{"sqrt f32[2, 3] in (0.1, 9)",
                         "sqrt f64[4] in (0.1, 9)",
                         "sqrt f16[3] in (0.1, 9)",
                         "sqrt bf16[2, 1] in (0.1, 9)",
                         "sqrt f64[] in (0.1, 9)",
                         "sqrt c64[4]",
                         "sqrt c128[3]",
                         "sqrt f32[0]"};
        },
});

constinit const OpDef is_finite = unary({
    .name = "is_finite",
    .doc = "False for infinities and NaN.",
    .types = Dtypes::floating,
    .dtypes = to_bool,
    .no_jvp = Absent::integer_result,
    .lower =
        [](const Eqn& e) {
          return map_of(e, [](ScalarBuilder& s, Refs in) {
            return s.emit(ScalarOp::lt, s.emit(ScalarOp::abs, in[0]), s.constant(s.dtype(in[0]), HUGE_VAL));
          });
        },
    .samples =
        [] {
          return Samples{"is_finite f32[4]",    "is_finite f64[2, 2]", "is_finite bf16[3]",
                         "is_finite f16[2, 1]", "is_finite f32[]",     "is_finite f32[0]"};
        },
});

constinit const OpDef add = binary({
    .name = "add",
    .doc = "x + y. Integers wrap.",
    .types = Dtypes::numeric,
    .linear = jointly(3),
    .jvp = add_jvp,
    .transpose = add_transpose,
    .lower = map_primitive<ScalarOp::add>,
    .samples =
        [] {
          return Samples{"add f32[2, 3], f32[2, 3]", "add f64[3], f64[]",    "add f32[], f32[2, 2]",
                         "add i32[4], i32[4]",       "add bf16[3], bf16[3]", "add f16[2], f16[2]",
                         "add f32[0], f32[0]",       "add f64[], f64[]",     "add i8[3], i8[3]",
                         "add u64[2, 1], u64[]",     "add i16[], i16[3]",    "add u32[0, 2], u32[]",
                         "add c64[3], c64[]"};
        },
});

constinit const OpDef sub = binary({
    .name = "sub",
    .doc = "x - y. Integers wrap.",
    .types = Dtypes::numeric,
    .linear = jointly(3),
    .jvp = sub_jvp,
    .transpose = sub_transpose,
    .lower = map_primitive<ScalarOp::sub>,
    .samples =
        [] {
          return Samples{"sub f32[2, 3], f32[2, 3]", "sub f64[3], f64[]",    "sub f64[], f64[2, 2]",
                         "sub u8[4], u8[4]",         "sub bf16[3], bf16[3]", "sub f16[2, 1], f16[2, 1]",
                         "sub f64[], f64[]",         "sub i64[3], i64[3]",   "sub f32[0], f32[]",
                         "sub c128[3], c128[3]"};
        },
});

constinit const OpDef mul = binary({
    .name = "mul",
    .doc = "x * y. Integers wrap.",
    .types = Dtypes::numeric,
    .linear = separately(3),
    .jvp = mul_jvp,
    .transpose = mul_transpose,
    .lower = map_primitive<ScalarOp::mul>,
    .samples =
        [] {
          return Samples{"mul f32[2, 3], f32[2, 3]", "mul f64[3], f64[]",    "mul f64[], f64[2, 2]",
                         "mul i64[4], i64[4]",       "mul bf16[3], bf16[3]", "mul f16[2, 1], f16[2, 1]",
                         "mul f64[], f64[]",         "mul u32[3], u32[]",    "mul i8[3], i8[3]",
                         "mul f32[0], f32[]",        "mul c64[3], c64[3]",   "mul c128[], c128[2]"};
        },
});

constinit const OpDef div = binary({
    .name = "div",
    .doc = "x / y. Integers truncate toward zero; x / 0 has all bits set, INT_MIN / -1 is INT_MIN.",
    .types = Dtypes::numeric,
    .linear = jointly(1),
    .jvp = div_jvp,
    .transpose = div_transpose,
    .lower = map_primitive<ScalarOp::div>,
    .on_parts = div_on_parts,
    .samples =
        [] {
          return Samples{"div f32[2, 3], f32[2, 3] in (0.5, 2)",
                         "div f64[3], f64[] in (0.5, 2)",
                         "div f64[], f64[2, 2] in (0.5, 2)",
                         "div i32[6] in (-9, 9), i32[6] in (-3, 3)",
                         "div u8[4], u8[4]",
                         "div f16[3], f16[3] in (1, 2)",
                         "div bf16[2, 1], bf16[] in (1, 2)",
                         "div f64[], f64[] in (0.5, 2)",
                         "div i8[9] in (-99, 99), i8[] in (-3, 0)",
                         "div u64[3] in (0, 99), u64[3]",
                         "div c64[3], c64[3]",
                         "div c128[2], c128[]",
                         "div f32[0], f32[0]"};
        },
});

constinit const OpDef rem = binary({
    .name = "rem",
    .doc = "The remainder of truncated division, with the sign of x (C's fmod and %); integers: x rem 0 is x.",
    .types = Dtypes::real,
    .jvp = rem_jvp,
    .lower = map_primitive<ScalarOp::rem>,
    .samples =
        [] {
          return Samples{"rem f32[2, 3] in (2.1, 2.9), f32[2, 3] in (0.6, 0.69)",
                         "rem f64[3] in (-2.9, -2.1), f64[] in (0.6, 0.69)",
                         "rem i32[6] in (-9, 9), i32[6] in (-3, 3)",
                         "rem f64[] in (2.1, 2.9), f64[2] in (0.6, 0.69)",
                         "rem bf16[3] in (1, 2), bf16[3] in (3, 4)",
                         "rem f16[2, 1] in (1, 2), f16[] in (3, 4)",
                         "rem u8[4], u8[4]",
                         "rem i64[4] in (-9, 9), i64[]",
                         "rem f32[0], f32[]"};
        },
});

constinit const OpDef max = binary({
    .name = "max",
    .doc = "The larger operand; NaN if either is. Equal operands share the derivative.",
    .types = Dtypes::ordered,
    .jvp = [](Builder& b, const Eqn& e, const Values& t) { return extreme_jvp(b, e, t, true); },
    .lower = map_primitive<ScalarOp::max>,
    .samples =
        [] {
          return Samples{"max f32[2, 3], f32[2, 3]",
                         "max f64[3], f64[] in (0, 0.1)",
                         "max f64[] in (0, 0.1), f64[2, 2]",
                         "max i32[4], i32[4]",
                         "max u8[4], u8[4]",
                         "max bf16[3], bf16[3]",
                         "max f16[2, 1], f16[]",
                         "max f64[] in (0, 1), f64[] in (2, 3)",
                         "max bool[4], bool[4]",
                         "max i64[3], i64[]",
                         "max f32[0], f32[0]"};
        },
});

constinit const OpDef min = binary({
    .name = "min",
    .doc = "The smaller operand; NaN if either is. Equal operands share the derivative.",
    .types = Dtypes::ordered,
    .jvp = [](Builder& b, const Eqn& e, const Values& t) { return extreme_jvp(b, e, t, false); },
    .lower = map_primitive<ScalarOp::min>,
    .samples =
        [] {
          return Samples{"min f32[2, 3], f32[2, 3]",
                         "min f64[3], f64[] in (0, 0.1)",
                         "min i32[4], i32[4]",
                         "min bf16[3], bf16[3]",
                         "min f16[2, 1], f16[]",
                         "min f64[] in (0, 1), f64[] in (2, 3)",
                         "min f64[] in (0, 0.1), f64[2, 2]",
                         "min bool[4], bool[4]",
                         "min u8[4], u8[]",
                         "min f32[0], f32[0]"};
        },
});

constinit const OpDef clamp = elementwise(
    {
        .name = "clamp",
        .doc = "min(max(x, low), high), operands low, x, high: high where low > high, NaN if any operand is. On a "
               "bound the derivative is 0; outside it is the bound's.",
        .types = Dtypes::real,
        .jvp = clamp_jvp,
        .lower =
            [](const Eqn& e) {
              return map_of(e, [](ScalarBuilder& s, Refs in) {
                return s.emit(ScalarOp::min, s.emit(ScalarOp::max, in[1], in[0]), in[2]);
              });
            },
        .samples =
            [] {
              return Samples{"clamp f32[] in (-1, 0), f32[2, 3], f32[] in (0, 1)",
                             "clamp f64[4] in (-1, 0), f64[4], f64[4] in (0, 1)",
                             "clamp i32[], i32[5], i32[]",
                             "clamp f64[] in (-1, 0), f64[3], f64[3] in (0, 1)",
                             "clamp bf16[3], bf16[3], bf16[3]",
                             "clamp f16[], f16[2, 1], f16[]",
                             "clamp f64[] in (-1, 0), f64[], f64[] in (0, 1)",
                             "clamp u8[], u8[4], u8[4]",
                             "clamp f32[], f32[0], f32[]"};
            },
    },
    3);

}  // namespace sheaf::ir::ops
