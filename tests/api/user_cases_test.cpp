// Public bug reports of other systems as tests on this one: the values are forced by mathematics, IEEE 754 or a
// published generator, or are the convention docs/numerics.md states. Each case names the report.
#include <doctest/doctest.h>
#include <sheaf/sheaf.h>

#include <cmath>
#include <limits>
#include <vector>

using namespace sheaf;

namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

std::vector<float> floats(const Array& x) { return convert(ravel(x), f32).to_vector<float>(); }
std::vector<std::int64_t> ints(const Array& x) { return convert(ravel(x), i64).to_vector<std::int64_t>(); }

using F = std::vector<float>;
using I = std::vector<std::int64_t>;

Array from(const F& values) { return array(values); }

}  // namespace

TEST_CASE(
    "B1, B3: the gradient of sum(x * x) at 0 is 0, and |x| has slope 0 at either zero in both modes (jax 26248, 37820)") {
  CHECK(floats(grad([](Array x) { return sum(x * x); })(zeros({3}))) == F{0, 0, 0});
  const Array zero_pair = from({0.0f, -0.0f});
  CHECK(floats(grad([](Array x) { return sum(abs(x)); })(zero_pair)) == F{0, 0});
  const auto [y, t] = jvp([](Array x) { return abs(x); }, zero_pair, ones({2}));
  CHECK(floats(t) == F{0, 0});
}

TEST_CASE("B1: the 2-norm has gradient zero at zero, and does not poison the rest of a sum (jax 39792, pytorch 2421)") {
  CHECK(floats(grad([](Array x) { return linalg::norm(x); })(zeros({3}))) == F{0, 0, 0});
  const auto f = [](Array x, Array a) { return linalg::norm(a * x) + sum(2 * x); };
  CHECK(floats(grad(f)(zeros({2}), from({3, 4}))) == F{2, 2});
}

TEST_CASE("B5: the gradient of a product divides by nothing (tinygrad 17404)") {
  const auto g = grad([](Array x) { return prod(x); });
  CHECK(floats(g(from({0, 2, 3}))) == F{6, 0, 0});
  CHECK(floats(g(from({0, 0, 3}))) == F{0, 0, 0});
}

TEST_CASE("B7, B9: derivatives of a power at the edge of its domain (pytorch 27134, stan 3031, jax 18450)") {
  const auto d_exponent = grad([](Array b, Array a) { return sum(sheaf::pow(a, b)); });
  CHECK(floats(d_exponent(from({1, 1}), from({0, 2})))[0] == 0);
  CHECK(floats(d_exponent(from({1, 1}), from({0, 2})))[1] == doctest::Approx(1.386294));
  const auto d_base = grad([](Array a, Array b) { return sum(sheaf::pow(a, b)); });
  CHECK(floats(d_base(zeros({5}), from({2, 1, 0.5, 0, -1}))) == F{0, 1, kInf, 0, -kInf});
  CHECK(floats(jit([&](Array a, Array k) { return grad([&](Array x) { return sum(sheaf::pow(x, k)); })(a); })(
            zeros({1}), zeros({1}))) == F{0});
}

TEST_CASE("B9: jit never changes a derivative: x^k at 0 with a traced k of 0 (jax 18450)") {
  const auto power = [](Array x, Array k) { return sheaf::pow(x, k); };
  const Array x = zeros({}), k = zeros({}, i32);
  const auto inside = grad([&](Array v, Array n) { return jit(power)(v, n); });
  CHECK(inside(x, k).item<float>() == 0);
  CHECK(jit(grad(power))(x, k).item<float>() == 0);
  CHECK(grad(power)(x, k).item<float>() == 0);
}

TEST_CASE("B13: a weight of zero in a logsumexp has the derivative of any other (jax 37729)") {
  const auto weighted = [](Array b, Array a) {
    const Array m = max(a);
    return log(sum(b * exp(a - m))) + m;
  };
  for (const float d : floats(grad(weighted)(from({2, 0, 5}), zeros({3})))) CHECK(d == doctest::Approx(1.0 / 7));
}

