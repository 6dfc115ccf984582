// top_k at ties, NaN and the ends of k, and reduce_precision at the borders of a format.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "tests/ir/on_numbers.h"

namespace sheaf::ir {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN(), kInf = std::numeric_limits<double>::infinity();

Literals top(const Literal& x, std::int64_t k) { return run_all(ops::top_k, {x}, ops::TopK{.dim = {0}, .k = k}); }

double reduced(DType t, double x, int exponent_bits, int mantissa_bits) {
  return run(ops::reduce_precision, {Literal(t, {1}, {x})},
             ops::ReducePrecision{.exponent_bits = exponent_bits, .mantissa_bits = mantissa_bits})[0];
}

TEST_CASE("top_k descends, and of equal elements the first comes first") {
  const Literals out = top(Literal(f32, {6}, {3, 1, 3, -0.0, 0, 7}), 6);
  CHECK(numbers(out[0]) == Numbers{7, 3, 3, 1, 0, 0});
  CHECK(numbers(out[1]) == Numbers{5, 0, 2, 1, 3, 4});
  CHECK(numbers(top(Literal(bool_, {3}, {0, 1, 1}), 2)[1]) == Numbers{1, 2});
  CHECK(numbers(top(Literal(u8, {3}, {200, 7, 201}), 1)[0]) == Numbers{201});
}

TEST_CASE("NaN is the largest for top_k, and infinity next") {
  const Literals out = top(Literal(f64, {5}, {kInf, kNaN, -kInf, 2, kNaN}), 4);
  CHECK(numbers(out[1]) == Numbers{1, 4, 0, 3});
  CHECK(std::isnan(numbers(out[0])[0]));
}

TEST_CASE("top_k of nothing, and none of something") {
  CHECK(top(Literal(f32, {3}, {1, 2, 3}), 0)[0].type() == Type(f32, {0}));
  CHECK(top(Literal(Type(f32, {0})), 0)[1].type() == Type(i32, {0}));
  CHECK(error(ops::top_k, {Type(f32, {3})}, ops::TopK{.dim = {0}, .k = 4}) ==
        "k must lie in [0, 3], the extent of dim 0, not 4");
  CHECK(error(ops::top_k, {Type(f32, {3})}, ops::TopK{.dim = {1}, .k = 1}) ==
        "dim [1] must lie in [0, 1), 1 is outside");
  CHECK(error(ops::top_k, {Type(f32, {1ll << 32})}, ops::TopK{.dim = {0}, .k = 1}) ==
        "i32 does not hold position 4294967295 of dim 0");
  CHECK(error(ops::top_k, {Type(c64, {3})}, ops::TopK{.dim = {0}, .k = 1}) ==
        "operand 0 (c64[3]) must be bool, an integer or floating point");
}

TEST_CASE("reduce_precision rounds half to even, carries into the exponent, and overflows to infinity") {
  CHECK(reduced(f32, 1 + 0x1p-11, 5, 10) == 1);
  CHECK(reduced(f32, 1 + 0x3p-11, 5, 10) == 1 + 0x1p-9);
  CHECK(reduced(f32, 2 - 0x1p-20, 5, 10) == 2);
  CHECK(reduced(f32, 65519, 5, 10) == 65504);
  CHECK(reduced(f32, -65520, 5, 10) == -kInf);
  CHECK(reduced(f64, 3e38, 8, 23) == static_cast<double>(3e38f));
  CHECK(reduced(f64, 1e39, 8, 23) == kInf);
  CHECK(reduced(bf16, 1.0078125, 8, 3) == 1);
  CHECK(reduced(f16, 3, 5, 0) == 2);  // without mantissa bits the exponent is what is even or odd
  CHECK(reduced(f16, 6, 5, 0) == 8);
}

TEST_CASE("what is below a smaller format's normal numbers becomes a zero with its sign; the dtype's own stay") {
  CHECK(reduced(f32, 0x1p-14, 5, 10) == 0x1p-14);
  CHECK(reduced(f32, 0x1p-15, 5, 10) == 0);
  CHECK(std::signbit(reduced(f32, -0x1p-15, 5, 10)));
  CHECK(reduced(f32, 0x1p-130, 8, 10) == 0x1p-130);
  CHECK(reduced(f32, -0.0, 5, 10) == 0);
}

TEST_CASE("NaN and infinity keep what they are, where mantissa bits can tell them apart") {
  CHECK(std::isnan(reduced(f32, kNaN, 5, 10)));
  CHECK(reduced(f32, kNaN, 5, 0) == kInf);
  CHECK(reduced(f32, -kInf, 4, 3) == -kInf);
  CHECK(error(ops::reduce_precision, {Type(f32, {})}, ops::ReducePrecision{.exponent_bits = 0, .mantissa_bits = -1}) ==
        "needs at least 1 exponent bit and 0 mantissa bits, not 0 and -1");
  CHECK(error(ops::reduce_precision, {Type(i32, {})}, ops::ReducePrecision{}) ==
        "operand 0 (i32[]) must be floating point");
}

TEST_CASE("rounding to the fields of f16 and bf16 is what a conversion there and back gives, but for tiny numbers") {
  for (int i = 1; i < 4000; ++i) {
    const double x = std::ldexp(1 + i * 0.61803398875 / 4000, i % 28 - 13) * (i % 2 ? 1 : -1);
    const Literal v(f32, {1}, {x});
    const double rounded = v.get(0);
    CHECK(reduced(f32, rounded, 5, 10) == Literal(f16, {1}, {rounded}).get(0));
    CHECK(reduced(f32, rounded, 8, 7) == Literal(bf16, {1}, {rounded}).get(0));
  }
}

}  // namespace
}  // namespace sheaf::ir
