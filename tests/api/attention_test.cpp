// dot_product_attention against softmax over all scores: values, every kind of derivative, batching, and the exact
// texts of errors.
#include <doctest/doctest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "sheaf/sheaf.h"
#include "tests/message.h"

using namespace sheaf;
using sheaf::tests::message_of;

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

using V = std::vector<double>;
V values(const Array& x) { return x.to_vector<double>(); }

Array normal(int seed, const Shape& shape, DType dtype = f64) {
  return random::normal(random::key(static_cast<std::uint64_t>(seed)), shape, dtype);
}

// The definition, with all scores; a query that meets no key gives NaN.
Array composed(const Array& q, const Array& k, const Array& v, const AttentionOptions& o = {}) {
  const std::int64_t group = q.shape(-2) / k.shape(-2);
  const double scale = o.scale.value_or(1 / std::sqrt(static_cast<double>(q.shape(-1))));
  Array s = einsum("...tnh,...snh->...nts", q, repeat(k, group, -2)) * scale;
  if (o.bias) s = s + *o.bias;
  const Array t = expand_dims(arange(q.shape(-3)), {1}), key = expand_dims(arange(k.shape(-3)), {0});
  if (o.causal) s = where(key <= t, s, -kInfinity);
  if (o.window) s = where(logical_and(key >= t - o.window->first, key <= t + o.window->second), s, -kInfinity);
  if (o.mask) s = where(*o.mask, s, -kInfinity);
  return einsum("...nts,...snh->...tnh", softmax(s), repeat(v, group, -2));
}

void check_close(const Array& got, const Array& want, double tolerance) {
  REQUIRE(got.shape() == want.shape());
  REQUIRE(got.dtype() == want.dtype());
  const V g = values(got), w = values(want);
  double largest = 1;
  for (double x : w) largest = std::max(largest, std::abs(x));
  double difference = 0;
  bool is_finite = true;
  for (std::size_t i = 0; i < g.size(); ++i) {
    difference = std::max(difference, std::abs(g[i] - w[i]));
    is_finite = is_finite && std::isfinite(g[i]);
  }
  CHECK(is_finite);
  CHECK(difference <= tolerance * largest);
}

struct Operands {
  Array q, k, v;
};

Operands operands(const Shape& q, const Shape& k, DType dtype = f64) {
  return {normal(1, q, dtype), normal(2, k, dtype), normal(3, k, dtype)};
}

struct Case {
  Shape q, k;
  AttentionOptions options;
};

// Small ones of one block, and ones of several blocks of queries and keys, with ragged ends.
std::vector<Case> cases() {
  const Array bias = normal(7, {4, 5, 7}), mask = normal(8, {2, 1, 5, 7}) < 1.0;
  return {
      {{5, 4, 3}, {7, 4, 3}, {}},
      {{1, 1, 1}, {1, 1, 1}, {}},
      {{2, 5, 4, 3}, {2, 7, 4, 3}, {.scale = 0.3}},
      {{2, 5, 4, 3}, {2, 7, 2, 3}, {.causal = true}},
      {{2, 5, 4, 3}, {2, 7, 1, 3}, {.bias = bias}},
      {{2, 5, 4, 3}, {2, 7, 2, 3}, {.bias = bias, .mask = mask}},
      {{2, 5, 4, 3}, {2, 7, 2, 3}, {.causal = true, .window = std::pair{2, 1}}},
      {{2, 2, 3, 1, 2}, {2, 2, 4, 1, 2}, {}},
      {{300, 8, 2}, {300, 4, 2}, {.causal = true}},
      {{130, 16, 2}, {300, 16, 2}, {.bias = normal(9, {130, 300}), .mask = normal(6, {16, 1, 300}) < 1.0}},
      {{200, 16, 2}, {300, 8, 2}, {.bias = normal(9, {16, 1, 300}), .window = std::pair{100, 60}}},
  };
}

