// What one pass over memory does: rows through reductions, several reductions of one array, and index maps that are no
// pass of their own. Counted in kernels and in the bytes that they read and write; and to the bit what op by op gives.
#include <doctest/doctest.h>

#include <cmath>

#include "sheaf/sheaf.h"

using namespace sheaf;

namespace {

constexpr std::int64_t kRows = 96, kColumns = 1000;
constexpr double kArray = 4.0 * kRows * kColumns, kRow = 4.0 * kColumns, kColumn = 4.0 * kRows;

Array wide() { return abstract({kRows, kColumns}); }
Array row() { return abstract({kColumns}); }
Array labels() { return abstract({kRows}, i32); }

struct Work {
  int kernels = 0;
  double bytes = 0;
  bool operator==(const Work&) const = default;
};
std::ostream& operator<<(std::ostream& out, const Work& w) {
  return out << w.kernels << " kernels, " << w.bytes << " bytes";
}

template <class F, class... A>
Work work(const F& f, const A&... args) {
  const auto compiled = jit(f).trace(args...).lower().compile();
  Work w{.bytes = compiled.cost().bytes};
  const std::string text = compiled.text();
  for (std::size_t at = 0; (at = text.find("= kernel ", at)) != std::string::npos; ++at) ++w.kernels;
  return w;
}

template <class F>
auto backward(const F& f) {
  return [f](Array x, Array g) { return vjp(f, x).second(g); };
}

Array rms_norm(Array x, Array scale) {
  return x * rsqrt(mean(square(x), {.axes = {1}, .keepdims = true}) + 1e-6) * scale;
}

}  // namespace

TEST_CASE("one kernel takes each row through all its reductions, and reads and writes it once") {
  CHECK(work([](Array x) { return softmax(x); }, wide()) == Work{1, 2 * kArray});
  CHECK(work([](Array x) { return log_softmax(x); }, wide()) == Work{1, 2 * kArray});
  CHECK(work([](Array x, Array s, Array t) { return layer_norm(x, s, t); }, wide(), row(), row()) ==
        Work{1, 2 * kArray + 2 * kRow});
  CHECK(work(rms_norm, wide(), row()) == Work{1, 2 * kArray + kRow});
  CHECK(work([](Array x) { return std::pair{mean(x, {.axes = {1}}), var(x, {.axes = {1}})}; }, wide()) ==
        Work{1, kArray + 2 * kColumn});
  CHECK(work([](Array x) { return std::pair{max(x, {.axes = {1}}), min(x, {.axes = {1}})}; }, wide()) ==
        Work{1, kArray + 2 * kColumn});
}

TEST_CASE("one kernel takes each row and its cotangent back through its reductions") {
  CHECK(work(backward([](Array x) { return softmax(x); }), wide(), wide()) == Work{1, 3 * kArray});
  CHECK(work(backward([](Array x) { return log_softmax(x); }), wide(), wide()) == Work{1, 3 * kArray});
  const auto norm = [](Array x, Array g, Array s, Array t) {
    return vjp([&](Array v) { return layer_norm(v, s, t); }, x).second(g);
  };
  CHECK(work(norm, wide(), wide(), row(), row()) == Work{1, 3 * kArray + kRow});
}

TEST_CASE("cross-entropy reads its logits once, and the kernel that does writes their gradient") {
  // One kernel for each row's loss, one for their mean.
  constexpr double kLosses = 2 * kColumn + 4;
  CHECK(work(cross_entropy, wide(), labels()) == Work{2, kArray + kColumn + kLosses});
  CHECK(work(value_and_grad(cross_entropy), wide(), labels()) == Work{2, 2 * kArray + kColumn + kLosses});
  CHECK(work(grad(cross_entropy), wide(), labels()) == Work{1, 2 * kArray + kColumn});
}