TEST_CASE("B11: atan2 at (0, 1), and at a masked origin (CppAD 120, jax 1052)") {
  CHECK(floats(grad([](Array y, Array x) { return sum(sheaf::atan2(y, x)); })(from({0}), from({1}))) == F{1});
  CHECK(floats(grad([](Array x, Array y) { return sum(sheaf::atan2(y, x)); })(from({1}), from({0}))) == F{0});
  const Array a = from({3, 0, -5});
  const auto masked = [](Array x) { return sum(where(x == 0, 0.0, sheaf::atan2(x, x))); };
  CHECK(floats(grad(masked)(a)) == F{0, 0, 0});
}

TEST_CASE("B23: an update is clamped into its operand; a start below -n never writes outside (xla 49120, mlx 3917)") {
  const Array x = zeros({3, 1, 33}), update = ones({1, 1, 8});
  const Array y = dynamic_update_slice(x, update, array({1, 1, 31}));
  CHECK(floats(y[1][0]) == floats(concatenate({zeros({25}), ones({8})})));
  CHECK(sum(y).item<float>() == 8);
  CHECK(floats(dynamic_update_slice(zeros({4}), ones({2}), array({-1}))) == F{0, 0, 1, 1});
  CHECK(floats(dynamic_update_slice(zeros({4}), ones({2}), array({-99}))) == F{1, 1, 0, 0});
}

TEST_CASE(
    "B25: an index that is clamped has the gradient of where it lands, in both modes and batched (jax 5760, 25878)") {
  const auto read = [](Array p, Array i) { return take(p, i); };
  const Array p = from({1}), one = array({1});
  CHECK(floats(read(p, one)) == F{1});
  CHECK(floats(grad([&](Array v) { return sum(read(v, one)); })(p)) == F{1});
  CHECK(floats(jvp([&](Array v) { return read(v, one); }, p, from({3})).second) == F{3});
  const auto each = [&](Array i) { return grad([&](Array v) { return sum(read(v, i)); })(p); };
  CHECK(floats(vmap(each)(array({{1}, {0}, {7}}))) == F{1, 1, 1});
}

TEST_CASE("B27: a product of segments needs no division in its gradient (jax 9296)") {
  const auto products = [](Array x) { return ones({2}).at(array({0, 0, 1})).mul(x); };
  CHECK(floats(products(from({2, 3, 5}))) == F{6, 5});
  const auto g = grad([&](Array x) { return sum(products(x)); });
  CHECK(floats(g(from({2, 3, 5}))) == F{3, 2, 1});
  CHECK(floats(g(from({0, 3, 5}))) == F{3, 0, 1});
}

TEST_CASE("B29: more than 2^31 elements are reached, in both directions (tensorflow 127164, tinygrad 8268)" *
          doctest::test_suite("soak")) {
  const Array x = zeros({1, 46342, 46341}, i8);
  const Array y = dynamic_update_slice(x, full({1, 1, 1}, 7, i8), array({0, 46341, 0}));
  CHECK(ints(dynamic_slice(y, array({0, 46341, 0}), {1, 1, 2})) == I{7, 0});
  CHECK(ints(y[0][-1][slice(0, 2)]) == I{7, 0});
  CHECK(sum(y, {.axes = {2}})(0, 46341).item<int>() == 7);
}

TEST_CASE("B31: a running maximum keeps the NaN it met (mlx 4044)") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const F y = floats(cummax(from({1, 3, nan, 5, 4})));
  CHECK(F{y[0], y[1]} == F{1, 3});
  for (std::size_t i = 2; i < 5; ++i) CHECK(std::isnan(y[i]));
}

TEST_CASE("B33: 2^25 ones sum to 33554432 exactly, along either axis (numpy 29772)") {
  const Array x = ones({1 << 25});
  CHECK(sum(x).item<float>() == 33554432.0f);
  CHECK(mean(x).item<float>() == 1.0f);
  CHECK(floats(sum(reshape(x, {1 << 24, 2}), {.axes = {0}})) == F{16777216, 16777216});
}

TEST_CASE("B35: bools are counted, and sums of i32 wrap, running ones too (cupynumeric 1076, scipp 3965)") {
  const Array count = sum(array({true, true, true, true}));
  CHECK(is_int(count.dtype()));
  CHECK(count.item<int>() == 4);
  const Array big = full({3}, 2147483647, i32);
  CHECK(sum(big).item<int>() == 2147483645);
  CHECK(ints(cumsum(big)) == I{2147483647, -2, 2147483645});
}

