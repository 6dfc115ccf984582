// Comparisons and select. Comparisons give bool and carry no tangent; select is linear in its cases, and its transpose
// never multiplies: what was not chosen gets an exact zero, whatever the other case's derivative is.
#include "ir/ops/complex.h"
#include "ir/ops/sheet.h"

namespace sheaf::ir::ops {
namespace {

absl::StatusOr<std::vector<DType>> comparison_dtypes(const Eqn& e) {
  if (e.in(0).dtype() != e.in(1).dtype())
    return absl::InvalidArgumentError(fmt::format("operands 0 ({}) and 1 ({}) must have the same dtype",
                                                  to_string(e.in(0).type()), to_string(e.in(1).type())));
  return std::vector<DType>{DType::bool_};
}

constexpr OpDef comparison(OpDef d) {
  if (!d.on_parts) d.types = Dtypes::ordered;  // complex numbers are equal or not, and have no order
  d.dtypes = comparison_dtypes;
  d.no_jvp = Absent::integer_result;
  return binary(d);
}

absl::StatusOr<std::vector<DType>> select_dtypes(const Eqn& e) {
  if (!is_bool(e.in(0).dtype()))
    return absl::InvalidArgumentError(fmt::format("the predicate must be bool, not {}", to_string(e.in(0).type())));
  if (e.in(1).dtype() != e.in(2).dtype())
    return absl::InvalidArgumentError(fmt::format("operands 1 ({}) and 2 ({}) must have the same dtype",
                                                  to_string(e.in(1).type()), to_string(e.in(2).type())));
  return std::vector<DType>{e.in(1).dtype()};
}

Values select_transpose(Builder& b, const Eqn& e, const Values& x, const Values& ct) {
  const Value zero = b.zeros(ct[0].type());
  Values in(3);
  if (!x[1]) in[1] = unbroadcast(b.emit(select, {x[0], ct[0], zero}), e.in(1).type());
  if (!x[2]) in[2] = unbroadcast(b.emit(select, {x[0], zero, ct[0]}), e.in(2).type());
  return in;
}

}  // namespace

constinit const OpDef eq = comparison({
    .name = "eq",
    .doc = "x == y; false if either is NaN.",
    .types = Dtypes::any_number,
    .lower = map_primitive<ScalarOp::eq>,
    .on_parts = eq_on_parts,
    .samples =
        [] {
          return Samples{"eq i32[9], i32[9]",     "eq f32[2, 3], f32[]", "eq bool[5], bool[5]", "eq f64[], f64[]",
                         "eq bf16[2, 1], bf16[]", "eq f16[3], f16[3]",   "eq u8[0], u8[]",      "eq c64[3], c64[]"};
        },
});
constinit const OpDef ne = comparison({
    .name = "ne",
    .doc = "x != y; true if either is NaN.",
    .types = Dtypes::any_number,
    .lower = map_primitive<ScalarOp::ne>,
    .on_parts = ne_on_parts,
    .samples =
        [] {
          return Samples{"ne i32[9], i32[9]",   "ne f64[2, 3], f64[2, 3]",   "ne f16[], f16[3]",
                         "ne bf16[3], bf16[3]", "ne bool[2, 1], bool[2, 1]", "ne i64[0], i64[0]",
                         "ne c128[2], c128[2]"};
        },
});
constinit const OpDef lt = comparison({
    .name = "lt",
    .doc = "x < y; false if either is NaN.",
    .lower = map_primitive<ScalarOp::lt>,
    .samples =
        [] {
          return Samples{"lt i32[9], i32[9]", "lt f32[2, 3], f32[2, 3]", "lt u8[4], u8[4]",   "lt bf16[4], bf16[4]",
                         "lt f64[], f64[]",   "lt i8[2, 1], i8[]",       "lt f16[3], f16[3]", "lt f32[0], f32[0]"};
        },
});
constinit const OpDef le = comparison({
    .name = "le",
    .doc = "x <= y; false if either is NaN.",
    .lower = map_primitive<ScalarOp::le>,
    .samples =
        [] {
          return Samples{"le i32[9], i32[9]",   "le f32[2, 3], f32[2, 3]", "le f64[], f64[3]", "le u64[2, 1], u64[]",
                         "le bool[3], bool[3]", "le bf16[0], bf16[0]",     "le f16[4], f16[]", "le bf16[4], bf16[4]"};
        },
});
constinit const OpDef gt = comparison({
    .name = "gt",
    .doc = "x > y; false if either is NaN.",
    .lower = map_primitive<ScalarOp::gt>,
    .samples =
        [] {
          return Samples{"gt i64[9], i64[9]",   "gt f32[2, 3], f32[2, 3]", "gt bool[5], bool[5]", "gt f64[], f64[3]",
                         "gt u16[2, 1], u16[]", "gt bf16[0], bf16[0]",     "gt f16[4], f16[4]",   "gt bf16[4], bf16[]"};
        },
});
constinit const OpDef ge = comparison({
    .name = "ge",
    .doc = "x >= y; false if either is NaN.",
    .lower = map_primitive<ScalarOp::ge>,
    .samples =
        [] {
          return Samples{"ge i32[9], i32[9]",   "ge f16[2, 3], f16[2, 3]", "ge f64[], f64[]",
                         "ge bf16[4], bf16[4]", "ge i16[2, 1], i16[]",     "ge u32[0], u32[]"};
        },
});

constinit const OpDef select = elementwise(
    {
        .name = "select",
        .doc = "Operand 1 where the predicate (operand 0) holds, else operand 2.",
        .types = Dtypes::any_number,
        .dtypes = select_dtypes,
        .linear = jointly(0b110),
        .transpose = select_transpose,
        .lower = [](const Eqn& e) -> Lowering {
          ScalarBuilder s;  // no rounding: the chosen operand's bits pass through, half types and NaNs included
          const DType t = e.out().dtype();
          const DType bits = !is_float(t) || size_bytes(t) > 2 ? t : size_bytes(t) == 2 ? DType::u16 : DType::u8;
          const auto chosen = s.emit(ScalarOp::select, s.arg(0, DType::bool_), s.bitcast(s.arg(1, t), bits),
                                     s.bitcast(s.arg(2, t), bits));
          return lowering::Map{s.finish(s.bitcast(chosen, t))};
        },
        .samples =
            [] {
              return Samples{"select bool[2, 3], f32[2, 3], f32[2, 3]",
                             "select bool[], f64[3], f64[3]",
                             "select bool[3], f64[], f64[3]",
                             "select bool[4], i32[4], i32[]",
                             "select bool[3], bf16[3], bf16[3]",
                             "select bool[4], bool[4], bool[4]",
                             "select bool[2, 1], f16[2, 1], f16[]",
                             "select bool[], f64[], f64[]",
                             "select bool[], u8[3], u8[]",
                             "select bool[0], f32[0], f32[]",
                             "select bool[3], c64[3], c64[]",
                             "select bool[], c128[2], c128[2]"};
            },
    },
    3);

}  // namespace sheaf::ir::ops