TEST_CASE("one kernel reads an array for all that is reduced of it along the same dims") {
  const auto extremes = [](Reduce over) {
    return [over](Array x) { return std::tuple{max(x, over), min(x, over), sum(x, over), sum(x * x, over)}; };
  };
  CHECK(work(extremes({.axes = {0}}), wide()) == Work{1, kArray + 4 * kRow});
  CHECK(work(extremes({}), wide()) == Work{1, kArray + 4 * 4});
  const auto of_products = [](Array x, Array g) {
    return std::pair{sum(g, {.axes = {0, 1, 2}}), sum(g * x, {.axes = {0, 1, 2}})};
  };
  constexpr double kImages = 4.0 * 4 * 8 * 8 * 32;
  CHECK(work(of_products, abstract({4, 8, 8, 32}), abstract({4, 8, 8, 32})) == Work{1, 2 * kImages + 2 * 4 * 32});
  // But the variance of a column waits for its mean.
  const auto moments = [](Array x) { return std::pair{mean(x, {.axes = {0}}), var(x, {.axes = {0}})}; };
  CHECK(work(moments, wide()).kernels == 2);
}

TEST_CASE("columns are added up while many rows pass") {
  constexpr std::int64_t kMany = 1000, kShort = 200;
  constexpr double kTall = 4.0 * kMany * kShort, kWide = 4.0 * kShort;
  const Array x = abstract({kMany, kShort}), s = abstract({kShort}), w = abstract({kShort, 50});
  const auto norm = [](Array v, Array g, Array a, Array b) {
    return vjp([](Array u, Array c, Array d) { return layer_norm(u, c, d); }, v, a, b).second(g);
  };
  CHECK(work(norm, x, x, s, s) == Work{1, 3 * kTall + 3 * kWide});
  const auto through_relu = [](Array v, Array g) {
    const Array d = where(v > 0, g, 0);
    return std::pair{d, sum(d, {.axes = {0}})};
  };
  CHECK(work(through_relu, x, x) == Work{1, 3 * kTall + kWide});
  // Of few rows the lanes would be as large as the array.
  CHECK(work(through_relu, wide(), wide()).kernels == 2);
}

