// Whole models against the counts of Alpa's tests (Zheng et al., arXiv:2201.12023; tests/shard_parallel), and the small
// sums that normalisation, biases and clipping add.
#include <fmt/format.h>

#include <algorithm>

#include "tests/acceptance/rows.h"

using namespace sheaf;
using namespace sheaf::acceptance;

namespace {

// Of a step that needs no derivative with respect to the input: the output and the new weights.
template <class F>
auto first_step(F forward) {
  return [forward](const Array& x, const Array& g, const auto& w) {
    const auto [y, pullback] = vjp([&](const auto& v) { return forward(x, v); }, w);
    const auto [dw] = pullback(g);
    return std::pair(y, tree_map(trained, w, dw));
  };
}

ir::FunctionRef first_step_program(const Layer& layer, int count, const Shapes& shapes) {
  const Array x = abstract(shapes.x);
  return program({"x", "g", "w"}, first_step(unrolled(layer, count)), x, x, abstract_weights(shapes, count));
}

// Weights `w` of `count` layers stay where they are.
Layout layout_of(const std::string& mesh, const std::string& x, const std::vector<std::string>& w, int count) {
  Layout layout{.mesh = mesh, .params = {{"x", x}, {"g", x}}};
  for (std::size_t k = 0; k < w.size(); ++k) {
    layout.params[fmt::format("w[{}]", k)] = w[k];
    for (int i = 0; i < count; ++i) layout.results.emplace_back(1 + static_cast<int>(k) * count + i, w[k]);
  }
  return layout;
}

Array block(const Array& x, const Weights& w) {
  const Array y = attention(x, w[0], w[1]);
  return mlp(y, w[2], w[3]);
}
Shapes block_shapes(const Sizes& s) {
  Shapes both = attention_shapes(s);
  const Shapes beside = mlp_shapes(s);
  both.w.insert(both.w.end(), beside.w.begin(), beside.w.end());
  return both;
}

}  // namespace

TEST_CASE("TP of a model of L transformer layers: 4L - 1 sums of activations") {
  for (const int count : {1, 2, 3}) {
    const ir::FunctionRef small = first_step_program(block, count, block_shapes(kSmall));
    check({first_step_program(block, count, block_shapes(kLarge)), small, small},
          layout_of("t=4", "_,_,_", {"_,_,t,_", "t,_,_", "_,t", "t,_"}, count),
          {{"all_reduce", "t", kTokens, 4 * count - 1}}, kHidden / 4);
  }
}

TEST_CASE("TP of an MLP of n products: n - 1 sums; on two axes the gradients of each weight are summed, too") {
  for (const int count : {1, 2}) {
    const ir::FunctionRef large = first_step_program(mlp_layer, count, mlp_shapes(kLarge)),
                          small = first_step_program(mlp_layer, count, mlp_shapes(kSmall));
    check({large, small, small}, layout_of("t=4", "_,_,_", {"_,t", "t,_"}, count),
          {{"all_reduce", "t", kTokens, 2 * count - 1}}, std::max(kTokens, kHidden / 4));
    check({large, small, small}, layout_of("d=2, t=2", "d,_,_", {"_,t", "t,_"}, count),
          {{"all_reduce", "t", kTokens / 2, 2 * count - 1}, combining({"all_reduce", "d", kWeights / 2, 2 * count})},
          kHidden / 4);
  }
}

namespace {

// The table looks tokens up, and makes logits of what is found.
auto tied_step(const Array& table, const Array& tokens, const Array& labels) {
  const auto [loss, gradient] = value_and_grad(
      [&](const Array& t) { return cross_entropy(einsum("bsh,vh->bsv", take(t, tokens), t), labels); })(table);
  return std::pair(loss, trained(table, gradient));
}
ir::FunctionRef tied_program(const Sizes& s, std::int64_t vocabulary) {
  const Array tokens = abstract({s.b, s.s}, i32);
  return program({"table", "tokens", "labels"}, tied_step, abstract({vocabulary, s.h}), tokens, tokens);
}

}  // namespace

// The loss is a third number for each token there, and one for all here.
TEST_CASE("an embedding that is the head, too, on two axes: a sum of its gradient, two of activations") {
  constexpr std::int64_t kWords = 16384, kTable = kWords * kLarge.h * 4, kOfTokens = kTokens / kLarge.h;
  const ir::FunctionRef small = tied_program(kSmall, 16);
  check(
      {tied_program(kLarge, kWords), small, small},
      {.mesh = "d=2, t=2", .params = {{"table", "t,_"}, {"tokens", "d,_"}, {"labels", "d,_"}}, .results = {{1, "t,_"}}},
      {{"all_reduce", "d", kTable / 2},
       {"all_reduce", "t", kTokens / 2, 2},
       {"all_reduce", "t", kOfTokens / 2, 2},
       {"all_reduce", "d+t", 4}},
      kOfTokens / 2 * kWords / 2);
}

