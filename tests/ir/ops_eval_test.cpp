// The reference's values where a convention had to be chosen (docs/numerics.md), and the shapes ops refuse.
#include "ir/text.h"
#include "tests/ir/one_op.h"

using namespace sheaf;
using namespace sheaf::ir;

namespace {

const std::vector<DType> kSignedInts = {i8, i16, i32, i64};
const std::vector<DType> kUnsignedInts = {u8, u16, u32, u64};
const std::vector<DType> kFloats = {f16, bf16, f32, f64};

// The bits of the lowest value of a signed type, and of -1.
std::uint64_t lowest_bits(DType t) { return std::uint64_t{1} << (8 * size_bytes(t) - 1); }
std::uint64_t all_bits(DType t) { return ~std::uint64_t{0} >> (64 - 8 * size_bytes(t)); }

Literal of_bits(DType t, const std::vector<std::uint64_t>& bits) {
  Literal x(Type(t, {static_cast<std::int64_t>(bits.size())}));
  for (std::size_t i = 0; i < bits.size(); ++i) x.set_bits(static_cast<std::int64_t>(i), bits[i]);
  return x;
}

std::vector<std::uint64_t> bits(const Literal& x) {
  std::vector<std::uint64_t> b;
  for (std::int64_t i = 0; i < x.size(); ++i) b.push_back(x.bits(i));
  return b;
}

Literal convert(const Literal& x, DType to) { return run(ops::convert, {x}, with(ops::Convert{.to = to})); }

}  // namespace

TEST_CASE("max and min are NaN when either operand is, and -0 lies below +0") {
  for (DType t : kFloats) {
    const Literal x = vec(t, {kNan, 1, -0.0, 0.0, kInf, -kInf, 2});
    const Literal y = vec(t, {1, kNan, 0.0, -0.0, 1, 1, 3});
    check_values(run(ops::max, {x, y}), {kNan, kNan, 0.0, 0.0, kInf, 1, 3});
    check_values(run(ops::min, {x, y}), {kNan, kNan, -0.0, -0.0, 1, -kInf, 2});
  }
}

TEST_CASE("sign keeps NaN and the sign of zero") {
  for (DType t : kFloats)
    check_values(run(ops::sign, {vec(t, {kNan, -0.0, 0.0, -3, 3, -kInf})}), {kNan, -0.0, 0.0, -1, 1, -1});
  check_values(run(ops::sign, {vec(u8, {0, 200})}), {0, 1});
  check_values(run(ops::sign, {vec(i8, {-128, 0, 5})}), {-1, 0, 1});
}

TEST_CASE("clamp takes high where low lies above it, and NaN from any operand") {
  const Literal low = vec(f32, {0, 0, 0, 2, kNan, 0, 0}), x = vec(f32, {-1, 0.5, 9, 1.5, 1, kNan, 1}),
                high = vec(f32, {1, 1, 1, 1, 2, 1, kNan});
  check_values(run(ops::clamp, {low, x, high}), {0, 0.5, 1, 1, kNan, kNan, kNan});
}

TEST_CASE("halves round to the even integer, and rounding keeps the sign of zero") {
  for (DType t : kFloats) {
    check_values(run(ops::round, {vec(t, {0.5, 1.5, 2.5, -0.5, -1.5, kInf, kNan})}), {0, 2, 2, -0.0, -2, kInf, kNan});
    check_values(run(ops::floor, {vec(t, {-0.5, 0.5, -0.0})}), {-1, 0, -0.0});
    check_values(run(ops::ceil, {vec(t, {-0.5, 0.5, -0.0})}), {-0.0, 1, -0.0});
  }
}

TEST_CASE("every pair of i8 divides as in C, and division by zero is defined") {
  Literal x(Type(i8, {256 * 256})), y(Type(i8, {256 * 256}));
  for (int i = 0; i < 256 * 256; ++i) {
    x.set_int(i, i / 256 - 128);
    y.set_int(i, i % 256 - 128);
  }
  const Literal quotient = run(ops::div, {x, y}), remainder = run(ops::rem, {x, y});
  int wrong = 0;
  for (int i = 0; i < 256 * 256; ++i) {
    const int a = i / 256 - 128, b = i % 256 - 128;
    const int q = b == 0 ? -1 : static_cast<std::int8_t>(a / b), r = b == 0 ? a : a % b;
    wrong += quotient.get_int(i) != q || remainder.get_int(i) != r;
  }
  CHECK(wrong == 0);
}

