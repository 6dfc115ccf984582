// Ops on bits: logic, shifts and counts, each one exact scalar operation on integers. No result carries a tangent.
#include "ir/ops/sheet.h"

namespace sheaf::ir::ops {

constinit const OpDef not_ = unary({
    .name = "not",
    .doc = "Bitwise complement; logical for bool.",
    .types = Dtypes::bits,
    .no_jvp = Absent::integer_result,
    .lower = map_primitive<ScalarOp::not_>,
    .samples =
        [] {
          return Samples{"not bool[5]", "not i32[2, 2]", "not u64[3]", "not i8[3]",
                         "not u16[3]",  "not i64[]",     "not bool[0]"};
        },
});

constinit const OpDef popcount = unary({
    .name = "popcount",
    .doc = "The number of one bits.",
    .types = Dtypes::integral,
    .no_jvp = Absent::integer_result,
    .lower = map_primitive<ScalarOp::popcount>,
    .samples =
        [] {
          return Samples{"popcount i32[5]", "popcount u8[4] in (0, 255)", "popcount i64[3]", "popcount i16[2, 1]",
                         "popcount u32[]",  "popcount u64[3] in (0, 99)", "popcount i8[0]"};
        },
});

constinit const OpDef clz = unary({
    .name = "clz",
    .doc = "The number of leading zero bits; the width for 0.",
    .types = Dtypes::integral,
    .no_jvp = Absent::integer_result,
    .lower = map_primitive<ScalarOp::clz>,
    .samples =
        [] {
          return Samples{"clz i32[5]", "clz u16[4] in (0, 999)", "clz i64[3]", "clz i8[2, 1]",
                         "clz u32[]",  "clz u64[3] in (0, 99)",  "clz i32[0]"};
        },
});

constinit const OpDef and_ = binary({
    .name = "and",
    .doc = "Bitwise and; logical for bool.",
    .types = Dtypes::bits,
    .no_jvp = Absent::integer_result,
    .lower = map_primitive<ScalarOp::and_>,
    .samples =
        [] {
          return Samples{"and bool[5], bool[5]", "and i32[2, 2], i32[]", "and u8[3], u8[3]", "and bool[], bool[3]",
                         "and i64[0], i64[0]"};
        },
});

constinit const OpDef or_ = binary({
    .name = "or",
    .doc = "Bitwise or; logical for bool.",
    .types = Dtypes::bits,
    .no_jvp = Absent::integer_result,
    .lower = map_primitive<ScalarOp::or_>,
    .samples =
        [] {
          return Samples{"or bool[5], bool[5]", "or i32[2, 2], i32[]", "or u16[2, 1], u16[2, 1]", "or bool[3], bool[]",
                         "or i64[0], i64[]"};
        },
});

constinit const OpDef xor_ = binary({
    .name = "xor",
    .doc = "Bitwise exclusive or.",
    .types = Dtypes::bits,
    .no_jvp = Absent::integer_result,
    .lower = map_primitive<ScalarOp::xor_>,
    .samples =
        [] {
          return Samples{"xor bool[5], bool[5]", "xor u32[2, 2], u32[2, 2]", "xor bool[], bool[3]",
                         "xor i8[2, 1], i8[]", "xor u64[0], u64[0]"};
        },
});

constinit const OpDef shl = binary({
    .name = "shl",
    .doc = "x shifted left by y bits; 0 for y (as unsigned) of the width or more.",
    .types = Dtypes::integral,
    .no_jvp = Absent::integer_result,
    .lower = map_primitive<ScalarOp::shl>,
    .samples =
        [] {
          return Samples{"shl i32[5], i32[5] in (0, 40)", "shl u8[4], u8[] in (0, 9)",
                         "shl i64[2, 1], i64[] in (0, 70)", "shl i16[], i16[3] in (0, 20)", "shl u32[0], u32[0]"};
        },
});

constinit const OpDef shr_arith = binary({
    .name = "shr_arith",
    .doc = "x shifted right by y bits, copies of the sign coming in; all sign for y of the width or more.",
    .types = Dtypes::integral,
    .no_jvp = Absent::integer_result,
    .lower = map_primitive<ScalarOp::shr_arith>,
    .samples =
        [] {
          return Samples{"shr_arith i32[5] in (-99, 99), i32[5] in (0, 40)", "shr_arith i64[3], i64[]",
                         "shr_arith i8[], i8[4] in (0, 10)", "shr_arith u32[2, 1], u32[] in (0, 40)",
                         "shr_arith i32[0], i32[]"};
        },
});

constinit const OpDef shr_logical = binary({
    .name = "shr_logical",
    .doc = "x shifted right by y bits, zeros coming in; 0 for y of the width or more.",
    .types = Dtypes::integral,
    .no_jvp = Absent::integer_result,
    .lower = map_primitive<ScalarOp::shr_logical>,
    .samples =
        [] {
          return Samples{"shr_logical u32[5] in (0, 99), u32[5] in (0, 40)", "shr_logical i16[3], i16[3]",
                         "shr_logical i8[4], i8[] in (0, 10)", "shr_logical u64[], u64[2, 1] in (0, 70)",
                         "shr_logical u32[0], u32[]"};
        },
});

}  // namespace sheaf::ir::ops