namespace {

// The input is normalised for the MLP, and added to what it gives: gain and shift [h] are the first weights.
Shapes normalised_shapes(const Sizes& s) { return {{s.b, s.s, s.h}, {{s.h}, {s.h}, {s.h, s.f}, {s.f, s.h}}}; }

// A step that clips the gradients by the norm of all.
template <class F>
auto clipped_step(F forward) {
  return [forward](const Array& x, const Array& g, const auto& w) {
    const auto [y, pullback] = vjp([&](const auto& v) { return forward(x, v); }, w);
    const auto [dw] = pullback(g);
    return std::pair(y, tree_map(trained, w, clip_by_global_norm(dw, 1.0)));
  };
}
ir::FunctionRef clipped_program(int count, const Shapes& shapes) {
  const Array x = abstract(shapes.x);
  return program({"x", "g", "w"}, clipped_step(unrolled(mlp_layer, count)), x, x, abstract_weights(shapes, count));
}

}  // namespace

TEST_CASE("normalisation adds sums of a number for each feature, which travel with the other gradients") {
  const Layer normalised = [](const Array& x, const Weights& w) {
    return x + mlp(layer_norm(x, w[0], w[1]), w[2], w[3]);
  };
  const Expected features = combining({"all_reduce", "d", kLarge.h * 4, 2});
  for (const int n : {2, 4})
    check({.mesh = fmt::format("d={}", n),
           .x = "d,_,_",
           .w = {"_", "_", "_,_", "_,_"},
           .forward = {},
           .step = {features, combining({"all_reduce", "d", kWeights, 2})},
           .largest = kHidden / n},
          normalised, normalised_shapes(kLarge), normalised_shapes(kSmall));
}

TEST_CASE("normalisation of activations that are split by tokens") {
  for (const int n : {2, 4}) {
    const Mesh mesh = Mesh::abstract({{"t", n}});
    const Layer layer = [mesh](const Array& x, const Weights& w) {
      const Array hidden = with_sharding(dot(layer_norm(x, w[0], w[1]), w[2]), mesh, P(none, none, "t"));
      return with_sharding(x + dot(tanh(hidden), w[3]), mesh, P(none, "t"));
    };
    const Sizes small{.b = 16, .s = 8, .h = 16, .f = 16, .heads = 8};
    check({.mesh = fmt::format("t={}", n),
           .x = "_,t,_",
           .w = {"_", "_", "_,t", "t,_"},
           .keeps_x = true,
           .forward = {{"all_gather", "t", kTokens}, {"reduce_scatter", "t", kTokens}},
           .step = {{"all_gather", "t", kTokens, 3},
                    {"reduce_scatter", "t", kTokens, 2},
                    combining({"all_reduce", "t", kLarge.h * 4, 2})},
           .largest = std::max(kTokens, kHidden / n)},
          layer, normalised_shapes(kLarge), normalised_shapes(small));
  }
}

TEST_CASE("clipping by the norm of all gradients adds one number, where gradients are split") {
  for (const int count : {1, 2}) {
    const ir::FunctionRef large = clipped_program(count, mlp_shapes(kLarge)),
                          small = clipped_program(count, mlp_shapes(kSmall));
    check({large, small, small}, layout_of("f=4", "f,_,_", {"f,_", "f,_"}, count),
          {{"all_gather", "f", kWeights, 4 * count - 1},
           {"reduce_scatter", "f", kWeights, 2 * count},
           {"all_reduce", "f", 4}},
          kHidden / 4);
    check({large, small, small}, layout_of("d=4", "d,_,_", {"_,_", "_,_"}, count),
          {combining({"all_reduce", "d", kWeights, 2 * count})}, kHidden / 4);
  }
}

namespace {

// Of a step of one MLP, combined.
std::string combined(const Row& row) {
  Layout layout{.mesh = row.mesh, .params = {{"x", row.x}, {"g", row.x}}};
  for (std::size_t k = 0; k < 2; ++k) {
    layout.params[fmt::format("w[{}]", k)] = row.w[k];
    if (!row.m.empty()) layout.params[fmt::format("m[{}]", k)] = row.m[k];
    layout.results.emplace_back(2 + static_cast<int>(k), row.w[k]);
    if (!row.m.empty()) layout.results.emplace_back(4 + static_cast<int>(k), row.m[k]);
  }
  return collectives_of(
      *partitioned(of_layers(mlp_layer, 1, !row.m.empty(), mlp_shapes(kLarge)).step, layout).improved);
}

}  // namespace

// The first gather is alone, because what needs it first does not wait for what is needed later.
TEST_CASE("combined, DP is one sum; ZeRO one scattered sum and gathers; FSDP gathers once for the way back") {
  CHECK(combined({.mesh = "d=4", .x = "d,_,_", .w = {"_,_", "_,_"}, .forward = {}, .step = {}, .largest = 0}) ==
        listed({{"all_reduce", "d", 2 * kWeights}}));
  CHECK(combined({.mesh = "d=4",
                  .x = "d,_,_",
                  .w = {"_,_", "_,_"},
                  .m = {"d,_", "d,_"},
                  .forward = {},
                  .step = {},
                  .largest = 0}) == listed({{"reduce_scatter", "d", 2 * kWeights}, {"all_gather", "d", kWeights, 2}}));
  CHECK(combined({.mesh = "f=4", .x = "f,_,_", .w = {"f,_", "f,_"}, .forward = {}, .step = {}, .largest = 0}) ==
        listed({{"all_gather", "f", kWeights, 2},
                {"all_gather", "f", 2 * kWeights},
                {"reduce_scatter", "f", 2 * kWeights}}));
}