TEST_CASE("B37: softmax of large and infinite logits, in f16 too (pytorch 25110, 131060)") {
  CHECK(floats(softmax(from({1000, 1000}))) == F{0.5, 0.5});
  CHECK(floats(softmax(convert(from({60000, 60000}), f16))) == F{0.5, 0.5});
  CHECK(floats(softmax(from({0, -kInf}))) == F{1, 0});
  CHECK(std::isnan(floats(softmax(from({-kInf, -kInf})))[0]));
}

TEST_CASE("B39: floor division floors, and no division traps (mlx 4346, tt-metal 51476)") {
  const Array x = array({-7, 7, -7, 7, -1, 1, -5, 5}), y = array({2, 2, -2, -2, 3, -3, 3, -3});
  CHECK(ints(floor_divide(x, y)) == I{-4, 3, 3, -4, -1, -1, -2, -2});
  const auto i8s = [](const std::vector<int>& v) { return convert(array(v), i8); };
  CHECK(ints(floor_divide(i8s({120}), i8s({-27}))) == I{-5});
  CHECK(ints(mod(i8s({120}), i8s({-27}))) == I{-15});
  const int low = std::numeric_limits<int>::min();
  CHECK(ints(array({low}) / array({1 << 21})) == I{-1024});
  CHECK(ints(array({low, 7}) / array({-1, 0})) == I{low, -1});
}

TEST_CASE("B39: all pairs of i8 divide as C does, wherever C defines it (brute force)") {
  const Array n = convert(arange(-128, 128), i8);
  const Array x = reshape(repeat(n, 256), {256, 256}), y = tile(reshape(n, {1, 256}), {256, 1});
  const I quotient = ints(x / y), remainder = ints(x % y), floored = ints(floor_divide(x, y));
  for (int a = -128; a < 128; ++a)
    for (int b = -128; b < 128; ++b) {
      if (b == 0) continue;
      const std::size_t at = static_cast<std::size_t>((a + 128) * 256 + b + 128);
      REQUIRE(quotient[at] == static_cast<std::int8_t>(a / b));
      REQUIRE(remainder[at] == a % b);
      REQUIRE(floored[at] == static_cast<std::int8_t>(static_cast<int>(std::floor(static_cast<double>(a) / b))));
    }
}

TEST_CASE("B41: f32 rounds to the nearest bf16, ties to even, and NaN stays NaN (universal 1133, jax 18387)") {
  const auto rounded = [](std::uint32_t bits) {
    return ints(bitcast(convert(bitcast(convert(array({static_cast<std::int64_t>(bits)}), u32), f32), bf16), u16))[0];
  };
  CHECK(rounded(0x3E89CCD5) == 0x3E8A);
  CHECK(floats(convert(from({257, 1828, 1837}), bf16)) == F{256, 1824, 1840});
  CHECK(rounded(0x7F7FFFFF) == 0x7F80);
  const Array nans = bitcast(convert(array({0x7F800001ll, 0x7FFFFFFFll}), u32), f32);
  for (const float x : floats(convert(nans, bf16))) CHECK(std::isnan(x));
  const Array all_bits = convert(arange(1 << 16), u16);
  const Array back = bitcast(convert(convert(bitcast(all_bits, bf16), f32), bf16), u16);
  CHECK(all((back == all_bits) | isnan(bitcast(all_bits, bf16))).item<bool>());
}

TEST_CASE("B43: compiled code keeps NaN and infinity (jax 276)") {
  const auto f = jit([](Array x) {
    return std::pair{isnan(x / x),
                     x + std::numeric_limits<double>::infinity() - std::numeric_limits<double>::infinity()};
  });
  const auto [is_nan, difference] = f(zeros({2}));
  CHECK(ints(is_nan) == I{1, 1});
  CHECK(std::isnan(floats(difference)[0]));
}