/// Sum of the results weighted by numbers that differ.
template <class F>
auto weighted(F f) {
  return [f](const Array& q, const Array& k, const Array& v, const Array& bias) {
    const Array y = f(q, k, v, bias);
    return sum(y * cos(reshape(arange(0.0, static_cast<double>(y.size())), y.shape())));
  };
}

auto with_bias(Array (*attention)(Operand, Operand, Operand, const AttentionOptions&), const AttentionOptions& o) {
  return weighted([attention, o](const Array& q, const Array& k, const Array& v, const Array& bias) {
    AttentionOptions options = o;
    if (o.bias) options.bias = bias;
    return attention(q, k, v, options);
  });
}
Array composed_of(Operand q, Operand k, Operand v, const AttentionOptions& o) {
  return composed(*q.array(), *k.array(), *v.array(), o);
}

}  // namespace

TEST_CASE("attention is softmax over all scores, whatever the mask, bias, window and grouping of heads") {
  for (const Case& c : cases()) {
    const auto [q, k, v] = operands(c.q, c.k);
    check_close(dot_product_attention(q, k, v, c.options), composed(q, k, v, c.options), 1e-13);
  }
}

TEST_CASE("attention of f32 is as near as its sums are") {
  const auto [q, k, v] = operands({300, 8, 16}, {300, 2, 16}, f32);
  check_close(dot_product_attention(q, k, v, {.causal = true}), composed(q, k, v, {.causal = true}), 1e-5);
}

TEST_CASE("attention of f16 and bf16 computes in f32 and rounds the result once") {
  for (const DType dtype : {f16, bf16}) {
    const auto [q, k, v] = operands({70, 4, 16}, {300, 2, 16}, dtype);
    const Array wide = dot_product_attention(convert(q, f32), convert(k, f32), convert(v, f32));
    CHECK(values(dot_product_attention(q, k, v)) == values(convert(wide, dtype)));
  }
  // Scores of 1e5 are beyond f16.
  const Array large = full({2, 1, 4}, 200.0, f16);
  CHECK(values(dot_product_attention(large, large, large)) == V(8, 200));
}

TEST_CASE("gradients of attention are those of softmax over all scores, of query, key, value and bias") {
  for (const Case& c : cases()) {
    const auto [q, k, v] = operands(c.q, c.k);
    const Array bias = c.options.bias.value_or(array({0.0}));
    const auto got = grad<0, 1, 2, 3>(with_bias(dot_product_attention, c.options))(q, k, v, bias);
    const auto want = grad<0, 1, 2, 3>(with_bias(composed_of, c.options))(q, k, v, bias);
    check_close(std::get<0>(got), std::get<0>(want), 1e-12);
    check_close(std::get<1>(got), std::get<1>(want), 1e-12);
    check_close(std::get<2>(got), std::get<2>(want), 1e-12);
    check_close(std::get<3>(got), std::get<3>(want), 1e-12);
  }
}

TEST_CASE("tangents of attention are those of softmax over all scores") {
  for (const Case& c : cases()) {
    const auto [q, k, v] = operands(c.q, c.k);
    const auto [dq, dk, dv] = Operands{normal(11, c.q), normal(12, c.k), normal(13, c.k)};
    const auto tangent = [&](const auto& attention) {
      return jvp([&](Array x, Array y, Array z) { return attention(x, y, z, c.options); }, std::tuple{q, k, v},
                 std::tuple{dq, dk, dv})
          .second;
    };
    check_close(tangent(dot_product_attention), tangent(composed_of), 1e-12);
  }
}

