// Strategies whose collectives people write themselves, in a shard_map: what the derivative adds is what they would
// have written for it, and nothing is added between.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tests/acceptance/rows.h"

using namespace sheaf;
using namespace sheaf::acceptance;

namespace {

// One step of a ring: what a device's queries make of the keys and values that it holds now. Scores are small here, so
// that no largest one has to be taken off.
struct Seen {
  Array sum, total;  // of weighted values [b, h, q, d], of weights [b, h, q]
};
Seen seen(const Array& q, const Array& k, const Array& v) {
  const Array weights = exp(einsum("bqhd,bkhd->bhqk", q, k) / std::sqrt(static_cast<double>(q.shape()[3])));
  return {einsum("bhqk,bkhd->bhqd", weights, v), sum(weights, {.axes = {3}})};
}

Array ring(const Array& q, Array k, Array v) {
  const std::int64_t n = axis_size("c");
  std::vector<std::pair<std::int64_t, std::int64_t>> next;
  for (std::int64_t i = 0; i < n; ++i) next.emplace_back(i, (i + 1) % n);
  Seen all = seen(q, k, v);
  for (std::int64_t i = 1; i < n; ++i) {
    k = ppermute(k, "c", next);
    v = ppermute(v, "c", next);
    const Seen more = seen(q, k, v);
    all = {all.sum + more.sum, all.total + more.total};
  }
  return transpose(all.sum / expand_dims(all.total, {3}), {0, 2, 1, 3});
}

// Which expert each token goes to, as places [tokens, experts, capacity], and the weight of its answer.
std::pair<Array, Array> route(const Array& gate, const Array& x, std::int64_t capacity) {
  const Array scores = softmax(dot(x, gate));
  const Array chosen = one_hot(argmax(scores, -1), gate.shape()[1]);
  const Array place = cumsum(chosen, {.axis = 0}) * chosen - 1;
  return {one_hot(place.astype(i32), capacity) * expand_dims(chosen, {2}), sum(scores * chosen, {.axes = {1}})};
}

}  // namespace

TEST_CASE("a pipeline's boundary: activations go to the next stage, and their derivative comes back") {
  for (const int n : {2, 4, 8}) {
    const Mesh mesh = Mesh::abstract({{"p", n}});
    const auto stage = [](const Array& x, const Array& w1, const Array& w2, const Array& shift) {
      std::vector<std::pair<std::int64_t, std::int64_t>> next;
      for (std::int64_t i = 0; i + 1 < axis_size("p"); ++i) next.emplace_back(i, i + 1);
      return ppermute(mlp(x, w1[0], w2[0]) + shift, "p", next);
    };
    const Layer layer = [=](const Array& x, const Weights& w) {
      return shard_map(stage, {.mesh = mesh, .in = {P("p"), P("p"), P("p"), P("p")}, .out = {P("p")}})(x, w[0], w[1],
                                                                                                       w[2]);
    };
    const Layer plain = [n](const Array& x, const Weights& w) {
      const Array y = vmap(mlp)(x, w[0], w[1]) + w[2];
      return concatenate({zeros_like(y(slice(0, 1))), y(slice(0, n - 1))});
    };
    const std::int64_t rows = 8, h = 16, f = 32;
    const Shapes shapes{{n, rows, h}, {{n, h, f}, {n, f, h}, {n, rows, h}}};
    check({.mesh = fmt::format("p={}", n),
           .x = "p,_,_",
           .w = {"p,_,_", "p,_,_", "p,_,_"},
           .forward = {{"ppermute", "p", rows * h * 4}},
           .step = {{"ppermute", "p", rows * h * 4, 2}},
           .largest = h * f * 4},
          layer, shapes, shapes, plain);
  }
}

TEST_CASE("experts: tokens go to their experts and answers back, in each pass; only the gate's gradient is a sum") {
  for (const int n : {2, 4, 8}) {
    const Mesh mesh = Mesh::abstract({{"e", n}});
    const std::int64_t tokens = 16, h = 8, f = 16, capacity = 8;
    const auto spread = [=](const Array& x, const Array& in, const Array& out, const Array& gate) {
      const auto [places, weight] = route(gate, x, capacity);
      const Array sent = all_to_all(einsum("tec,th->ech", places, x), "e", {.split = 0, .concat = 0, .tiled = true});
      const Array done = all_to_all(mlp(sent, in[0], out[0]), "e", {.split = 0, .concat = 0, .tiled = true});
      return einsum("tec,ech->th", places, done) * expand_dims(weight, {1});
    };
    const Layer layer = [=](const Array& x, const Weights& w) {
      return shard_map(spread, {.mesh = mesh, .in = {P("e"), P("e"), P("e"), P()}, .out = {P("e")}})(x, w[0], w[1],
                                                                                                     w[2]);
    };
    const Layer plain = [=](const Array& x, const Weights& w) {
      std::vector<Array> parts;
      for (const Array& own : split(x, n)) {
        const auto [places, weight] = route(w[2], own, capacity);
        const Array done = vmap(mlp)(einsum("tec,th->ech", places, own), w[0], w[1]);
        parts.push_back(einsum("tec,ech->th", places, done) * expand_dims(weight, {1}));
      }
      return concatenate(parts);
    };
    const Shapes shapes{{n * tokens, h}, {{n, h, f}, {n, f, h}, {h, n}}};
    const Expected sent{"all_to_all", "e", n * capacity * h * 4, 2};
    check({.mesh = fmt::format("e={}", n),
           .x = "e,_",
           .w = {"e,_,_", "e,_,_", "_,_"},
           .forward = {sent},
           .step = {sent, sent, combining({"all_reduce", "e", h * n * 4})},
           .remade = {{sent, sent, sent, combining({"all_reduce", "e", h * n * 4})}},
           .largest = std::max(tokens * n * capacity * 4, n * capacity * f * 4)},
          layer, shapes, shapes, plain);
  }
}

// A projection of the input before, another behind, and between them a ring.
TEST_CASE("ring attention: keys and values go around, and in the derivative their cotangents") {
  for (const int n : {2, 4, 8}) {
    const Mesh mesh = Mesh::abstract({{"c", n}});
    const Sizes s{.b = 2, .s = 16, .h = 8, .f = 1, .heads = 2};
    const auto around = [](const Array& x, const Array& w1, const Array& w2) {
      const Array qkv = einsum("bsm,mthd->tbshd", x, w1);
      return einsum("bshd,hdm->bsm", ring(qkv[0], qkv[1], qkv[2]), w2);
    };
    const Layer layer = [=](const Array& x, const Weights& w) {
      return shard_map(around, {.mesh = mesh, .in = {P(none, "c"), P(), P()}, .out = {P(none, "c")}})(x, w[0], w[1]);
    };
    const std::int64_t tokens = s.b * s.s * s.h * 4, weights = s.h * s.h * 4;
    const Expected moves{"ppermute", "c", tokens / n, 2 * (n - 1)};  // of keys and of values
    check({.mesh = fmt::format("c={}", n),
           .x = "_,c,_",
           .w = {"_,_,_,_", "_,_,_"},
           .forward = {moves},
           .step = {moves, moves, combining({"all_reduce", "c", 3 * weights}), combining({"all_reduce", "c", weights})},
           .remade = {{moves, moves, moves, combining({"all_reduce", "c", 3 * weights}),
                       combining({"all_reduce", "c", weights})}},
           .largest = 3 * std::max(tokens / n, weights)},
          layer, attention_shapes(s), attention_shapes(s), attention_layer);
  }
}
