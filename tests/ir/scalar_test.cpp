// The exact meaning of the scalar ops and conversions, and what the DAG builder promises.
#include "ir/scalar.h"

#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>

#include "ir/check.h"

namespace sheaf::ir {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

std::uint64_t op_bits(ScalarOp op, DType t, std::uint64_t a, std::uint64_t b = 0, std::uint64_t c = 0) {
  const std::uint64_t in[3] = {a, b, c};
  const bool is_comparison = op >= ScalarOp::eq && op <= ScalarOp::ge;
  return eval_op(op, t, is_comparison ? DType::bool_ : t, in);
}

double op(ScalarOp o, DType t, double a, double b = 0) {
  const bool is_comparison = o >= ScalarOp::eq && o <= ScalarOp::ge;
  return from_bits(is_comparison ? DType::bool_ : t, op_bits(o, t, to_bits(t, a), to_bits(t, b)));
}

double cast(DType from, DType to, double value) {
  ScalarBuilder b;
  const ScalarFn fn = b.finish(b.convert(b.arg(0, from), to));
  const std::uint64_t in = to_bits(from, value);
  return from_bits(to, eval(fn, {&in, 1}));
}

bool same(double a, double b) {
  return (std::isnan(a) && std::isnan(b)) || (a == b && std::signbit(a) == std::signbit(b));
}

TEST_CASE("every value of a 16-bit or 8-bit float survives the round trip through f64") {
  for (DType t : {DType::f16, DType::bf16, DType::f8e4m3, DType::f8e5m2}) {
    const std::uint64_t count = size_bytes(t) == 2 ? 0x10000 : 0x100;
    int mismatches = 0;
    for (std::uint64_t bits = 0; bits < count; ++bits) {
      const double value = from_bits(t, bits);
      const std::uint64_t back = to_bits(t, value);
      mismatches += std::isnan(value) ? !std::isnan(from_bits(t, back)) : back != bits;
    }
    CAPTURE(name(t));
    CHECK(mismatches == 0);
  }
}

TEST_CASE("bf16 rounds to nearest even and keeps NaN") {
  const auto bf16_of = [](std::uint32_t bits) {
    const std::uint64_t in[3] = {bits};
    return eval_op(ScalarOp::convert, DType::f32, DType::bf16, in);
  };
  CHECK(bf16_of(0x3e89ccd5) == 0x3e8a);
  for (std::uint32_t nan : {0x7f800001u, 0x7fffffffu, 0xff800001u}) {
    CHECK(std::isnan(from_bits(DType::bf16, bf16_of(nan))));
  }
  const auto rounded = [](double x) { return from_bits(DType::bf16, to_bits(DType::bf16, x)); };
  CHECK(rounded(257) == 256);
  CHECK(rounded(1828) == 1824);
  CHECK(rounded(1837) == 1840);
  CHECK(rounded(std::numeric_limits<float>::max()) == kInf);
  CHECK(rounded(-0x1p-134) == 0);
  CHECK(rounded(0x1.8p-133) == 0x1p-132);
}

TEST_CASE("f16 and the 8-bit floats round, underflow and overflow as their formats say") {
  const auto rounded = [](DType t, double x) { return from_bits(t, to_bits(t, x)); };
  CHECK(rounded(DType::f16, 65519.999) == 65504);
  CHECK(rounded(DType::f16, 65520) == kInf);
  CHECK(rounded(DType::f16, 0x1p-25) == 0);
  CHECK(rounded(DType::f16, std::nextafter(0x1p-25, 1)) == 0x1p-24);
  CHECK(rounded(DType::f16, 1 + 0x1p-11) == 1);
  CHECK(rounded(DType::f16, 1 + 0x1.8p-10) == 1 + 0x1p-9);
  CHECK(rounded(DType::f8e4m3, 448) == 448);
  CHECK(rounded(DType::f8e4m3, 464) == 448);
  CHECK(std::isnan(rounded(DType::f8e4m3, 465)));  // no infinity in this format
  CHECK(std::isnan(rounded(DType::f8e4m3, kInf)));
  CHECK(rounded(DType::f8e5m2, 57344) == 57344);
  CHECK(rounded(DType::f8e5m2, 61440) == kInf);
}

TEST_CASE("conversion of floats to integers saturates, and NaN becomes 0") {
  CHECK(cast(DType::f32, DType::i32, 3e9) == 2147483647);
  CHECK(cast(DType::f32, DType::i32, -kInf) == -2147483648.0);
  CHECK(cast(DType::f32, DType::i32, kNaN) == 0);
  CHECK(cast(DType::f64, DType::i8, 127.9) == 127);
  CHECK(cast(DType::f64, DType::i8, -128.9) == -128);
  CHECK(cast(DType::f64, DType::i8, 1e300) == 127);
  CHECK(cast(DType::f32, DType::u8, -1) == 0);
  CHECK(cast(DType::f32, DType::u8, 255.5) == 255);
  CHECK(to_bits(DType::u64, 0x1p64) == ~std::uint64_t{0});
  CHECK(to_bits(DType::i64, 0x1p63) == 0x7fffffffffffffff);
  CHECK(to_bits(DType::i64, -0x1p63) == 0x8000000000000000);
  CHECK(cast(DType::bf16, DType::i32, -2.5) == -2);
  CHECK(cast(DType::f32, DType::bool_, kNaN) == 1);
  CHECK(cast(DType::f32, DType::bool_, -0.0) == 0);
  CHECK(cast(DType::i32, DType::i8, 300) == 44);
  CHECK(cast(DType::i32, DType::u64, -1) == 0x1p64);
  CHECK(cast(DType::bool_, DType::bf16, 1) == 1);
}

TEST_CASE("conversions to narrow floats round once, also from f64 and 64-bit integers") {
  CHECK(cast(DType::f64, DType::bf16, 1 + 0x1p-8 + 0x1p-40) == 1 + 0x1p-7);  // through f32: a tie, to 1
  CHECK(cast(DType::f64, DType::f16, 1 - 0x1p-12 - 0x1p-50) == 1 - 0x1p-11);
  CHECK(cast(DType::f64, DType::f16, 1e300) == kInf);
  CHECK(same(cast(DType::f64, DType::f16, -1e-300), -0.0));
  std::mt19937_64 random(7);
  int mismatches = 0;
  for (DType from : {DType::f64, DType::i64, DType::u64, DType::i32, DType::f16}) {
    for (DType to : {DType::f16, DType::bf16, DType::f8e4m3, DType::f8e5m2}) {
      ScalarBuilder b;
      const ScalarFn fn = b.finish(b.convert(b.arg(0, from), to));
      for (int i = 0; i < 3000; ++i) {
        std::uint64_t in[3] = {random() >> (random() % 64)};
        if (i % 2) in[0] = (in[0] & ~std::uint64_t{0x3fffff}) + (random() % 3 - 1);  // near ties
        if (from == DType::f64 && i % 4)
          in[0] = to_bits(from, std::ldexp(1 + static_cast<double>(in[0] >> 11) * 0x1p-53, i % 60 - 30));
        in[0] &= ~std::uint64_t{0} >> (64 - 8 * size_bytes(from));
        const double direct = from_bits(to, eval_op(ScalarOp::convert, from, to, in));
        mismatches += !same(from_bits(to, eval(fn, {in, 1})), direct);
      }
    }
  }
  CHECK(mismatches == 0);
}

TEST_CASE("integer division never traps, and floor division can be made of it") {
  CHECK(op(ScalarOp::div, DType::i32, -2147483648.0, 0x1p21) == -1024);
  CHECK(op(ScalarOp::div, DType::i32, -2147483648.0, -1) == -2147483648.0);
  CHECK(op(ScalarOp::rem, DType::i32, -2147483648.0, -1) == 0);
  CHECK(op(ScalarOp::div, DType::i32, 7, 0) == -1);
  CHECK(op(ScalarOp::rem, DType::i32, 7, 0) == 7);
  CHECK(op(ScalarOp::div, DType::u8, 7, 0) == 255);
  CHECK(op(ScalarOp::div, DType::i8, 120, -27) == -4);

  ScalarBuilder b;
  const ScalarRef x = b.arg(0, DType::i32), y = b.arg(1, DType::i32), zero = b.constant(DType::i32, 0);
  const ScalarRef rest = b.emit(ScalarOp::rem, x, y);
  const ScalarRef is_inexact = b.emit(ScalarOp::ne, rest, zero);
  const ScalarRef signs_differ = b.emit(ScalarOp::lt, b.emit(ScalarOp::xor_, rest, y), zero);
  const ScalarRef fix = b.convert(b.emit(ScalarOp::and_, is_inexact, signs_differ), DType::i32);
  const ScalarFn floor_div = b.finish(b.emit(ScalarOp::sub, b.emit(ScalarOp::div, x, y), fix));
  const int lhs[] = {-7, 7, -7, 7, -1, 1, -5, 5}, rhs[] = {2, 2, -2, -2, 3, -3, 3, -3};
  const int want[] = {-4, 3, 3, -4, -1, -1, -2, -2};
  for (int i = 0; i < 8; ++i) {
    const std::uint64_t in[2] = {to_bits(DType::i32, lhs[i]), to_bits(DType::i32, rhs[i])};
    CHECK(from_bits(DType::i32, eval(floor_div, in)) == want[i]);
  }
}

TEST_CASE("8-bit arithmetic agrees with wide arithmetic on all pairs") {
  int mismatches = 0;
  for (int a = -128; a < 128; ++a) {
    for (int b = -128; b < 128; ++b) {
      const auto wrapped = [](int v) { return static_cast<double>(static_cast<std::int8_t>(v)); };
      const auto check = [&](ScalarOp o, double want) { mismatches += op(o, DType::i8, a, b) != want; };
      check(ScalarOp::add, wrapped(a + b));
      check(ScalarOp::sub, wrapped(a - b));
      check(ScalarOp::mul, wrapped(a * b));
      check(ScalarOp::div, b == 0 ? -1 : wrapped(a / b));
      check(ScalarOp::rem, b == 0 ? a : wrapped(a % b));
      check(ScalarOp::min, std::min(a, b));
      check(ScalarOp::lt, a < b);
      const int amount = b & 0xff;
      check(ScalarOp::shl, amount >= 8 ? 0 : wrapped(a * (1 << amount)));
      check(ScalarOp::shr_arith, a >> std::min(amount, 7));
      check(ScalarOp::shr_logical, amount >= 8 ? 0 : wrapped((a & 0xff) >> amount));
    }
  }
  CHECK(mismatches == 0);
}

TEST_CASE("bit operations act on the operand's own width") {
  CHECK(op_bits(ScalarOp::not_, DType::u8, 0x0f) == 0xf0);
  CHECK(op_bits(ScalarOp::not_, DType::bool_, 1) == 0);
  CHECK(op_bits(ScalarOp::neg, DType::i16, 1) == 0xffff);
  CHECK(op_bits(ScalarOp::abs, DType::i32, 0x80000000) == 0x80000000);
  CHECK(op_bits(ScalarOp::clz, DType::u16, 1) == 15);
  CHECK(op_bits(ScalarOp::clz, DType::u64, 0) == 64);
  CHECK(op_bits(ScalarOp::popcount, DType::i8, 0xff) == 8);
  CHECK(op_bits(ScalarOp::mul_hi, DType::u32, 0xffffffff, 0xffffffff) == 0xfffffffe);
  CHECK(op_bits(ScalarOp::mul_hi, DType::u64, ~0ull, ~0ull) == ~0ull - 1);
  CHECK(op_bits(ScalarOp::shr_arith, DType::i32, 0x80000000, 99) == 0xffffffff);
  CHECK(op_bits(ScalarOp::shr_arith, DType::u32, 0x80000000, 31) == 0xffffffff);
  CHECK(op_bits(ScalarOp::shl, DType::u64, 1, 64) == 0);
}

TEST_CASE("float min, max, comparisons, rounding and remainder follow IEEE 754") {
  for (DType t : {DType::f32, DType::f64}) {
    for (ScalarOp o : {ScalarOp::min, ScalarOp::max}) {
      CHECK(std::isnan(op(o, t, kNaN, 1)));
      CHECK(std::isnan(op(o, t, 1, kNaN)));
      CHECK(std::signbit(op(o, t, 0.0, -0.0)) == (o == ScalarOp::min));
      CHECK(std::signbit(op(o, t, -0.0, 0.0)) == (o == ScalarOp::min));
    }
    CHECK(op(ScalarOp::ne, t, kNaN, kNaN) == 1);
    CHECK(op(ScalarOp::eq, t, kNaN, kNaN) == 0);
    CHECK(op(ScalarOp::ge, t, kNaN, 0) == 0);
    CHECK(op(ScalarOp::eq, t, 0.0, -0.0) == 1);
    CHECK(op(ScalarOp::round_even, t, 2.5) == 2);
    CHECK(same(op(ScalarOp::round_even, t, -0.25), -0.0));
    CHECK(same(op(ScalarOp::trunc, t, -0.5), -0.0));
    CHECK(same(op(ScalarOp::ceil, t, -0.5), -0.0));
    CHECK(op(ScalarOp::floor, t, -0.5) == -1);
    CHECK(op(ScalarOp::rem, t, -7, 2) == -1);
    CHECK(same(op(ScalarOp::rem, t, -4, 2), -0.0));
    CHECK(std::isnan(op(ScalarOp::rem, t, 1, 0)));
    CHECK(op(ScalarOp::rem, t, 1, kInf) == 1);
    CHECK(op(ScalarOp::div, t, 1, -0.0) == -kInf);
    CHECK(std::isnan(op(ScalarOp::sub, t, kInf, kInf)));
    CHECK(std::isnan(op(ScalarOp::sqrt, t, -1)));
    CHECK(same(op(ScalarOp::sqrt, t, -0.0), -0.0));
  }
  const std::uint64_t in[3] = {to_bits(DType::f32, 1 + 0x1p-12), to_bits(DType::f32, 1 + 0x1p-12),
                               to_bits(DType::f32, -1 - 0x1p-11)};
  CHECK(from_bits(DType::f32, eval_op(ScalarOp::fma, DType::f32, DType::f32, in)) == 0x1p-24);
}

TEST_CASE("the builder folds constants, numbers values and drops what is not needed") {
  ScalarBuilder b;
  const ScalarRef x = b.arg(0, DType::f32), y = b.arg(1, DType::f32);
  const ScalarRef two = b.emit(ScalarOp::add, b.constant(DType::f32, 1), b.constant(DType::f32, 1));
  CHECK(b.emit(ScalarOp::add, x, y).node == b.emit(ScalarOp::add, y, x).node);
  CHECK(b.emit(ScalarOp::sub, x, y).node != b.emit(ScalarOp::sub, y, x).node);
  CHECK(b.constant(DType::f32, 0.0).node != b.constant(DType::f32, -0.0).node);
  CHECK(b.emit(ScalarOp::select, b.emit(ScalarOp::lt, x, y), x, x).node == x.node);
  CHECK(b.emit(ScalarOp::select, b.constant(DType::bool_, 1), x, y).node == x.node);
  CHECK(b.convert(x, DType::f32).node == x.node);
  const ScalarFn fn = b.finish(b.emit(ScalarOp::mul, x, two));
  CHECK(fn.args.size() == 2);
  CHECK(print(fn) == "%0 = f32 arg 0\n%1 = f32 constant 2\n%2 = f32 mul %0, %1\nreturn %2\n");
}

TEST_CASE("the builder refuses operands an op is not defined on") {
  ScalarBuilder b;
  const ScalarRef f = b.arg(0, DType::f32), i = b.arg(1, DType::i32), h = b.arg(2, DType::bf16);
  CHECK_THROWS_AS(b.emit(ScalarOp::add, f, i), InternalError);
  CHECK_THROWS_AS(b.emit(ScalarOp::and_, f, f), InternalError);
  CHECK_THROWS_AS(b.emit(ScalarOp::fma, i, i, i), InternalError);
  CHECK_THROWS_AS(b.emit(ScalarOp::add, h, h), InternalError);
  CHECK_THROWS_AS(b.emit(ScalarOp::select, f, f, f), InternalError);
  CHECK_THROWS_AS(b.arg(0, DType::f64), InternalError);
}

TEST_CASE("a called function is inlined with its arguments") {
  ScalarBuilder b;
  const ScalarRef x = b.arg(0, DType::f32), y = b.arg(1, DType::f32);
  const ScalarFn& difference = scalar_primitive(ScalarOp::sub, DType::f32);
  const ScalarRef args[] = {y, x};
  const ScalarFn fn = b.finish(b.call(difference, args));
  const std::uint64_t in[2] = {to_bits(DType::f32, 2), to_bits(DType::f32, 5)};
  CHECK(from_bits(DType::f32, eval(fn, in)) == 3);
}

TEST_CASE("primitives of half types compute in f32 and round once") {
  const ScalarFn& fma = scalar_primitive(ScalarOp::fma, DType::bf16);
  const std::uint64_t in[3] = {to_bits(DType::bf16, 1 + 0x3p-7), to_bits(DType::bf16, 1 + 0x3p-7),
                               to_bits(DType::bf16, -1)};
  CHECK(from_bits(DType::bf16, eval(fma, in)) == 776 * 0x1p-14);  // of 777; rounding the product too gives 768
  const ScalarFn& less = scalar_primitive(ScalarOp::lt, DType::f16);
  CHECK(less.result_dtype() == DType::bool_);
  CHECK(&less == &scalar_primitive(ScalarOp::lt, DType::f16));
  CHECK(scalar_function("no such function", DType::f32) == nullptr);
}

}  // namespace
}  // namespace sheaf::ir
