// What is chosen where cost alone would choose otherwise, or would not see it from one equation: sums that several
// chains read, and weights that are gathered although activations are smaller.
#include <fmt/format.h>

#include "ir/text.h"
#include "sheaf/weights.h"
#include "tests/acceptance/models.h"

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

Array gathered_mlp(const Array& x, const Array& w1, const Array& w2) {
  const auto [a, b] = gather_weights(std::pair(w1, w2), Mesh::abstract({{"f", 4}}));
  return mlp(x, a, b);
}

Layout fsdp(const std::string& w) {
  return {.mesh = "f=4",
          .params = {{"x", "f,_,_"}, {"g", "f,_,_"}, {"w1", w}, {"w2", w}},
          .results = {{2, w}, {3, w}}};
}

template <Block block>
ir::FunctionRef step_of(const Sizes& s) {
  const Array x = abstract({s.b, s.s, s.h});
  return program({"x", "g", "w1", "w2"}, step<block, Array>, x, x, abstract({s.h, s.f}), abstract({s.f, s.h}));
}

}  // namespace

TEST_CASE("a sum that several linear chains read is made once, before they part") {
  const Layout layout{.mesh = "data=2, model=2",
                      .params = {{"x", "data,_,_"}, {"g", "data,_,_"}, {"w1", "_,model"}, {"w2", "model,_"}}};
  const Partitioned p = partitioned(block_program(kLarge), layout);
  INFO(ir::print(p.whole), ir::print(p.local));
  CHECK(collectives_of(*p.local) == listed(std::vector<Expected>{{"all_reduce", "model", kTokens / 2, 2},
                                                                  {"all_reduce", "data", kWeights / 2, 2},
                                                                  {"all_reduce", "data", kLarge.h * 4, 1}}));
  CHECK(largest_difference(partitioned(block_program(kSmall), layout)) < 1e-5);
}

TEST_CASE("gather_weights: weights are gathered and gradients scattered where activations would be less to move") {
  const std::int64_t weights = kFew.h * kFew.f * 4;
  for (const std::string w : {"f,_", "_,f"}) {
    const Partitioned p = partitioned(step_of<gathered_mlp>(kFew), fsdp(w));
    INFO(ir::print(p.whole), ir::print(p.local));
    CHECK(collectives_of(*p.local) == listed(std::vector<Expected>{{"all_gather", "f", weights, 4},
                                                                    {"reduce_scatter", "f", weights, 2}}));
    CHECK(largest_difference(p) < 1e-5);
    CHECK(collectives_of(*partitioned(step_of<mlp>(kFew), fsdp(w)).local) != collectives_of(*p.local));
  }
}

TEST_CASE("gather_weights holds for layers in a loop and behind checkpoints") {
  const std::int64_t weights = kFew.h * kFew.f * 4;
  Layout layout = fsdp("_,f,_");
  for (const ir::FunctionRef& f : {looped<gathered_mlp>(kFew, 4, {kFew.h, kFew.f}, {kFew.f, kFew.h}).step,
                                   looped<remade<gathered_mlp>>(kFew, 4, {kFew.h, kFew.f}, {kFew.f, kFew.h}).step}) {
    const Partitioned p = partitioned(f, layout);
    INFO(ir::print(p.whole), ir::print(p.local));
    CHECK(collectives_of(*p.local) ==
          listed(std::vector<Expected>{{"all_gather", "f", weights, 4, 4}, {"reduce_scatter", "f", weights, 2, 4}}));
    CHECK(largest_difference(p) < 1e-5);
  }
}

TEST_CASE("gather_weights leaves axes alone on which weights and activations agree") {
  const Layout layout{.mesh = "t=4",
                      .params = {{"x", "_,_,_"}, {"g", "_,_,_"}, {"w1", "_,t"}, {"w2", "t,_"}},
                      .results = {{2, "_,t"}, {3, "t,_"}}};
  const Partitioned p = partitioned(step_of<gathered_mlp>(kFew), layout);
  CHECK(collectives_of(*p.local) ==
        listed(std::vector<Expected>{{"all_reduce", "t", kFew.b * kFew.s * kFew.h * 4, 2}}));
}