TEST_CASE("the lowest integer divided by -1 is itself, with remainder 0, and x / 0 has all bits set") {
  for (DType t : kSignedInts) {
    const Literal x = of_bits(t, {lowest_bits(t), 7, lowest_bits(t)}), y = of_bits(t, {all_bits(t), 0, 0});
    CHECK(bits(run(ops::div, {x, y})) == std::vector{lowest_bits(t), all_bits(t), all_bits(t)});
    CHECK(bits(run(ops::rem, {x, y})) == std::vector<std::uint64_t>{0, 7, lowest_bits(t)});
  }
  for (DType t : kUnsignedInts) {
    const Literal x = of_bits(t, {7, all_bits(t)}), y = of_bits(t, {0, 2});
    CHECK(bits(run(ops::div, {x, y})) == std::vector<std::uint64_t>{all_bits(t), all_bits(t) / 2});
    CHECK(bits(run(ops::rem, {x, y})) == std::vector<std::uint64_t>{7, 1});
  }
}

TEST_CASE("integers wrap") {
  for (DType t : kSignedInts) {
    const Literal lowest = of_bits(t, {lowest_bits(t)}), one = of_bits(t, {1});
    CHECK(bits(run(ops::neg, {lowest})) == bits(lowest));
    CHECK(bits(run(ops::abs, {lowest})) == bits(lowest));
    CHECK(bits(run(ops::sub, {lowest, one})) == std::vector{lowest_bits(t) - 1});
    CHECK(bits(run(ops::mul, {lowest, lowest})) == std::vector<std::uint64_t>{0});
  }
  for (DType t : kUnsignedInts) CHECK(bits(run(ops::neg, {of_bits(t, {1})})) == std::vector{all_bits(t)});
}

TEST_CASE("shifts by the width or more give zeros, or copies of the sign") {
  for (DType t : kSignedInts) {
    const auto width = static_cast<std::uint64_t>(8 * size_bytes(t));
    const Literal x = of_bits(t, {lowest_bits(t), lowest_bits(t), lowest_bits(t), 3}),
                  by = of_bits(t, {width - 1, width, all_bits(t), width});
    CHECK(bits(run(ops::shl, {x, by})) == std::vector<std::uint64_t>{0, 0, 0, 0});
    CHECK(bits(run(ops::shr_arith, {x, by})) == std::vector<std::uint64_t>{all_bits(t), all_bits(t), all_bits(t), 0});
    CHECK(bits(run(ops::shr_logical, {x, by})) == std::vector<std::uint64_t>{1, 0, 0, 0});
  }
}

TEST_CASE("bits are counted in the operand's own width") {
  for (DType t : {i8, i16, i32, i64, u8, u16, u32, u64}) {
    const auto width = static_cast<std::uint64_t>(8 * size_bytes(t));
    CHECK(bits(run(ops::popcount, {of_bits(t, {0, 5, all_bits(t)})})) == std::vector<std::uint64_t>{0, 2, width});
    CHECK(bits(run(ops::clz, {of_bits(t, {0, 1, all_bits(t)})})) == std::vector<std::uint64_t>{width, width - 1, 0});
    CHECK(bits(run(ops::not_, {of_bits(t, {0, all_bits(t)})})) == std::vector<std::uint64_t>{all_bits(t), 0});
  }
  CHECK(bits(run(ops::not_, {of_bits(bool_, {0, 1})})) == std::vector<std::uint64_t>{1, 0});
}

TEST_CASE("a comparison with NaN is false, but not-equal is true") {
  for (DType t : kFloats) {
    const Literal x = vec(t, {kNan, 1, -0.0, kNan}), y = vec(t, {1, kNan, 0.0, kNan});
    for (const OpDef* op : {&ops::lt, &ops::gt}) check_values(run(*op, {x, y}), {0, 0, 0, 0});
    for (const OpDef* op : {&ops::eq, &ops::le, &ops::ge}) check_values(run(*op, {x, y}), {0, 0, 1, 0});
    check_values(run(ops::ne, {x, y}), {1, 1, 0, 1});
    check_values(run(ops::is_finite, {vec(t, {kNan, kInf, -kInf, 1})}), {0, 0, 0, 1});
  }
  check_values(run(ops::lt, {vec(u8, {1, 200}), vec(u8, {200, 1})}), {1, 0});
  check_values(run(ops::lt, {vec(bool_, {0, 1}), vec(bool_, {1, 0})}), {1, 0});
}

