// What is chosen where cost alone would choose otherwise, or would not see it from one equation: sums that several
// chains read, and weights that are gathered although activations are smaller.
#include <fmt/format.h>

#include <algorithm>

#include "sheaf/weights.h"
#include "tests/acceptance/rows.h"

using namespace sheaf;
using namespace sheaf::acceptance;

namespace {

Array normalized_block(const Array& x, const Array& w1, const Array& w2, const Array& s) {
  const Array zero = zeros_like(s);
  return layer_norm(x + dot(relu(dot(layer_norm(x, s, zero), w1)), w2), s, zero);
}

auto gradient_of_block(const Array& x, const Array& g, const Array& w1, const Array& w2, const Array& s) {
  const auto [y, pullback] = vjp(normalized_block, x, w1, w2, s);
  const auto [dx, d1, d2, ds] = pullback(g);
  return std::tuple(y, dx, d1, d2, ds);
}

ir::FunctionRef block_program(const Sizes& s) {
  const Array x = abstract({s.b, s.s, s.h});
  return program({"x", "g", "w1", "w2", "s"}, gradient_of_block, x, x, abstract({s.h, s.f}), abstract({s.f, s.h}),
                 abstract({s.h}));
}

// 16 tokens of 32 features: less than the weights.
constexpr Sizes kFew{.b = 8, .s = 2, .h = 32, .f = 64, .heads = 4};
constexpr std::int64_t kFewTokens = kFew.b * kFew.s * kFew.h * 4, kFewWeights = kFew.h * kFew.f * 4;

// On a mesh of four devices.
Layer gathered(const std::string& axis) {
  return
      [axis](const Array& x, const Weights& w) { return mlp_layer(x, gather_weights(w, Mesh::abstract({{axis, 4}}))); };
}

const std::vector<Expected> kGathered{{"all_gather", "f", kFewWeights, 4}, {"reduce_scatter", "f", kFewWeights, 2}};
Layout fsdp(int count) {
  Layout layout{.mesh = "f=4",
                .params = {{"x", "f,_,_"}, {"g", "f,_,_"}, {"w[0]", "f,_"}, {"w[1]", "f,_"}},
                .results = {{0, "f,_,_"}, {1, "f,_,_"}}};
  for (int i = 0; i < 2 * count; ++i) layout.results.emplace_back(2 + i, "f,_");
  return layout;
}

}  // namespace

TEST_CASE("a sum that several linear chains read is made once, before they part") {
  const ir::FunctionRef small = block_program(kSmall);
  check({block_program(kLarge), small, small},
        {.mesh = "data=2, model=2",
         .params = {{"x", "data,_,_"}, {"g", "data,_,_"}, {"w1", "_,model"}, {"w2", "model,_"}}},
        {{"all_reduce", "model", kTokens / 2, 2},
         combining({"all_reduce", "data", kWeights / 2, 2}),
         combining({"all_reduce", "data", kLarge.h * 4})},
        kHidden / 4);
}

TEST_CASE("gather_weights: weights are gathered and gradients scattered where activations would be less to move") {
  for (const int count : {1, 2}) {
    const ir::FunctionRef f = of_layers(gathered("f"), count, false, mlp_shapes(kFew)).step;
    std::vector<Expected> expected = kGathered;
    for (Expected& e : expected) e.count *= count;
    check({f, f, f}, fsdp(count), expected, kFewWeights);
  }
  const ir::FunctionRef plain = of_layers(mlp_layer, 1, false, mlp_shapes(kFew)).step;
  CHECK(collectives_of(*partitioned(plain, fsdp(1)).local) != listed(kGathered));
}

TEST_CASE("gather_weights leaves axes alone on which weights and activations agree") {
  check({.mesh = "t=4",
         .x = "_,_,_",
         .w = {"_,t", "t,_"},
         .forward = {{"all_reduce", "t", kFewTokens}},
         .step = {{"all_reduce", "t", kFewTokens, 2}},
         .largest = kFewWeights},
        gathered("t"), mlp_shapes(kFew), mlp_shapes(kFew));
}