TEST_CASE("the gradient of attention agrees with differences of its values") {
  const auto [q, k, v] = operands({4, 2, 2}, {5, 1, 2});
  const auto f = weighted([](const Array& x, const Array& y, const Array& z, const Array& bias) {
    return dot_product_attention(x, y, z, {.bias = bias, .causal = true});
  });
  const Array bias = normal(4, {2, 4, 5}), key = k, value = v;
  const V gradient = values(grad<0>(f)(q, k, v, bias));
  for (std::int64_t i = 0; i < q.size(); ++i) {
    V step(static_cast<std::size_t>(q.size()));
    step[static_cast<std::size_t>(i)] = 1e-6;
    const Array h = reshape(array(step), q.shape());
    const double difference = (f(q + h, key, value, bias) - f(q - h, key, value, bias)).item<double>() / 2e-6;
    CHECK(gradient[static_cast<std::size_t>(i)] == doctest::Approx(difference).epsilon(1e-7));
  }
}

TEST_CASE("second derivatives of attention are those of softmax over all scores, in either mode") {
  const auto [q, k, v] = operands({3, 2, 2}, {4, 1, 2});
  const Array bias = normal(4, {2, 3, 4});
  const auto second = [&](const auto& attention) {
    const auto f = with_bias(attention, {.bias = bias, .causal = true});
    const auto slope = [&](Array x, Array y, Array z, Array b) {
      const auto g = grad<0, 1, 2, 3>(f)(x, y, z, b);
      return sum(sin(std::get<0>(g))) + sum(std::get<1>(g) * 2) + sum(square(std::get<2>(g))) +
             sum(sin(std::get<3>(g)));
    };
    const auto g = grad<0, 1, 2, 3>(slope)(q, k, v, bias);
    const auto forward = jvp([&](Array x, Array y) { return slope(x, y, v, bias); }, std::tuple{q, k},
                             std::tuple{ones_like(q), ones_like(k)});
    return std::vector<Array>{std::get<0>(g), std::get<1>(g), std::get<2>(g), std::get<3>(g), forward.second};
  };
  const std::vector<Array> got = second(dot_product_attention), want = second(composed_of);
  for (std::size_t i = 0; i < got.size(); ++i) check_close(got[i], want[i], 1e-11);
}

TEST_CASE("B37: a query that meets no key gets zeros, and gives and gets no gradient (pytorch 25110, 131060)") {
  const auto [q, k, v] = operands({3, 1, 2}, {4, 1, 2});
  const Array mask = array({{true, true, false, true}, {false, false, false, false}, {true, false, false, false}});
  const Array bias = where(mask, 0.0, -kInfinity);
  for (const AttentionOptions& o : {AttentionOptions{.mask = mask}, AttentionOptions{.bias = bias}}) {
    const V y = values(dot_product_attention(q, k, v, o));
    CHECK(y[2] == 0);
    CHECK(y[3] == 0);
    CHECK(y[4] == values(v)[0]);
    const auto f = weighted([&](const Array& x, const Array& z, const Array& w, const Array&) {
      return dot_product_attention(x, z, w, o);
    });
    const auto g = grad<0, 1, 2>(f)(q, k, v, bias);
    CHECK(values(std::get<0>(g))[2] == 0);
    CHECK(values(std::get<0>(g))[3] == 0);
    for (const Array& x : {std::get<0>(g), std::get<1>(g), std::get<2>(g)})
      for (const double d : values(x)) CHECK(std::isfinite(d));
  }
}

TEST_CASE("attention over nothing is zeros, and of nothing is nothing") {
  CHECK(values(dot_product_attention(ones({2, 1, 2}), ones({0, 1, 2}), ones({0, 1, 2}))) == V(4, 0));
  CHECK(dot_product_attention(ones({0, 1, 2}), ones({3, 1, 2}), ones({3, 1, 2})).shape() == Shape{0, 1, 2});
  CHECK(dot_product_attention(ones({0, 4, 1, 2}), ones({0, 3, 1, 2}), ones({0, 3, 1, 2})).shape() == Shape{0, 4, 1, 2});
  CHECK(values(dot_product_attention(ones({1, 1, 0}), ones({2, 1, 0}), array({{{1.0}}, {{3.0}}}))) == V{2});
}