TEST_CASE("select passes every bit of what it chooses, NaN payloads included") {
  const Literal p = vec(bool_, {1, 0});
  CHECK(bits(run(ops::select, {p, of_bits(f32, {0x7fc12345, 1}), of_bits(f32, {2, 0x7f812345})})) ==
        std::vector<std::uint64_t>{0x7fc12345, 0x7f812345});
  CHECK(bits(run(ops::select, {p, of_bits(bf16, {0x7f81, 1}), of_bits(bf16, {2, 0xff83})})) ==
        std::vector<std::uint64_t>{0x7f81, 0xff83});
  check_values(run(ops::select, {Literal::scalar(bool_, 0), vec(i32, {1, 2}), Literal::scalar(i32, 7)}), {7, 7});
}

TEST_CASE("floats saturate into integers, and NaN becomes 0") {
  for (DType from : {f32, f64}) {
    const Literal x = vec(from, {kNan, kInf, -kInf, 1e30, -1e30, 2.9, -2.9});
    check_values(convert(x, i8), {0, 127, -128, 127, -128, 2, -2});
    check_values(convert(x, u8), {0, 255, 0, 255, 0, 2, 0});
    CHECK(bits(convert(x, i64)) == std::vector<std::uint64_t>{0, ~std::uint64_t{0} >> 1, lowest_bits(i64),
                                                              ~std::uint64_t{0} >> 1, lowest_bits(i64), 2,
                                                              static_cast<std::uint64_t>(-2)});
    CHECK(bits(convert(x, u64))[1] == ~std::uint64_t{0});
    check_values(convert(x, bool_), {1, 1, 1, 1, 1, 1, 1});
  }
  check_values(convert(vec(f16, {60000, -60000}), i16), {32767, -32768});
  check_values(convert(vec(f32, {0, -0.0}), bool_), {0, 0});
}

TEST_CASE("integers wrap into narrower ones and round once into floats") {
  check_values(convert(vec(i32, {300, -1, 128}), u8), {44, 255, 128});
  check_values(convert(vec(i32, {300, -129}), i8), {44, 127});
  check_values(convert(vec(i32, {16777217, 16777219}), f32), {16777216, 16777220});
  check_values(convert(of_bits(u64, {all_bits(u64)}), f32), {0x1p64});
  // Through f32 this would round twice, down to 2^60.
  check_values(convert(of_bits(i64, {(1ull << 60) + (1ull << 52) + 1}), bf16), {0x1p60 + 0x1p53});
}

TEST_CASE("floats round to bf16 to the nearest, ties to even, and all bf16 values return from f32") {
  CHECK(bits(convert(of_bits(f32, {0x3e89ccd5}), bf16)) == std::vector<std::uint64_t>{0x3e8a});
  check_values(convert(vec(f32, {257, 1828, 1837, std::numeric_limits<float>::max(), kNan}), bf16),
               {256, 1824, 1840, kInf, kNan});
  check_values(convert(of_bits(f32, {0x7f800001, 0x7fffffff}), bf16), {kNan, kNan});
  for (DType t : {bf16, f16}) {
    std::vector<std::uint64_t> all;
    for (std::uint64_t b = 0; b < 0x10000; ++b)
      if (!std::isnan(from_bits(t, b))) all.push_back(b);
    CHECK(bits(convert(convert(of_bits(t, all), f32), t)) == all);
  }
}

TEST_CASE("half types compute in f32 and round once") {
  check_values(run(ops::add, {vec(bf16, {256, 256}), vec(bf16, {1, 3})}), {256, 260});
  check_values(run(ops::mul, {vec(f16, {300}), vec(f16, {300})}), {kInf});
  check_values(run(ops::div, {vec(f16, {1}), vec(f16, {3})}), {from_bits(f16, to_bits(f16, 1.0 / 3))});
}

TEST_CASE("pow has C's special values") {
  const Literal x = vec(f64, {0, 0, -0.0, 1, kNan, -8, kInf, -1}),
                y = vec(f64, {0, -1, -1, kNan, 0, 1.0 / 3, -1, kInf});
  check_values(run(ops::pow, {x, y}), {1, kInf, -kInf, 1, 1, kNan, 0, 1});
}

TEST_CASE("functions have IEEE values at the ends of their domains") {
  for (DType t : {f32, f64}) {
    check_values(run(ops::log, {vec(t, {0, -1, 1, kInf})}), {-kInf, kNan, 0, kInf});
    check_values(run(ops::sqrt, {vec(t, {-0.0, -1, kInf})}), {-0.0, kNan, kInf});
    check_values(run(ops::rsqrt, {vec(t, {0, -1, kInf})}), {kInf, kNan, 0});
    check_values(run(ops::exp, {vec(t, {-kInf, kInf, 0, kNan})}), {0, kInf, 1, kNan});
    check_values(run(ops::tanh, {vec(t, {-kInf, kInf, -0.0})}), {-1, 1, -0.0});
    check_values(run(ops::logistic, {vec(t, {-kInf, kInf, 0})}), {0, 1, 0.5});
    check_values(run(ops::erf_inv, {vec(t, {-1, 1, 0, 2})}), {-kInf, kInf, 0, kNan});
    check_values(run(ops::atan2, {vec(t, {0, 0}), vec(t, {1, 0})}), {0, 0});
  }
}

