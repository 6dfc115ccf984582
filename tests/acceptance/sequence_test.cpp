// Strategies that split a sequence: constraints inside the program say what is wanted where.
#include <fmt/format.h>

#include <algorithm>

#include "tests/acceptance/rows.h"

using namespace sheaf;
using namespace sheaf::acceptance;

namespace {

// Of attention: projections of the input [3, b, s, heads, d] and what heads give [b, s, heads, d], as they are wanted.
using Wanted = std::function<Array(const Array&)>;
Layer attention_with(const Wanted& projections, const Wanted& answers) {
  return [=](const Array& x, const Weights& w) {
    const Array qkv = projections(einsum("bsm,mthd->tbshd", x, w[0]));
    return einsum("bshd,hdm->bsm", answers(dot_product_attention(qkv[0], qkv[1], qkv[2])), w[1]);
  };
}

}  // namespace

TEST_CASE("TP+SP: activations between blocks are split by tokens, gathered before and scattered behind them") {
  for (const int n : {2, 4, 8}) {
    const Mesh mesh = Mesh::abstract({{"t", n}});
    const Layer layer = [mesh](const Array& x, const Weights& w) {
      const Array hidden = with_sharding(dot(x, w[0]), mesh, P(none, none, "t"));
      return with_sharding(dot(tanh(hidden), w[1]), mesh, P(none, "t"));
    };
    const Sizes small{.b = 16, .s = 8, .h = 16, .f = 16, .heads = 8};
    check({.mesh = fmt::format("t={}", n),
           .x = "_,t,_",
           .w = {"_,t", "t,_"},
           .keeps_x = true,
           .forward = {{"all_gather", "t", kTokens}, {"reduce_scatter", "t", kTokens}},
           .step = {{"all_gather", "t", kTokens, 3}, {"reduce_scatter", "t", kTokens, 2}},
           .largest = std::max(kTokens, kHidden / n)},
          layer, mlp_shapes(kLarge), mlp_shapes(small));
  }
}

// Features outnumber tokens: where they do not, weights are cheaper to gather than activations.
TEST_CASE("TP+SP of attention: activations between blocks are split by tokens, heads within") {
  for (const int n : {2, 4, 8}) {
    const Mesh mesh = Mesh::abstract({{"t", n}});
    const Layer heads =
        attention_with([mesh](const Array& qkv) { return with_sharding(qkv, mesh, P(none, none, none, "t")); },
                       [](const Array& o) { return o; });
    const Layer layer = [=](const Array& x, const Weights& w) {
      return with_sharding(heads(x, w), mesh, P(none, "t"));
    };
    const Sizes large{.b = 4, .s = 128, .h = 1024, .f = 1, .heads = 8},
        small{.b = 2, .s = 8, .h = 16, .f = 1, .heads = 8};
    const std::int64_t tokens = large.b * large.s * large.h * 4;
    check({.mesh = fmt::format("t={}", n),
           .x = "_,t,_",
           .w = {"_,_,t,_", "t,_,_"},
           .keeps_x = true,
           .forward = {{"all_gather", "t", tokens}, {"reduce_scatter", "t", tokens}},
           .step = {{"all_gather", "t", tokens, 3}, {"reduce_scatter", "t", tokens, 2}},
           .largest = std::max({tokens, 3 * tokens / n, 3 * large.h * large.h * 4 / n}),
           .loops_are_remade = true},
          layer, attention_shapes(large), attention_shapes(small));
  }
}

TEST_CASE("Ulysses: a sequence is split by tokens but inside attention, where heads are") {
  for (const int n : {2, 4, 8}) {
    const Mesh mesh = Mesh::abstract({{"c", n}});
    const Layer layer = attention_with(
        [mesh](const Array& qkv) {
          return with_sharding(with_sharding(qkv, mesh, P(none, none, "c")), mesh, P(none, none, none, "c"));
        },
        [mesh](const Array& o) {
          return with_sharding(with_sharding(o, mesh, P(none, none, "c")), mesh, P(none, "c"));
        });
    const Sizes small{.b = 16, .s = 8, .h = 16, .f = 16, .heads = 8};
    check({.mesh = fmt::format("c={}", n),
           .x = "_,c,_",
           .w = {"_,_,_,_", "_,_,_"},
           .keeps_x = true,
           .forward = {{"all_to_all", "c", 3 * kTokens / n}, {"all_to_all", "c", kTokens / n}},
           .step = {{"all_to_all", "c", 3 * kTokens / n, 2},
                    {"all_to_all", "c", kTokens / n, 2},
                    combining({"all_reduce", "c", 3 * kSquare}),
                    combining({"all_reduce", "c", kSquare})},
           .remade = {{{"all_to_all", "c", 3 * kTokens / n, 3},
                       {"all_to_all", "c", kTokens / n, 3},
                       combining({"all_reduce", "c", 3 * kSquare}),
                       combining({"all_reduce", "c", kSquare})}},
           .largest = 3 * kTokens / n,
           .loops_are_remade = true},
          layer, attention_shapes(kLarge), attention_shapes(small));
  }
}

// One head and one sequence, so that there is nothing else to split. The derivative gathers queries, their cotangents
// and two numbers for each, and scatters one sum: less than keys and values again, and two sums. Under a checkpoint
// keys and values are there again, and two sums are less.
TEST_CASE("a sequence split by tokens: keys and values are gathered, and for the derivative what belongs to queries") {
  for (const int n : {2, 4, 8}) {
    const Mesh mesh = Mesh::abstract({{"c", n}});
    const Layer layer =
        attention_with([mesh](const Array& qkv) { return with_sharding(qkv, mesh, P(none, none, "c")); },
                       [mesh](const Array& o) { return with_sharding(o, mesh, P(none, "c")); });
    const Sizes large{.b = 1, .s = 4096, .h = 64, .f = 1, .heads = 1},
        small{.b = 1, .s = 16, .h = 16, .f = 1, .heads = 1};
    check({.mesh = fmt::format("c={}", n),
           .x = "_,c,_",
           .w = {"_,_,_,_", "_,_,_"},
           .keeps_x = true,
           .forward = {{"all_gather", "c", kTokens, 2}},
           .step = {{"all_gather", "c", kTokens, 4},
                    {"all_gather", "c", kTokens / kLarge.h, 2},
                    {"reduce_scatter", "c", kTokens},
                    combining({"all_reduce", "c", 3 * kSquare}),
                    combining({"all_reduce", "c", kSquare})},
           .remade = {{{"all_gather", "c", kTokens, 4},
                       {"reduce_scatter", "c", kTokens, 2},
                       combining({"all_reduce", "c", 3 * kSquare}),
                       combining({"all_reduce", "c", kSquare})}},
           .largest = std::max(3 * kTokens / n, kTokens)},
          layer, attention_shapes(large), attention_shapes(small));
  }
}
