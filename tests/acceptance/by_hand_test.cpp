// Strategies whose collectives people write themselves, in a shard_map: what the derivative adds is what they would
// have written for it, and nothing is added between.
#include <fmt/format.h>

#include <cmath>

#include "ir/text.h"
#include "tests/acceptance/models.h"

using namespace sheaf;
using namespace sheaf::acceptance;

namespace {

// The result of f and the derivatives with respect to all arguments, for a cotangent g.
template <class F>
auto step_of(F f) {
  return [f](const Array& x, const Array& g, const Array& w1, const Array& w2, const Array& w3) {
    const auto [y, pullback] = vjp(f, x, w1, w2, w3);
    return std::tuple_cat(std::tuple(y), pullback(g));
  };
}

template <class F>
ir::FunctionRef step_program(const F& f, const std::vector<Shape>& shapes) {
  return program({"x", "g", "w1", "w2", "w3"}, step_of(f), abstract(shapes[0]), abstract(shapes[0]),
                 abstract(shapes[1]), abstract(shapes[2]), abstract(shapes[3]));
}

// A step of `on_mesh` has these collectives, and gives what a step of `plain` does.
template <class F, class G>
void check(const F& on_mesh, const G& plain, const std::vector<Shape>& shapes, const Layout& layout,
           const std::vector<Expected>& expected) {
  CAPTURE(layout.mesh);
  const Partitioned p = partitioned(step_program(on_mesh, shapes), layout);
  INFO(ir::print(p.whole), ir::print(p.local));
  CHECK(collectives_of(*p.local) == listed(expected));
  if (p.whole->mesh().size() <= 4) CHECK(largest_difference(p, *step_program(plain, shapes)) < 1e-5);
}

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
    const auto stages = [](const Array& x, const Array& w1, const Array& w2, const Array& shift) {
      std::vector<std::pair<std::int64_t, std::int64_t>> next;
      for (std::int64_t i = 0; i + 1 < axis_size("p"); ++i) next.emplace_back(i, i + 1);
      return ppermute(mlp(x, w1[0], w2[0]) + shift, "p", next);
    };
    const auto plain = [n](const Array& x, const Array& w1, const Array& w2, const Array& shift) {
      const Array y = vmap(mlp)(x, w1, w2) + shift;
      return concatenate({zeros_like(y(slice(0, 1))), y(slice(0, n - 1))});
    };
    const std::int64_t rows = 8, h = 16, f = 32;
    check(shard_map(stages, {.mesh = mesh, .in = {P("p"), P("p"), P("p"), P("p")}, .out = {P("p")}}), plain,
          {{n, rows, h}, {n, h, f}, {n, f, h}, {n, rows, h}},
          {.mesh = fmt::format("p={}", n),
           .params = {{"x", "p,_,_"}, {"g", "p,_,_"}, {"w1", "p,_,_"}, {"w2", "p,_,_"}, {"w3", "p,_,_"}}},
          {{"ppermute", "p", rows * h * 4, 2}});
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
    const auto plain = [=](const Array& x, const Array& in, const Array& out, const Array& gate) {
      std::vector<Array> parts;
      for (const Array& own : split(x, n)) {
        const auto [places, weight] = route(gate, own, capacity);
        const Array done = vmap(mlp)(einsum("tec,th->ech", places, own), in, out);
        parts.push_back(einsum("tec,ech->th", places, done) * expand_dims(weight, {1}));
      }
      return concatenate(parts);
    };
    check(shard_map(spread, {.mesh = mesh, .in = {P("e"), P("e"), P("e"), P()}, .out = {P("e")}}), plain,
          {{n * tokens, h}, {n, h, f}, {n, f, h}, {h, n}},
          {.mesh = fmt::format("e={}", n), .params = {{"x", "e,_"}, {"g", "e,_"}, {"w1", "e,_,_"}, {"w2", "e,_,_"}}},
          {{"all_to_all", "e", n * capacity * h * 4, 4}, {"all_reduce", "e", h * n * 4}});
  }
}

TEST_CASE("ring attention: keys and values go around, and in the derivative their cotangents, or both if made again") {
  for (const bool made_again : {false, true})
    for (const int n : {2, 4, 8}) {
      CAPTURE(made_again);
      const Mesh mesh = Mesh::abstract({{"c", n}});
      const Shape shape{2, 16, 2, 4};
      const auto inner = [=](const Array& q, const Array& k, const Array& v) {
        return made_again ? checkpoint(ring)(q, k, v) : ring(q, k, v);
      };
      const auto on_mesh =
          shard_map(inner, {.mesh = mesh, .in = {P(none, "c"), P(none, "c"), P(none, "c")}, .out = {P(none, "c")}});
      const auto whole = [](auto f) {
        return [f](const Array& q, const Array& k, const Array& v, const Array& shift) { return f(q, k, v) + shift; };
      };
      const auto plain = [](const Array& q, const Array& k, const Array& v) { return dot_product_attention(q, k, v); };
      const std::string spec = "_,c,_,_";
      check(whole(on_mesh), whole(plain), {shape, shape, shape, shape},
            {.mesh = fmt::format("c={}", n),
             .params = {{"x", spec}, {"g", spec}, {"w1", spec}, {"w2", spec}, {"w3", spec}}},
            {{"ppermute", "c", num_elements(shape) * 4 / n, (made_again ? 6 : 4) * (n - 1)}});
    }
}
