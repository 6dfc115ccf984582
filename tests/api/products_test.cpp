// Products with what follows them elementwise, on whatever device the process has: against the same in f64, to a
// tolerance of the dtype. Bias, activation and residual are part of the product's kernel, on tensor cores or not; so is, on
// a GPU, what makes its operands.
#include <doctest/doctest.h>

#include <cstdio>
#include <string>
#include <vector>

#include "runtime/counters.h"
#include "sheaf/sheaf.h"
#include "tests/child.h"
#include "tests/launches.h"

using namespace sheaf;

namespace {

double distance(const Array& a, const Array& b) { return max(abs(convert(a, f64) - convert(b, f64))).item<double>(); }

double tolerance_of(DType t) { return t == f64 ? 1e-14 : t == f32 ? 1e-5 : t == f16 ? 4e-3 : 3e-2; }

bool is_gpu() { return to_string(devices()[0]).starts_with("cuda"); }

struct Operands {
  Array x, w, bias, residual;
};

Operands operands(DType t, std::int64_t m = 33, std::int64_t n = 24, std::int64_t k = 40) {
  const auto some = [&](int key, const Shape& shape) {
    return convert(random::normal(random::key(static_cast<std::uint64_t>(key)), shape, f64) * 0.3, t);
  };
  return {some(1, {m, k}), some(2, {k, n}), some(3, {n}), some(4, {m, n})};
}

Operands in_f64(const Operands& o) {
  return {convert(o.x, f64), convert(o.w, f64), convert(o.bias, f64), convert(o.residual, f64)};
}

Array layer(const Operands& o) { return gelu_tanh(matmul(o.x, o.w) + o.bias) + o.residual; }

TEST_CASE("weights that stay the same over calls are packed once, and packed again when they change") {
  if (is_gpu()) return;  // there nothing is packed
  const auto kept = [] { return runtime::counters().packed_copies_kept.load(); };
  const auto read = [] { return runtime::counters().packed_copies_read.load(); };
  auto f = jit([](Array x, Array w) { return matmul(x, w); });
  const Array w = random::normal(random::key(1), {400, 1200});  // several blocks of columns
  const auto input = [](int i) { return random::normal(random::key(static_cast<std::uint64_t>(i)), {40, 400}); };
  const std::int64_t kept_before = kept(), read_before = read();
  const std::vector<float> first = f(input(2), w).to_vector<float>();
  CHECK(kept() == kept_before);  // once is no habit
  CHECK(f(input(2), w).to_vector<float>() == first);
  CHECK(kept() == kept_before + 1);
  CHECK(read() == read_before);
  CHECK(f(input(2), w).to_vector<float>() == first);
  CHECK(distance(f(input(3), w), matmul(convert(input(3), f64), convert(w, f64))) < 1e-3);
  CHECK(kept() == kept_before + 1);
  CHECK(read() == read_before + 2);

  // Other weights, in the very memory of the old ones where they are donated.
  auto update = jit([](Array v) { return v + 1; }, {.donate = {0}});
  Array v = w * 2;
  for (int i = 0; i < 3; ++i) CHECK(distance(f(input(3), v), matmul(convert(input(3), f64), convert(v, f64))) < 1e-3);
  v = update(v);
  for (int i = 0; i < 3; ++i) CHECK(distance(f(input(3), v), matmul(convert(input(3), f64), convert(v, f64))) < 1e-3);
}

TEST_CASE("very many terms of few results are summed in parts, which many threads share") {
  if (is_gpu()) return;
  const Array x = random::normal(random::key(1), {12, 20000}), y = random::normal(random::key(2), {20000, 9});
  const auto product = jit([](Array a, Array b) { return matmul(a, b); });
  CHECK(distance(product(x, y), matmul(convert(x, f64), convert(y, f64))) < 1e-2);
  const auto batched = jit(vmap([](Array a, Array b) { return matmul(a, b); }));
  CHECK(all_equal(batched(stack({x, x * 2}), stack({y, y}))(1), product(x * 2, y)));
}

}  // namespace

TEST_CASE("[copies] a program" * doctest::skip()) {
  const auto f = jit([](Array x, Array w) { return matmul(x, w); });
  const Array x = ones({40, 400}), w = ones({400, 1200});
  for (int i = 0; i < 3; ++i) f(x, w).wait();
  std::fprintf(stderr, "%d\n", runtime::counters().packed_copies_kept > 0);
}