TEST_CASE("large scores neither overflow nor lose the softmax") {
  const Array q = full({2, 1, 1}, 1e4, f32), k = array({{{1e4f}}, {{-1e4f}}}), v = array({{{5.0f}}, {{7.0f}}});
  CHECK(values(dot_product_attention(q, k, v)) == V{5, 5});
}

TEST_CASE("vmap of attention over any of its operands is a loop") {
  const auto [q, k, v] = operands({3, 5, 4, 2}, {3, 6, 2, 2});
  const Array bias = normal(5, {3, 5, 6}), mask = normal(6, {3, 6}) < 0.5;
  const auto f = [](Array x, Array y, Array z, Array b, Array m) {
    const AttentionOptions options{.bias = b, .mask = m};
    return value_and_grad<0, 1, 2, 3>([&](Array x1, Array y1, Array z1, Array b1) {
      return sum(sin(dot_product_attention(x1, y1, z1, {.bias = b1, .mask = m})));
    })(x, y, z, b);
  };
  const std::vector<Array> all{q, k, v, bias, mask};
  for (unsigned set = 1; set < 32; ++set) {
    VmapOptions options;
    std::vector<Array> in;
    for (unsigned i = 0; i < 5; ++i) {
      const bool is_mapped = set >> i & 1;
      options.in.push_back(is_mapped ? Axis(0) : Axis(none));
      in.push_back(is_mapped ? all[i] : all[i][0]);
    }
    const auto [y, g] = vmap(f, options)(in[0], in[1], in[2], in[3], in[4]);
    for (int i = 0; i < 3; ++i) {
      const auto row = [&](unsigned operand) { return set >> operand & 1 ? in[operand][i] : in[operand]; };
      const auto [one, slope] = f(row(0), row(1), row(2), row(3), row(4));
      check_close(y[i], one, 1e-13);
      check_close(std::get<0>(g)[i], std::get<0>(slope), 1e-13);
      check_close(std::get<1>(g)[i], std::get<1>(slope), 1e-13);
      check_close(std::get<2>(g)[i], std::get<2>(slope), 1e-13);
      check_close(std::get<3>(g)[i], std::get<3>(slope), 1e-13);
    }
  }
}

TEST_CASE("attention inside jit gives the bits it gives outside") {
  const auto [q, k, v] = operands({300, 8, 16}, {300, 2, 16}, f32);
  const auto f = [](Array x, Array y, Array z) { return dot_product_attention(x, y, z, {.causal = true}) * 2; };
  CHECK(values(jit(f)(q, k, v)) == values(f(q, k, v)));
}

TEST_CASE("the bits of attention and its gradient do not depend on the batch and the heads beside") {
  const auto [q, k, v] = operands({3, 300, 16, 8}, {3, 270, 16, 8}, f32);
  const auto f = [](Array x, Array y, Array z) {
    return value_and_grad<0, 1, 2>([](Array a, Array b, Array c) {
             return sum(square(dot_product_attention(a, b, c, {.causal = true})));
           })(x, y, z)
        .second;
  };
  const auto all = f(q, k, v);
  const auto one = [](const Array& x) { return x(1, slice(), slice(5, 6)); };
  const auto alone = f(one(q), one(k), one(v));
  CHECK(values(one(dot_product_attention(q, k, v))) == values(dot_product_attention(one(q), one(k), one(v))));
  CHECK(values(one(std::get<0>(all))) == values(std::get<0>(alone)));
  CHECK(values(one(std::get<1>(all))) == values(std::get<1>(alone)));
  CHECK(values(one(std::get<2>(all))) == values(std::get<2>(alone)));
}

TEST_CASE("attention takes integers as f32, and promotes as other functions do") {
  const Array q = ones({2, 1, 2}, i32);
  CHECK(dot_product_attention(q, q, q).dtype() == f32);
  CHECK(dot_product_attention(ones({2, 1, 2}, f16), ones({2, 1, 2}, f32), q).dtype() == f32);
}