TEST_CASE("a sheet states the error of the scalar function its kernels run") {
  for (const ScalarFunctionInfo& f : scalar_functions()) {
    INFO("function: ", std::string(f.name));
    if (const Op op = find_op(f.name)) CHECK(op->ulp == f.max_ulp_f32);
  }
}

TEST_CASE("iota wraps in narrow integers and rounds in narrow floats") {
  Literal bytes = run(ops::iota, {}, with(ops::Iota{.shape = {258}, .dim = {0}, .dtype = u8}));
  CHECK(bytes.get(257) == 1);
  Literal halves = run(ops::iota, {}, with(ops::Iota{.shape = {258}, .dim = {0}, .dtype = bf16}));
  CHECK(halves.get(257) == 256);
}

TEST_CASE("pad puts fill around and between, and crops where low or high is negative") {
  const Literal x = vec(f32, {1, 2, 3}), fill = Literal::scalar(f32, 9);
  const auto padded = [&](std::int64_t low, std::int64_t high, std::int64_t interior) {
    return run(ops::pad, {x, fill}, with(ops::Pad{.low = {low}, .high = {high}, .interior = {interior}}));
  };
  check_values(padded(1, 2, 0), {9, 1, 2, 3, 9, 9});
  check_values(padded(0, 0, 1), {1, 9, 2, 9, 3});
  check_values(padded(-1, -1, 1), {9, 2, 9});
  check_values(padded(-3, 2, 0), {9, 9});
  check_values(padded(-5, 4, 0), {9, 9});
  check_values(run(ops::pad, {vec(f32, {}), fill}, with(ops::Pad{.low = {1}, .high = {1}, .interior = {5}})), {9, 9});
}

TEST_CASE("an equation with a region runs it") {
  const FunctionRef square = [] {
    Builder b("square");
    const Value x = b.param(Type(f32, {2}));
    return b.finish({x * x});
  }();
  Builder b;
  const Value x = b.param(Type(f32, {2}));
  const Value once = b.emit_all(&ops::call, {x}, nullptr, {square})[0];
  const FunctionRef twice = b.finish({b.emit_all(&ops::call, {once}, nullptr, {square})[0], once});
  const Literals out = eval(*twice, Literals{vec(f32, {2, -3})});
  check_values(out[0], {16, 81});
  check_values(out[1], {4, 9});
}

TEST_CASE("reshape shares the factors its shapes have in common") {
  const auto factors = [](const Shape& from, const Shape& to) {
    const FunctionRef f = one_op(ops::reshape, {Literal(Type(f32, from))}, with(ops::Reshape{.shape = to}));
    return to_string(*ops::reshape.factors(*f->eqns()[0]));
  };
  CHECK(factors({6, 4}, {24}) == "(i j) -> ((i j))");
  CHECK(factors({24}, {2, 3, 4}) == "((i j k)) -> (i j k)");
  CHECK(factors({6, 4}, {2, 12}) == "((i j) k) -> (i (j k))");
  CHECK(factors({4, 3}, {3, 4}) == "(i l) -> (j k)  i:N  j:N  k:N  l:N");
  CHECK(factors({2, 1, 3}, {2, 3}) == "(i j k) -> (i k)");
  CHECK(factors({}, {1, 1}) == "() -> (i j)");
}

TEST_CASE("refused shapes and dtypes are named with both sides") {
  const Type x(f32, {2, 3}), y(f32, {3});
  CHECK(refusal(ops::add, {x, y}) == "operands 0 (f32[2, 3]) and 1 (f32[3]) must have the same shape");
  CHECK(refusal(ops::add, {y, Type(f32, {4})}) == "operands 0 (f32[3]) and 1 (f32[4]) must have the same shape");
  CHECK(refusal(ops::add, {y, Type(bf16, {3})}) == "operands 0 (f32[3]) and 1 (bf16[3]) must have the same dtype");
  CHECK(refusal(ops::add, {x}) == "takes 2 operands, not 1");
  CHECK(refusal(ops::add, {Type(bool_, {3}), Type(bool_, {3})}) == "operand 0 (bool[3]) must be a number");
  CHECK(refusal(ops::exp, {Type(i32, {3})}) == "operand 0 (i32[3]) must be floating point or complex");
  CHECK(refusal(ops::lt, {y, Type(f64, {3})}) == "operands 0 (f32[3]) and 1 (f64[3]) must have the same dtype");
  CHECK(refusal(ops::select, {y, y, y}) == "the predicate must be bool, not f32[3]");
  CHECK(refusal(ops::select, {Type(bool_, {3}), y, Type(i32, {3})}) ==
        "operands 1 (f32[3]) and 2 (i32[3]) must have the same dtype");
  CHECK(refusal(ops::bitcast, {y}, with(ops::Bitcast{.to = i64})) ==
        "f32 (4 bytes) and i64 (8 bytes) must have the same size");
  CHECK(refusal(ops::bitcast, {Type(u8, {3})}, with(ops::Bitcast{.to = bool_})) == "no bits of u8 as bool");
  CHECK(refusal(ops::convert, {Type(c64, {3})}, with(ops::Convert{.to = f32})) == "no conversion from c64 to f32");
}