TEST_CASE("what follows a product may read the operands that it has packed") {
  if (is_gpu()) return;
  const Array x = random::normal(random::key(1), {100, 400}), w = random::normal(random::key(2), {400, 400});
  const auto f = jit([](Array a, Array b) { return tanh(matmul(a, b) + b.at(0).get()) - a; });
  const auto copy = jit([](Array a) { return a; });
  const std::int64_t read = runtime::counters().packed_copies_read;
  const std::vector<float> expected = f(copy(x), copy(w)).to_vector<float>();
  for (int i = 0; i < 4; ++i) CHECK(f(x, w).to_vector<float>() == expected);
  CHECK(runtime::counters().packed_copies_read > read);
}

TEST_CASE("[short] a program" * doctest::skip()) {
  const auto f = jit([](Array x, Array w) { return matmul(x, w); });
  const Array x = ones({40, 1024}), w = ones({1024, 1024});
  for (int i = 0; i < 3; ++i) f(x, w).wait();
  const std::int64_t kept = runtime::counters().packed_copies_kept;
  std::vector<Array> all;  // 18 MiB of 24, of which w and its copy have 4 each
  for (int i = 0; i < 18; ++i) all.push_back(zeros({1 << 18}).wait());
  const std::int64_t dropped = runtime::counters().packed_copies_dropped;
  std::fprintf(stderr, "%s\n", kept > 0 && dropped == kept ? "dropped" : "not dropped");
}

TEST_CASE("packed weights give way to arrays that there is no memory for") {
  if (is_gpu()) return;
  CHECK(tests::said_by_child("short", {{"SHEAF_MEMORY_LIMIT", "24M"}}) == "dropped\n");
}

TEST_CASE("SHEAF_PACKED_LIMIT says how much packed weights may take, 0 for nothing; what is no size is a warning") {
  if (is_gpu()) return;
  CHECK(tests::said_by_child("copies", {{"SHEAF_PACKED_LIMIT", "0"}}) == "0\n");
  CHECK(tests::said_by_child("copies", {{"SHEAF_PACKED_LIMIT", "-1"}}) ==
        "sheaf warning: SHEAF_PACKED_LIMIT=-1: '-1' is not a size: a number of bytes, or one with K, M, G or %\n1\n");
}

TEST_CASE("a product with bias, activation and residual is right in every float dtype") {
  const auto jitted = jit([](Array x, Array w, Array bias, Array residual) { return layer({x, w, bias, residual}); });
  for (DType t : {f64, f32, f16, bf16}) {
    CAPTURE(name(t));
    const Operands o = operands(t);
    CHECK(distance(jitted(o.x, o.w, o.bias, o.residual), layer(in_f64(o))) < tolerance_of(t));
    CHECK(tests::launches_of([&] { jitted(o.x, o.w, o.bias, o.residual); }) == 1);
  }
}

TEST_CASE("what makes the operands of a product gives it the same bits, stored or not") {
  const auto made = [](Array x, Array w, Array scale) {
    return std::pair{gelu_tanh(x) * 0.5, convert(w, x.dtype()) * scale};
  };
  const auto fused = jit([=](Array x, Array w, Array scale) {
    const auto [y, v] = made(x, w, scale);
    return relu(matmul(y, v));
  });
  const auto stored = jit([=](Array x, Array w, Array scale) {
    const auto [y, v] = made(x, w, scale);
    return std::tuple{relu(matmul(y, v)), y, v};
  });
  for (DType t : {f32, f16, bf16}) {
    CAPTURE(name(t));
    const Operands o = operands(t);
    const Array w = convert(round(convert(o.w, f32) * 100), i8);
    CHECK(distance(fused(o.x, w, o.bias), std::get<0>(stored(o.x, w, o.bias))) == 0);
    const std::int64_t launches = tests::launches_of([&] { fused(o.x, w, o.bias); });
    if (is_gpu()) CHECK(launches == 1);
  }
}

TEST_CASE("a product that is itself a result is stored beside what follows it") {
  const auto both = jit([](Array x, Array w, Array bias) {
    const Array product = matmul(x, w);
    return std::pair{product, relu(product + bias)};
  });
  for (DType t : {f32, bf16}) {
    const Operands o = operands(t), wide = in_f64(o);
    const auto [product, active] = both(o.x, o.w, o.bias);
    CHECK(distance(product, matmul(wide.x, wide.w)) < tolerance_of(t));
    CHECK(distance(active, relu(matmul(wide.x, wide.w) + wide.bias)) < tolerance_of(t));
    CHECK(tests::launches_of([&] { both(o.x, o.w, o.bias); }) == 1);
  }
}