TEST_CASE("attention says which operand does not fit, with the shapes of all") {
  const Array q = zeros({2, 5, 4, 8}), k = zeros({2, 6, 3, 8}), m = zeros({5, 7}, bool_);
  const Array s = zeros({1, 1, 1}), z = zeros({1, 1, 1}, c64);
  const int here = __LINE__;
  const auto heads = [&] { dot_product_attention(q, k, k); };
  const auto mask = [&] { dot_product_attention(q, q, q, {.mask = m}); };
  const auto dtype = [&] { dot_product_attention(q, q, q, {.mask = q}); };
  const auto window = [&] { dot_product_attention(q, q, q, {.window = std::pair{-1, 0}}); };
  const auto rank = [&] { dot_product_attention(m, m, 1.0); };
  const auto complex_bias = [&] { dot_product_attention(s, s, s, {.bias = z}); };
  const auto complex_query = [&] { dot_product_attention(z, s, s); };
  CHECK(message_of<ShapeError>(heads, here) ==
        "HERE+1: dot_product_attention: query heads (4) must be a multiple of key heads (3)\n"
        "  query: f32[2, 5, 4, 8]   (made at HERE+-2)\n  key: f32[2, 6, 3, 8]   (made at HERE+-2)\n"
        "  value: f32[2, 6, 3, 8]   (made at HERE+-2)");
  CHECK(message_of<ShapeError>(mask, here) ==
        "HERE+2: dot_product_attention: mask dim 3 (7) must be 1 or 5\n"
        "  query: f32[2, 5, 4, 8]   (made at HERE+-2)\n  key: f32[2, 5, 4, 8]   (made at HERE+-2)\n"
        "  value: f32[2, 5, 4, 8]   (made at HERE+-2)\n  mask: bool[5, 7]   (made at HERE+-2)");
  CHECK(message_of<TypeError>(dtype, here) ==
        "HERE+3: dot_product_attention: mask must be bool, not f32\n"
        "  query: f32[2, 5, 4, 8]   (made at HERE+-2)\n  key: f32[2, 5, 4, 8]   (made at HERE+-2)\n"
        "  value: f32[2, 5, 4, 8]   (made at HERE+-2)\n  mask: f32[2, 5, 4, 8]   (made at HERE+-2)");
  CHECK(message_of<ShapeError>(window, here) ==
        "HERE+4: dot_product_attention: the window {-1, 0} must not be negative\n"
        "  query: f32[2, 5, 4, 8]   (made at HERE+-2)\n  key: f32[2, 5, 4, 8]   (made at HERE+-2)\n"
        "  value: f32[2, 5, 4, 8]   (made at HERE+-2)");
  CHECK(message_of<ShapeError>(rank, here) ==
        "HERE+5: dot_product_attention: query, key and value must all have dims [batch.., length, heads, features], "
        "and as many\n  query: bool[5, 7]   (made at HERE+-2)\n  key: bool[5, 7]   (made at HERE+-2)");
  CHECK(message_of<TypeError>(complex_bias, here) ==
        "HERE+6: dot_product_attention: bias must be floating point, not c64\n"
        "  query: f32[1, 1, 1]   (made at HERE+-1)\n  key: f32[1, 1, 1]   (made at HERE+-1)\n"
        "  value: f32[1, 1, 1]   (made at HERE+-1)\n  bias: c64[1, 1, 1]   (made at HERE+-1)");
  CHECK(message_of<TypeError>(complex_query, here) ==
        "HERE+7: dot_product_attention: query, key and value must be all f16, bf16, f32 or f64, not c64, c64 and c64\n"
        "  query: c64[1, 1, 1]   (made at HERE+-1)\n  key: f32[1, 1, 1]   (made at HERE+-1)\n"
        "  value: f32[1, 1, 1]   (made at HERE+-1)");
}
