// Changes of dtype, and the gradient barrier.
#include "ir/ops/sheet.h"

namespace sheaf::ir::ops {
namespace {

// f8 types exist for storage: they may be converted, and nothing else.
absl::StatusOr<std::vector<DType>> convert_dtypes(const Eqn& e) {
  const DType to = e.attrs<Convert>().to;
  if (is_complex(to) || is_complex(e.in(0).dtype()) || to == DType::token)
    return absl::InvalidArgumentError(fmt::format("no conversion from {} to {}", name(e.in(0).dtype()), name(to)));
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

Lowering pass_through(const Eqn& e) {
  ScalarBuilder s;
  return lowering::Map{s.finish(s.arg(0, e.in(0).dtype()))};
}

}  // namespace

constinit const OpDef convert = unary({
    .name = "convert",
    .doc = "The value in another dtype. To floats: nearest, ties to even. Float to integer: toward zero, saturating, "
           "NaN is "
           "0. Integer to integer: wraps. To bool: x != 0.",
    .attrs = attrs_of<Convert>(),
    .dtypes = convert_dtypes,
    .linear_when =
        [](const Eqn& e) { return is_float(e.in(0).dtype()) && is_float(e.out().dtype()) ? jointly(1) : Linear{}; },
    .transpose = [](Builder&, const Eqn& e, const Values&, const Values& ct) -> Values {
      return {convert_to(ct[0], e.in(0).dtype())};
    },
    .no_jvp = Absent::piecewise_constant,
    .lower = [](const Eqn& e) -> Lowering {
      ScalarBuilder s;
      return lowering::Map{s.finish(s.convert(s.arg(0, e.in(0).dtype()), e.attrs<Convert>().to))};
    },
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
                         "convert i8[4] {to=bool}"};
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

constinit const OpDef stop_gradient = unary({
    .name = "stop_gradient",
    .doc = "x, treated as a constant by every derivative.",
    .no_jvp = Absent::by_definition,
    .lower = pass_through,
    .eval = eval_bits,
    .samples =
        [] {
          return Samples{"stop_gradient f32[2, 3]", "stop_gradient i32[3]",  "stop_gradient bf16[2, 1]",
                         "stop_gradient f64[]",     "stop_gradient bool[3]", "stop_gradient f16[0]"};
        },
});

}  // namespace sheaf::ir::ops
