// Changes of dtype and of precision, and the gradient barrier.
#include "ir/ops/complex.h"
#include "ir/ops/sheet.h"

namespace sheaf::ir::ops {
namespace {

// f8 types exist for storage: they may be converted, and nothing else.
absl::StatusOr<std::vector<DType>> convert_dtypes(const Eqn& e) {
  const DType from = e.in(0).dtype(), to = e.attrs<Convert>().to;
  if ((is_complex(from) && !is_complex(to) && !is_bool(to)) || to == DType::token)
    return absl::InvalidArgumentError(fmt::format("no conversion from {} to {}", name(from), name(to)));
  return std::vector<DType>{to};
}

absl::StatusOr<std::vector<DType>> bitcast_dtypes(const Eqn& e) {
  const DType from = e.in(0).dtype(), to = e.attrs<Bitcast>().to;
  if (is_complex(from) || is_complex(to) || is_bool(from) || is_bool(to))  // a bool has one valid bit of eight
    return absl::InvalidArgumentError(fmt::format("no bits of {} as {}", name(from), name(to)));
  if (size_bytes(from) != size_bytes(to))
    return absl::InvalidArgumentError(fmt::format("{} ({} bytes) and {} ({} bytes) must have the same size", name(from),
                                                  size_bytes(from), name(to), size_bytes(to)));
  return std::vector<DType>{to};
}

void eval_bits(const Eqn&, std::span<const Literal> in, std::span<Literal> out) {
  std::copy_n(in[0].data(), in[0].bytes(), out[0].data());
}

// Where the fields of an IEEE format lie.
struct Format {
  int exponent_bits, mantissa_bits;
};
Format format_of(DType t) {
  if (t == DType::f16) return {5, 10};
  if (t == DType::f64) return {11, 52};
  return {8, t == DType::bf16 ? 7 : 23};
}

absl::StatusOr<std::vector<DType>> reduce_precision_dtypes(const Eqn& e) {
  const ReducePrecision& a = e.attrs<ReducePrecision>();
  if (a.exponent_bits < 1 || a.mantissa_bits < 0)
    return absl::InvalidArgumentError(fmt::format("needs at least 1 exponent bit and 0 mantissa bits, not {} and {}",
                                                  a.exponent_bits, a.mantissa_bits));
  return std::vector<DType>{e.in(0).dtype()};
}

// The bits of a finite number rounded to fewer mantissa bits, half to even: a carry out of the mantissa runs into the
// exponent, where it belongs.
ScalarRef round_mantissa(ScalarBuilder& s, ScalarRef bits, int dropped) {
  const DType t = s.dtype(bits);
  const std::uint64_t last = std::uint64_t{1} << dropped;
  const ScalarRef is_odd = s.emit(
      ScalarOp::and_, s.emit(ScalarOp::shr_logical, bits, s.constant_bits(t, static_cast<std::uint64_t>(dropped))),
      s.constant_bits(t, 1));
  const ScalarRef bias = s.emit(ScalarOp::add, is_odd, s.constant_bits(t, last / 2 - 1));
  const std::uint64_t mask = ~(last - 1) & (~std::uint64_t{0} >> (64 - 8 * size_bytes(t)));
  return s.emit(ScalarOp::and_, s.emit(ScalarOp::add, bits, bias), s.constant_bits(t, mask));
}

// Infinity where the exponent is above the range of `bits` exponent bits, zero where it is below that of their normal
// numbers; both keep the sign.
ScalarRef limit_exponent(ScalarBuilder& s, ScalarRef x, Format from, int bits) {
  const DType t = s.dtype(x);
  const std::uint64_t bias = (std::uint64_t{1} << (from.exponent_bits - 1)) - 1;
  const std::uint64_t reduced_bias = (std::uint64_t{1} << (bits - 1)) - 1;
  const std::uint64_t all_ones = (2 * bias + 1) << from.mantissa_bits;
  const ScalarRef exponent = s.emit(ScalarOp::and_, x, s.constant_bits(t, all_ones));
  const ScalarRef sign =
      s.emit(ScalarOp::and_, x, s.constant_bits(t, std::uint64_t{1} << (from.exponent_bits + from.mantissa_bits)));
  const ScalarRef is_over =
      s.emit(ScalarOp::gt, exponent, s.constant_bits(t, (bias + reduced_bias) << from.mantissa_bits));
  const ScalarRef is_under =
      s.emit(ScalarOp::le, exponent, s.constant_bits(t, (bias - reduced_bias) << from.mantissa_bits));
  const ScalarRef infinity = s.emit(ScalarOp::or_, sign, s.constant_bits(t, all_ones));
  return s.emit(ScalarOp::select, is_over, infinity, s.emit(ScalarOp::select, is_under, sign, x));
}

// Everything happens on the bits, in u32 or u64. A NaN stays as it is; without mantissa bits none can be told, and it
// becomes infinity.
Lowering lower_reduce_precision(const Eqn& e) {
  const ReducePrecision& a = e.attrs<ReducePrecision>();
  const DType t = e.in(0).dtype();
  const Format from = format_of(t);
  const DType same = size_bytes(t) == 2 ? DType::u16 : size_bytes(t) == 4 ? DType::u32 : DType::u64;
  const DType wide = size_bytes(t) == 8 ? DType::u64 : DType::u32;
  ScalarBuilder s;
  const ScalarRef bits = s.convert(s.bitcast(s.arg(0, t), same), wide);
  ScalarRef y = bits;
  if (a.mantissa_bits < from.mantissa_bits) y = round_mantissa(s, y, from.mantissa_bits - a.mantissa_bits);
  if (a.exponent_bits < from.exponent_bits) y = limit_exponent(s, y, from, a.exponent_bits);
  const std::uint64_t top = std::uint64_t{1} << (from.exponent_bits + from.mantissa_bits);
  const std::uint64_t infinity = top - (std::uint64_t{1} << from.mantissa_bits);
  const ScalarRef magnitude = s.emit(ScalarOp::and_, bits, s.constant_bits(wide, top - 1));
  const ScalarRef is_nan = s.emit(ScalarOp::gt, magnitude, s.constant_bits(wide, infinity));
  y = s.emit(ScalarOp::select, is_nan, a.mantissa_bits > 0 ? bits : s.constant_bits(wide, infinity), y);
  return lowering::Map{s.finish(s.bitcast(s.convert(y, same), t))};
}

Lowering pass_through(const Eqn& e) {
  ScalarBuilder s;
  return lowering::Map{s.finish(s.arg(0, e.in(0).dtype()))};
}

}  // namespace

constinit const OpDef convert = unary({
    .name = "convert",
    .doc = "The value in another dtype. To floats: nearest, ties to even. Float to integer: toward zero, saturating, "
           "NaN is "
           "0. Integer to integer: wraps. To bool: x != 0. To complex: beside an imaginary part of 0.",
    .attrs = attrs_of<Convert>(),
    .dtypes = convert_dtypes,
    .linear_when =
        [](const Eqn& e) {
          return is_differentiable(e.in(0).dtype()) && is_differentiable(e.attrs<Convert>().to) ? jointly(1) : Linear{};
        },
    .transpose = [](Builder& b, const Eqn& e, const Values&, const Values& ct) -> Values {
      const bool from_real = is_complex(ct[0].dtype()) && !is_complex(e.in(0).dtype());
      return {convert_to(from_real ? b.emit(real, {ct[0]}) : ct[0], e.in(0).dtype())};
    },
    .no_jvp = Absent::piecewise_constant,
    .lower = [](const Eqn& e) -> Lowering {
      ScalarBuilder s;
      return lowering::Map{s.finish(s.convert(s.arg(0, e.in(0).dtype()), e.attrs<Convert>().to))};
    },
    .on_parts = convert_on_parts,
    .samples =
        [] {
          return Samples{"convert f32[2, 3] {to=f64}",
                         "convert f64[4]",
                         "convert f32[5] in (-300, 300) {to=i8}",
                         "convert f32[3] {to=bf16}",
                         "convert bf16[3]",
                         "convert f32[3] {to=f16}",
                         "convert i32[4] {to=u8}",
                         "convert i64[4]",
                         "convert bool[4]",
                         "convert f32[4] {to=bool}",
                         "convert f32[3] {to=f8e4m3}",
                         "convert f16[3] {to=bf16}",
                         "convert u8[4] {to=i64}",
                         "convert f64[] {to=f32}",
                         "convert f64[2, 1] {to=f16}",
                         "convert f32[0] {to=i32}",
                         "convert u64[3] {to=f16}",
                         "convert f8e5m2[3] {to=f32}",
                         "convert i8[4] {to=bool}",
                         "convert f32[3] {to=c64}",
                         "convert f64[3] {to=c128}",
                         "convert i32[2] {to=c128}",
                         "convert c64[3] {to=c128}",
                         "convert c128[2] {to=c64}",
                         "convert c64[3] {to=bool}"};
        },
});

constinit const OpDef bitcast = unary({
    .name = "bitcast",
    .doc = "The same bits as another dtype of the same size.",
    .attrs = attrs_of<Bitcast>(),
    .dtypes = bitcast_dtypes,
    .no_jvp = Absent::integer_result,
    .lower = [](const Eqn& e) -> Lowering {
      ScalarBuilder s;
      return lowering::Map{s.finish(s.bitcast(s.arg(0, e.in(0).dtype()), e.attrs<Bitcast>().to))};
    },
    .eval = eval_bits,
    .samples =
        [] {
          return Samples{"bitcast f32[2, 3] {to=u32}", "bitcast u32[4] in (0, 999)",  "bitcast f64[3] {to=i64}",
                         "bitcast bf16[3] {to=u16}",   "bitcast f16[2, 1] {to=bf16}", "bitcast i8[] {to=u8}",
                         "bitcast u64[0] {to=f64}"};
        },
});

constinit const OpDef reduce_precision = unary({
    .name = "reduce_precision",
    .doc =
        "x rounded to a format of `exponent_bits` and `mantissa_bits`, in x's dtype: to nearest, ties to even. What is "
        "too large becomes infinite; with fewer exponent bits than the dtype's, what is below the format's normal numbers "
        "becomes zero. A NaN stays, but for 0 mantissa bits, where it is infinite. Tangents are rounded likewise.",
    .types = Dtypes::floating,
    .attrs = attrs_of<ReducePrecision>(),
    .dtypes = reduce_precision_dtypes,
    .linear = jointly(1),
    .transpose = [](Builder& b, const Eqn& e, const Values&, const Values& ct) -> Values {
      return {b.emit(reduce_precision, {ct[0]}, e.attrs<ReducePrecision>())};
    },
    .lower = lower_reduce_precision,
    .samples =
        [] {
          return Samples{"reduce_precision f32[5] {exponent_bits=5, mantissa_bits=10}",
                         "reduce_precision f32[4] in (-99999, 99999) {exponent_bits=5, mantissa_bits=2}",
                         "reduce_precision f64[3] {exponent_bits=8, mantissa_bits=52}",
                         "reduce_precision f32[2, 3] {exponent_bits=4, mantissa_bits=0}",
                         "reduce_precision bf16[4] {exponent_bits=8, mantissa_bits=3}",
                         "reduce_precision f16[3] {exponent_bits=4, mantissa_bits=3}",
                         "reduce_precision f32[] {exponent_bits=1, mantissa_bits=23}",
                         "reduce_precision f32[0]"};
        },
});

constinit const OpDef stop_gradient = unary({
    .name = "stop_gradient",
    .doc = "x, treated as a constant by every derivative.",
    .no_jvp = Absent::by_definition,
    .manual = [](const Eqn& e) -> absl::StatusOr<Manual> { return e.in(0).type().manual(); },  // a sum stays one
    .lower = pass_through,
    .on_parts = each_part,
    .eval = eval_bits,
    .samples =
        [] {
          return Samples{"stop_gradient f32[2, 3]", "stop_gradient i32[3]",  "stop_gradient bf16[2, 1]",
                         "stop_gradient f64[]",     "stop_gradient bool[3]", "stop_gradient f16[0]",
                         "stop_gradient c64[2]"};
        },
});

}  // namespace sheaf::ir::ops