TEST_CASE("who won a short window is found again where the gradient is written, which goes across windows") {
  constexpr std::int64_t kBatch = 8, kEdge = 28, kChannels = 16;
  constexpr double kImages = 4.0 * kBatch * kEdge * kEdge * kChannels, kPooled = kImages / 4, kChannel = 4 * kChannels;
  const Array x = abstract({kBatch, kEdge, kEdge, kChannels});
  const Array g = abstract({kBatch, kEdge / 2, kEdge / 2, kChannels});
  const auto pool = [](Array v) { return max_pool(v); };
  CHECK(work(backward(pool), x, g) == Work{2, 3 * kImages + 3 * kPooled});
  // What a product reads of it, and the sums of its columns, in the same pass.
  const auto through_relu = [pool](Array v, Array d) {
    const auto [to_v] = vjp(pool, v).second(d);
    const Array all = where(v > 0, to_v, 0);
    return std::pair{all, sum(all, {.axes = {0, 1, 2}})};
  };
  CHECK(work(through_relu, x, g) == Work{2, 3 * kImages + 3 * kPooled + kChannel});
  // Along rows, all vectors of one would find the same again; where operations are many, so would all of the window.
  const Array rows = abstract({1000, 50, 4}), flat = abstract({200'000});
  const auto along = [](Array v, Array w) { return reshape(v - max(v, {.axes = {2}, .keepdims = true}), {-1}) * w; };
  CHECK(work(along, rows, flat).kernels == 2);
  const auto costly = [](Array v, Array w) {
    return transpose(v / sum(exp(v), {.axes = {1}, .keepdims = true}), {1, 0, 2}) * w;
  };
  CHECK(work(costly, abstract({1000, 4, 50}), abstract({4, 1000, 50})).kernels > 1);
}

TEST_CASE("an image without elements has a gradient of max-pooling without elements") {
  const auto pool = [](Array v) { return max_pool(v); };
  for (const Shape& shape : {Shape{0, 4, 4, 3}, {2, 4, 4, 0}, {2, 1, 4, 3}}) {
    const Array x = ones(shape);
    const auto [to_x] = jit(backward(pool))(x, max_pool(x));
    CHECK(all_equal(to_x, zeros(shape)));
  }
}

namespace {

struct Layer {
  Array w, b;
};

Array perceptron(const std::vector<Layer>& layers, Array x) {
  for (std::size_t i = 0; i < layers.size(); ++i) {
    x = matmul(x, layers[i].w) + layers[i].b;
    if (i + 1 < layers.size()) x = relu(x);
  }
  return x;
}

std::vector<Layer> sgd_step(std::vector<Layer> layers, Array x, Array target) {
  const auto loss = [](std::vector<Layer> p, Array in, Array wanted) {
    return mean(square(perceptron(p, in) - wanted));
  };
  const std::vector<Layer> gradient = grad(loss)(layers, x, target);
  for (std::size_t i = 0; i < layers.size(); ++i)
    layers[i] = {layers[i].w - 0.1 * gradient[i].w, layers[i].b - 0.1 * gradient[i].b};
  return layers;
}

}  // namespace

TEST_CASE("columns of what a product gives are added up where it is made, and the totals go on from there") {
  constexpr std::int64_t kMany = 512, kIn = 96, kOut = 160;
  constexpr double kX = 4.0 * kMany * kIn, kW = 4.0 * kIn * kOut, kY = 4.0 * kMany * kOut, kB = 4.0 * kOut;
  const Array x = abstract({kMany, kIn}), w = abstract({kIn, kOut}), y = abstract({kMany, kOut}), b = abstract({kOut});
  const Reduce over{.axes = {0}};
  const auto masked = [=](Array v, Array u, Array g) {
    const Array d = where(g > 0, matmul(v, u), 0);
    return std::pair{d, sum(d, over)};
  };
  CHECK(work(masked, x, w, y) == Work{1, kX + kW + 2 * kY + kB});
  CHECK(work([=](Array v, Array u) { return max(matmul(v, u), over); }, x, w) == Work{1, kX + kW + kB});
  const auto momentum = [=](Array v, Array u, Array c) { return 0.9 * c + 0.1 * mean(tanh(matmul(v, u)), over); };
  CHECK(work(momentum, x, w, b) == Work{1, kX + kW + 2 * kB});
  const auto of_rows = [](Array v, Array u) { return sum(matmul(v, u), {.axes = {0, 1}}); };
  CHECK(work(of_rows, abstract({8, kMany / 8, kIn}), w) == Work{1, kX + kW + kB});
  // Of few rows the lanes would be as large as the product; and of so many, some lanes have a row more than others.
  for (const std::int64_t rows : {128, 500})
    CHECK(work([=](Array v, Array u) { return sum(matmul(v, u), over); }, abstract({rows, kIn}), w).kernels == 2);
}

TEST_CASE("a training step of a perceptron is a kernel for each of its products, each of which reads and writes once") {
  constexpr std::int64_t kBatch = 256, kWidth = 128;
  constexpr double kRowsBytes = 4.0 * kBatch * kWidth, kWeights = 4.0 * kWidth * kWidth, kBias = 4.0 * kWidth;
  const Array x = abstract({kBatch, kWidth}), w = abstract({kWidth, kWidth}), b = abstract({kWidth});
  constexpr double kMask = kRowsBytes / 4;  // a byte for each element: where relu is flat
  // Forward: x, w, b -> y, mask; the last: target -> dy, b. dw: x, dy, w -> w. dx: dy, w, mask, b -> dx, b.
  constexpr double kForward = 3 * (2 * kRowsBytes + kWeights + kBias) + 2 * kMask + kRowsBytes + kBias;
  constexpr double kBackward =
      3 * (2 * kRowsBytes + 2 * kWeights) + 2 * (2 * kRowsBytes + kMask + kWeights + 2 * kBias);
  CHECK(work(sgd_step, std::vector<Layer>(3, {w, b}), x, x) == Work{8, kForward + kBackward});
}

TEST_CASE("what a row comes to is stored in any dims, also where the last rows are fewer") {
  const auto f = [](Array x) {
    const Array e = exp(x - max(x, {.axes = {3}, .keepdims = true})), total = sum(e, {.axes = {3}});
    return std::tuple{e, total, log(reshape(total, {1, 8, 2, 33})), reshape(total, {8, 1, 66}) == 0};
  };
  const Array x = random::normal(random::key(3), {8, 2, 33, 32});
  const auto fused = jit(f)(x), alone = f(x);
  CHECK(std::get<1>(fused).to_vector<float>() == std::get<1>(alone).to_vector<float>());
  CHECK(std::get<2>(fused).to_vector<float>() == std::get<2>(alone).to_vector<float>());
  CHECK(std::get<3>(fused).to_vector<bool>() == std::get<3>(alone).to_vector<bool>());
}

TEST_CASE("random bits are made where they are used, and lie in no memory") {
  const auto dropout = [](Array x, Array key) {
    return where(random::bernoulli(key, {kRows, kColumns}, 0.9), x / 0.9, 0);
  };
  const Array key = abstract({2}, u32);
  CHECK(work(dropout, wide(), key) == Work{1, 2 * kArray + 8});
  const auto normed = [&](Array x, Array k, Array s, Array t) { return layer_norm(x + dropout(x, k), s, t); };
  CHECK(work(normed, wide(), key, row(), row()) == Work{1, 2 * kArray + 8 + 2 * kRow});
  const auto both = [&](Array x, Array k, Array g) {
    const auto [y, back] = vjp([&](Array v) { return dropout(v, k); }, x);
    return std::pair{y, back(g)};
  };
  CHECK(work(both, wide(), key, wide()) == Work{1, 4 * kArray + 8});
}

TEST_CASE(
    "slices, gathers, padding, concatenations and transposes are index maps of who reads or writes through them") {
  CHECK(work([](Array x) { return x(slice(), slice(0, 500)) * sigmoid(x(slice(), slice(500, 1000))); }, wide()) ==
        Work{1, 1.5 * kArray});
  CHECK(work([](Array x, Array i) { return tanh(take(x, i, 0)); }, wide(), labels()) == Work{1, 2 * kArray + kColumn});
  CHECK(work([](Array x) { return pad(tanh(x), {{1, 1}, {0, 0}}) * 2; }, wide()) == Work{1, 2 * kArray + 2 * kRow});
  CHECK(work([](Array x, Array y) { return tanh(concatenate({x * 2, y + 1}, 0)); }, wide(), wide()) ==
        Work{1, 4 * kArray});
  CHECK(work([](Array x, Array y) { return softmax(concatenate({x * 2, y + 1}, 1)); }, wide(), wide()) ==
        Work{1, 4 * kArray});
  CHECK(work([](Array x) { return tanh(transpose(x)); }, wide()) == Work{1, 2 * kArray});
  CHECK(work([](Array x) { return softmax(transpose(x)); }, wide()) == Work{1, 2 * kArray});
  CHECK(work([](Array x) { return flip(roll(x, 3), {0}) * 2; }, wide()) == Work{1, 2 * kArray});
  CHECK(work([](Array x) { return reshape(softmax(x), {kRows * 10, kColumns / 10}); }, wide()) == Work{1, 2 * kArray});
}

TEST_CASE("a product reads an array through its reshape") {
  const auto flat = [](Array x, Array w) { return matmul(reshape(x, {kRows, kColumns}), w); };
  const Array w = abstract({kColumns, 20});
  CHECK(work(flat, abstract({kRows, 10, kColumns / 10}), w).kernels == 1);
  CHECK(work(flat, abstract({kRows / 3, 3 * kColumns}), w).kernels == 1);
  const auto after = [&](Array x, Array v) { return flat(reshape(tanh(x), {kRows, 10, kColumns / 10}), v); };
  CHECK(work(after, wide(), w).kernels == 2);
}

TEST_CASE("putting thousands of arrays together is a few passes over them, by a few kernels for all") {
  constexpr std::size_t kMany = 5000;
  const auto together = [](std::vector<Array> x) { return concatenate(x, 0); };
  const auto compiled = jit(together).trace(std::vector<Array>(kMany, abstract({3}))).lower().compile();
  CHECK(compiled.cost().bytes <= 3 * 2 * 4.0 * 3 * kMany);
  CHECK(compiled.kernels().size() <= 6);
  std::vector<Array> x;
  for (std::size_t i = 0; i < kMany; ++i) {
    const auto v = static_cast<float>(i);
    x.push_back(array({v, 2 * v, 3 * v}));
  }
  const std::vector<float> all = compiled(x).template to_vector<float>();
  for (std::size_t i = 0; i < kMany; ++i)
    for (std::size_t j = 0; j < 3; ++j) REQUIRE(all[3 * i + j] == static_cast<float>(i * (j + 1)));
}

TEST_CASE("what is fused gives the bits of one op after another, whatever the length of rows") {
  const auto check = [](const auto& f, const auto&... x) { CHECK(same(jit(f)(x...), f(x...))); };
  const auto draw = [](const Shape& shape, std::uint64_t seed) { return random::normal(random::key(seed), shape); };
  for (const std::int64_t n : {1, 17, 64, 100, 1000, 4099, 20000}) {
    CAPTURE(n);
    const std::int64_t rows = n < 1000 ? 70 : 3;
    const Array x = draw({rows, n}, 1), g = draw({rows, n}, 2), s = draw({n}, 3), t = draw({n}, 4);
    const Array label = random::randint(random::key(5), {rows}, 0, n);
    check([](Array v) { return softmax(v); }, x);
    check(
        [](Array v) {
          const Array e = exp(v - max(v, {.axes = {1}, .keepdims = true}));
          return std::pair{e, e / sum(e, {.axes = {1}, .keepdims = true})};  // what is kept is a result as well
        },
        x);
    check([](Array v) { return std::pair{softmax(v), log_softmax(v)}; }, x);
    check(backward([](Array v) { return softmax(v); }), x, g);
    check([](Array v, Array d, Array a,
             Array b) { return vjp([](Array u, Array c, Array e) { return layer_norm(u, c, e); }, v, a, b).second(d); },
          x, g, s, t);
    check([](Array v, Array l) { return value_and_grad(cross_entropy)(v, l); }, x, label);
    check(
        [](Array v, Array d) {
          const Reduce over{.axes = {0}};
          return std::tuple{max(v, over), sum(v, over), sum(v * d, over), argmax(v, 0), min(v), sum(v)};
        },
        x, g);
    check([](Array v, Array d) { return tanh(concatenate({v * 2, pad(d, {{1, 0}, {0, 0}}), v}, 0)); }, x, g);
    check([](Array v, Array d) { return concatenate({v, -d, v(slice(), slice(0, 1))}, 1) * 3; }, x, g);
    check([](Array v) { return reshape(log_softmax(v), {-1}); }, x);
  }
}

TEST_CASE("columns of what a product gives have the bits of sums of their own") {
  const auto check = [](const auto& f, const auto&... x) { CHECK(same(jit(f)(x...), f(x...))); };
  const auto draw = [](std::uint64_t seed, const Shape& shape, DType t) {
    return convert(random::normal(random::key(seed), shape), t);
  };
  for (const DType t : {f32, bf16, f64})
    for (const auto& [rows, in, out] : {std::tuple{256, 64, 100}, {1024, 300, 400}, {32768, 8, 12}}) {
      CAPTURE(rows);
      const Array x = draw(1, {rows, in}, t), w = draw(2, {in, out}, t), g = draw(3, {rows, out}, t);
      check(
          [](Array v, Array u, Array d) {
            const Array y = where(d > 0, matmul(v, u), 0), total = sum(y, {.axes = {0}});
            return std::tuple{y, total * 0.5 - d[0], max(y, {.axes = {0}}), y - total, sum(y, {.axes = {1}})};
          },
          x, w, g);
    }
  const Array x = draw(1, {320, 40}, f32), w = draw(2, {40, 40}, f32);
  check(sgd_step, std::vector<Layer>(3, {w * 0.1, w[0]}), x, x);
}

TEST_CASE("columns that are added up by the way have the bits of a sum of their own, whatever the number of rows") {
  const auto check = [](const auto& f, const auto&... x) { CHECK(same(jit(f)(x...), f(x...))); };
  for (const auto& [rows, n] : {std::pair{256, 1000}, {300, 17}, {16384, 24}, {16400, 70}, {40000, 33}}) {
    CAPTURE(rows);
    const Array x = random::normal(random::key(1), {rows, n}), g = x * 0.5 - 1;
    check(
        [](Array v, Array d) {
          return vjp([](Array u, Array c, Array e) { return layer_norm(u, c, e); }, v, v[0], v[1]).second(d);
        },
        x, g);
    check(
        [](Array v, Array d) {
          const Array kept = where(v > 0, d, 0);
          return std::tuple{kept, sum(kept, {.axes = {0}}), max(kept, {.axes = {0}}), softmax(kept)};
        },
        x, g);
    check(
        [](Array v) {
          const Array narrow = convert(v, bf16) * 3;
          return std::pair{narrow, sum(narrow, {.axes = {0}})};
        },
        x);
  }
}

TEST_CASE("columns below several dims are added up in the order of their rows") {
  const auto check = [](const auto& f, const auto&... x) { CHECK(same(jit(f)(x...), f(x...))); };
  for (const Shape& shape : {Shape{4, 8, 16, 3}, {3, 10, 14, 16}, {5, 58, 58, 16}, {2, 128, 64, 40}, {9, 3, 700, 1}}) {
    CAPTURE(shape[2]);
    const Array x = random::normal(random::key(1), shape), g = random::normal(random::key(2), shape);
    const Reduce over{.axes = {0, 1, 2}};
    check(
        [&](Array v, Array d) {
          const Array kept = where(v > 0, d, 0);
          return std::tuple{kept, sum(kept, over), max(kept, over)};
        },
        x, g);
    check([&](Array v) { return std::pair{flip(v, {1}) * 2, sum(flip(v, {1}) * 2, over)}; }, x);
    if (shape[1] % 2 || shape[2] % 2) continue;
    const Array pooled = random::normal(random::key(3), {shape[0], shape[1] / 2, shape[2] / 2, shape[3]});
    check(
        [&](Array v, Array d) {
          const auto [to_v] = vjp([](Array u) { return max_pool(u); }, v).second(d);
          const Array kept = where(v > 0, to_v, 0);
          return std::pair{kept, sum(kept, over)};
        },
        round(x), pooled);
  }
}

TEST_CASE("arrays without columns or rows have empty sums, and sums of nothing") {
  const auto totals = [](Array v) {
    return std::tuple{sum(v, {.axes = {0}}), sum(v, {.axes = {1}}), sum(v * 2 + 1, {.axes = {0}}), softmax(v)};
  };
  for (const std::int64_t n : {1, 3, 65, 300, 20'000}) {
    CAPTURE(n);
    for (DType t : {f32, i32}) CHECK(sum(zeros({n, 0}, t), {.axes = {0}}).wait().shape() == Shape{0});
    CHECK(max(zeros({n, 0}), {.axes = {0}}).wait().shape() == Shape{0});
    CHECK(argmax(zeros({n, 0}), 0).wait().shape() == Shape{0});
    const auto [of_columns, of_rows, more, same_rows] = jit(totals)(zeros({n, 0}));
    CHECK(of_columns.shape() == Shape{0});
    CHECK(all_equal(of_rows, zeros({n})));
    CHECK(same_rows.wait().shape() == Shape{n, 0});
    CHECK(all_equal(logsumexp(zeros({n, 0}), {.axes = {1}}), full({n}, -INFINITY)));
    CHECK(log_softmax(zeros({n, 0})).wait().shape() == Shape{n, 0});
    const auto [zero_columns, no_rows, ones_of_none, nothing] = jit(totals)(zeros({0, n}));
    CHECK(all_equal(zero_columns, zeros({n})));
    CHECK(no_rows.shape() == Shape{0});
    CHECK(nothing.wait().shape() == Shape{0, n});
  }
}