TEST_CASE("random numbers are the published ones (Random123; partitionable layout)") {
  CHECK(ints(random::bits(random::key(0), {4})) == I{4070199207, 4202968722, 1427181096, 2012915765});
  CHECK(ints(random::bits(random::key(42), {4})) == I{2098992034, 2919706841, 2646866425, 2409546199});
  CHECK(ints(random::split(random::key(42), 2)) == I{1832780943, 270669613, 64467757, 2916123636});
  const F u = floats(random::uniform(random::key(0), {4}));
  CHECK(u[0] == doctest::Approx(0.947667).epsilon(1e-6));
  CHECK(u[3] == doctest::Approx(0.4686685).epsilon(1e-6));
  CHECK(ints(random::bits(random::key(0), {3}, u64))[0] == 7719171245655871230);
}

TEST_CASE("B47: uniform stays below 1 and normal stays finite in every float (cupy 1614, Fuser 2355)") {
  for (DType t : {f16, bf16, f32}) {
    const Array u = random::uniform(random::key(7), {100000}, t);
    CHECK(convert(max(u), f32).item<float>() < 1);
    CHECK(convert(min(u), f32).item<float>() >= 0);
    CHECK(all(is_finite(random::normal(random::key(8), {100000}, t))).item<bool>());
  }
}

TEST_CASE("B49: dilated, strided and transposed convolutions, with gradients (pytorch 15501, onnxruntime 2518)") {
  const Array x = reshape(from({7, 3, 3, 2}), {2, 1, 2}), w = reshape(from({3, 6, 4, 2}), {2, 1, 2});
  const auto y = [](Array v, Array k) {
    return conv(v, k, {.strides = {2}, .padding = {{1, 1}}, .kernel_dilation = {2}, .input = "NCW", .kernel = "OIW"});
  };
  CHECK(floats(y(x, w)) == F{18, 6, 12, 4});
  const auto [dx, dw] = grad<0, 1>([&](Array v, Array k) { return sum(y(v, k)); })(x, w);
  CHECK(floats(dx) == F{0, 8, 0, 8});
  CHECK(floats(dw) == F{0, 5, 0, 5});
  const Array transposed =
      conv(ones({1, 6, 1}), ones({3, 1, 1}), {.padding = {{3, 4}}, .input_dilation = {2}, .kernel_dilation = {2}});
  CHECK(floats(transposed) == F{0, 2, 0, 3, 0, 3, 0, 3, 0, 3, 0, 2, 0, 1});
}

TEST_CASE("B51: empty shapes have empty answers, or a refusal (jax 26555, 11125, mlx 789)") {
  CHECK(dot(zeros({2, 0}), zeros({0, 3})).to_vector<float>() == F(6, 0));
  CHECK(sum(zeros({2, 0})).item<float>() == 0);
  CHECK(prod(zeros({0})).item<float>() == 1);
  CHECK(linalg::norm(zeros({2, 0})).item<float>() == 0);
  CHECK_THROWS_AS(max(zeros({2, 0})), ShapeError);
  CHECK_THROWS_AS(reshape(zeros({0, 3}), {0, -1}), ShapeError);
  CHECK(concatenate({zeros({0, 2}), ones({1, 2})}).shape() == Shape{1, 2});
  CHECK(take(ones({4, 2}), zeros({0}, i32)).shape() == Shape{0, 2});
}

TEST_CASE(
    "B53: two equal results of a function without inputs are two arrays; an array may be read after an update of it (mlx 812)") {
  const auto [a, b] = jit([] { return std::pair{full({3}, 2.0), full({3}, 2.0)}; })();
  CHECK(floats(a) == floats(b));
  const auto f = jit([](Array x) {
    const Array y = dynamic_update_slice(x, ones({1}), array({0}));
    return std::pair{y, sum(x)};
  });
  const auto [y, before] = f(from({5, 6}));
  CHECK(floats(y) == F{1, 6});
  CHECK(before.item<float>() == 11);
}

TEST_CASE("B59: a literal and a result of the same type compile once, and never widen f32 (jax 4274, numpyro 463)") {
  auto f = jit([](Array x) { return x * 2.0 + 1.0; });
  const Array first = f(0.0);
  const Array second = f(first);
  CHECK(first.dtype() == f32);
  CHECK(second.item<float>() == 3);
  CHECK(compiles(f) == 1);
}