TEST_CASE("a training step of a perceptron is a kernel for each of its products, and one for each bias") {
  struct Layers {
    Array w1, b1, w2, b2;
  };
  const auto loss = [](Layers p, Array x, Array target) {
    return mean(square(matmul(relu(matmul(x, p.w1) + p.b1), p.w2) + p.b2 - target));
  };
  const auto step = jit([=](Layers p, Array x, Array target) {
    const Layers g = grad(loss)(p, x, target);
    return Layers{p.w1 - 0.1 * g.w1, p.b1 - 0.1 * g.b1, p.w2 - 0.1 * g.w2, p.b2 - 0.1 * g.b2};
  });
  const Operands first = operands(f32, 16, 48, 32), second = operands(f32, 16, 8, 48);
  const Layers layers{first.w, first.bias, second.w, second.bias};
  step(layers, first.x, second.residual);
  CHECK(tests::launches_of([&] { step(layers, first.x, second.residual); }) == 5 + 2);
}

TEST_CASE("a large product of halves with a bias is right, run after run and with other operands") {
  const auto f = jit([](Array x, Array w, Array bias) { return relu(matmul(x, w) + bias); });
  const Array rows = array({0, 1000, 2047});
  const Array w = operands(bf16, 1, 2048, 64).w, bias = operands(bf16, 1, 2048, 64).bias;
  for (std::uint64_t run = 0; run < 3; ++run) {
    const Array x = convert(random::normal(random::key(run), {2048, 64}, f32), bf16);
    const Array y = f(x, w, bias);
    const auto some = [&](Array a) { return convert(take(a, rows), f64); };
    const Array want = relu(matmul(some(x), convert(w, f64)) + convert(bias, f64));
    CHECK(distance(some(y), want) < 10 * tolerance_of(bf16));
  }
}

TEST_CASE("gradients of a layer are right in every float dtype") {
  const auto loss = [](Array x, Array w, Array bias, Array residual) {
    return sum(square(convert(layer({x, w, bias, residual}), f64)));
  };
  const auto gradient = jit(grad<0, 1, 2>(loss));
  for (DType t : {f64, f32, bf16}) {
    CAPTURE(name(t));
    const Operands o = operands(t), wide = in_f64(o);
    const auto [x, w, bias] = gradient(o.x, o.w, o.bias, o.residual);
    const auto [x64, w64, bias64] = gradient(wide.x, wide.w, wide.bias, wide.residual);
    for (const auto& [got, want] : {std::pair<Array, Array>{x, x64}, {w, w64}, {bias, bias64}})
      CHECK(distance(got, want) < tolerance_of(t) * (1 + max(abs(want)).item<double>()));
  }
}

TEST_CASE("a batch of products, and rows of several dims, are right with a bias for each") {
  const auto f = jit([](Array x, Array w, Array bias) { return tanh(matmul(x, w) + bias); });
  for (DType t : {f32, bf16}) {
    const auto some = [&](std::uint64_t key, const Shape& shape) {
      return convert(random::normal(random::key(key), shape, f64) * 0.3, t);
    };
    for (const auto& [x, w, bias] : {std::tuple{some(1, {2, 3, 10, 24}), some(2, {24, 16}), some(3, {16})},
                                     std::tuple{some(1, {3, 10, 24}), some(2, {3, 24, 16}), some(3, {3, 1, 16})},
                                     std::tuple{some(1, {1, 24}), some(2, {24, 16}), some(3, {16})},
                                     std::tuple{some(1, {40, 24}), some(2, {24, 1}), some(3, {40, 1})}}) {
      const Array want = tanh(matmul(convert(x, f64), convert(w, f64)) + convert(bias, f64));
      CHECK(distance(f(x, w, bias), want) < tolerance_of(t));
    }
  }
}

TEST_CASE(
    "f32 that may be rounded is off by that on a GPU, and not at all on a CPU; halves widened for a convolution are not off") {
  const Operands o = operands(f32, 70, 40, 90);
  const Array full = matmul(o.x, o.w), rounded = matmul(o.x, o.w, {.precision = Precision::tf32});
  // Each operand by at most 2^-11 of itself.
  CHECK(max(abs(full - rounded) / matmul(abs(o.x), abs(o.w))).item<double>() < 0x1.01p-10);
  CHECK(all_equal(full, rounded) == !is_gpu());
  const PrecisionScope scope(Precision::tf32);
  CHECK(all_equal(jit([](Array x, Array w) { return matmul(x, w); })(o.x, o.w), rounded));
  const Operands a = operands(bf16, 36, 4, 12);
  const Array image = reshape(a.x, {1, 6, 6, 12}), kernel = reshape(stack({a.w, a.w + a.w, a.w, a.w}), {2, 2, 12, 4});
  CHECK(distance(conv(image, kernel, {.dtype = f32}), conv(convert(image, f64), convert(kernel, f64))) < 1e-5);
}