TEST_CASE("refused shape attributes are named with the dim and the sizes") {
  const Type x(f32, {2, 3});
  const auto broadcast = [&](Shape shape, std::vector<std::int64_t> dims) {
    ops::Broadcast attrs;
    attrs.shape.assign(shape.begin(), shape.end());
    attrs.dims.assign(dims.begin(), dims.end());
    return refusal(ops::broadcast, {x}, with(attrs));
  };
  CHECK(broadcast({2, 4}, {0, 1}) ==
        "cannot broadcast f32[2, 3] to [2, 4]: dim 1 (3) must be 1 or dim 1 of the result (4)");
  CHECK(broadcast({2, 3}, {0}) == "dims [0] must have one entry for each of the 2 dims");
  CHECK(broadcast({2, 3}, {0, 2}) == "dims [0, 2] must lie in [0, 2), 2 is outside");
  CHECK(broadcast({2, 3}, {1, 1}) == "dims [1, 1] must not repeat 1");
  CHECK(broadcast({2, -3}, {0, 1}) == "shape [2, -3] must not be negative");
  CHECK(refusal(ops::reshape, {x}, with(ops::Reshape{.shape = {4}})) ==
        "cannot reshape f32[2, 3] (6 elements) to [4] (4 elements)");
  CHECK(refusal(ops::transpose, {x}, with(ops::Transpose{.perm = {0}})) ==
        "perm [0] must have one entry for each of the 2 dims");
  CHECK(refusal(ops::slice, {x}, with(ops::Slice{.start = {0, 1}, .limit = {2, 4}, .stride = {1, 1}})) ==
        "slice [1:4:1] of dim 1 of f32[2, 3]: need 0 <= start <= limit <= 3 and stride >= 1");
  CHECK(refusal(ops::pad, {x, Type(f32, {1})}, with(ops::Pad{.low = {0, 0}, .high = {0, 0}, .interior = {0, 0}})) ==
        "the fill must be rank 0, not f32[1]");
  CHECK(refusal(ops::pad, {x, Type(f32, {})}, with(ops::Pad{.low = {0, -3}, .high = {0, -1}, .interior = {0, 0}})) ==
        "dim 1 of f32[2, 3] cannot be padded by low -3, high -1 and interior 0");
  CHECK(refusal(ops::concatenate, {x, Type(f32, {3, 3})}, with(ops::Concatenate{.dim = {1}})) ==
        "operands 0 (f32[2, 3]) and 1 (f32[3, 3]) must agree in every dim but 1");
  CHECK(refusal(ops::concatenate, {}, with(ops::Concatenate{.dim = {0}})) == "needs at least one operand");
  CHECK(refusal(ops::iota, {}, with(ops::Iota{.shape = {2}, .dim = {1}})) ==
        "dim [1] must lie in [0, 1), 1 is outside");
  CHECK(refusal(ops::iota, {}, with(ops::Iota{.shape = {2}, .dim = {0}, .dtype = bool_})) ==
        "dtype must be an integer or floating point, not bool");
  CHECK(refusal(ops::constant, {}, with(ops::Constant{.dtype = f32, .dims = {2}, .hex = "00"})) ==
        "hex must hold 8 bytes of f32[2]");
  CHECK(refusal(ops::reverse, {x}, with(ops::Reverse{.dims = {2}})) == "dims [2] must lie in [0, 2), 2 is outside");
  const auto empty = parse("func @f() -> f32[1] {\n  %0: f32[1] = concatenate {dim=[0]}\n  return %0\n}\n");
  REQUIRE_FALSE(empty.ok());
  CHECK(std::string(empty.status().message()).find("needs at least one operand") != std::string::npos);
}
