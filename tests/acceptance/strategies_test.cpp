// The strategies that people write by hand for transformers: each is a layout of the same program, and the collectives
// that are left are those an expert would have written. docs/sharding-acceptance.md has the table.
#include <fmt/format.h>

#include <algorithm>

#include "tests/acceptance/rows.h"

using namespace sheaf;
using namespace sheaf::acceptance;

namespace {

void check_mlp(const Row& row) { check(row, mlp_layer, mlp_shapes(kLarge), mlp_shapes(kSmall)); }
void check_attention(const Row& row) {
  check(row, attention_layer, attention_shapes(kLarge), attention_shapes(kSmall));
}

}  // namespace

TEST_CASE("DP: gradients are added up") {
  for (const int n : {2, 4, 8}) {
    check_mlp({.mesh = fmt::format("d={}", n),
               .x = "d,_,_",
               .w = {"_,_", "_,_"},
               .forward = {},
               .step = {combining({"all_reduce", "d", kWeights, 2})},
               .largest = kHidden / n});
    check_attention({.mesh = fmt::format("d={}", n),
                     .x = "d,_,_",
                     .w = {"_,_,_,_", "_,_,_"},
                     .forward = {},
                     .step = {combining({"all_reduce", "d", 3 * kSquare}), combining({"all_reduce", "d", kSquare})},
                     .largest = 3 * kTokens / n});
  }
}

TEST_CASE("FSDP: weights are gathered where they are used, for each pass, and gradients scattered to where they lie") {
  for (const int n : {2, 4, 8}) {
    check_mlp({.mesh = fmt::format("f={}", n),
               .x = "f,_,_",
               .w = {"f,_", "f,_"},
               .forward = {{"all_gather", "f", kWeights, 2}},
               .step = {{"all_gather", "f", kWeights, 4}, {"reduce_scatter", "f", kWeights, 2}},
               .largest = kHidden / n});
    check_attention({.mesh = fmt::format("f={}", n),
                     .x = "f,_,_",
                     .w = {"f,_,_,_", "_,_,f"},
                     .forward = {{"all_gather", "f", 3 * kSquare}, {"all_gather", "f", kSquare}},
                     .step = {{"all_gather", "f", 3 * kSquare, 2},
                              {"all_gather", "f", kSquare, 2},
                              {"reduce_scatter", "f", 3 * kSquare},
                              {"reduce_scatter", "f", kSquare}},
                     .largest = 3 * kTokens / n});
  }
}

TEST_CASE("HSDP: as FSDP within a group, and the parts of gradients are added up over the groups") {
  for (const int n : {2, 4, 8}) {
    check_mlp({.mesh = fmt::format("d=2, f={}", n),
               .x = "d+f,_,_",
               .w = {"f,_", "f,_"},
               .forward = {{"all_gather", "f", kWeights, 2}},
               .step = {{"all_gather", "f", kWeights, 4},
                        {"reduce_scatter", "f", kWeights, 2},
                        combining({"all_reduce", "d", kWeights / n, 2})},
               .largest = kHidden / n / 2});
    check_attention({.mesh = fmt::format("d=2, f={}", n),
                     .x = "d+f,_,_",
                     .w = {"f,_,_,_", "_,_,f"},
                     .forward = {{"all_gather", "f", 3 * kSquare}, {"all_gather", "f", kSquare}},
                     .step = {{"all_gather", "f", 3 * kSquare, 2},
                              {"all_gather", "f", kSquare, 2},
                              {"reduce_scatter", "f", 3 * kSquare},
                              {"reduce_scatter", "f", kSquare},
                              combining({"all_reduce", "d", 3 * kSquare / n}),
                              combining({"all_reduce", "d", kSquare / n})},
                     .largest = 3 * kTokens / n / 2});
  }
}

TEST_CASE("TP: one sum of activations for each pass") {
  for (const int n : {2, 4, 8}) {
    check_mlp({.mesh = fmt::format("t={}", n),
               .x = "_,_,_",
               .w = {"_,t", "t,_"},
               .forward = {{"all_reduce", "t", kTokens}},
               .step = {{"all_reduce", "t", kTokens, 2}},
               .largest = std::max(kTokens, kHidden / n)});
    check_attention({.mesh = fmt::format("t={}", n),
                     .x = "_,_,_",
                     .w = {"_,_,t,_", "t,_,_"},
                     .forward = {{"all_reduce", "t", kTokens}},
                     .step = {{"all_reduce", "t", kTokens, 2}},
                     .largest = std::max(kTokens, 3 * kTokens / n)});
  }
}

TEST_CASE("DP+TP") {
  for (const int n : {2, 4, 8}) {
    check_mlp({.mesh = fmt::format("d=2, t={}", n),
               .x = "d,_,_",
               .w = {"_,t", "t,_"},
               .forward = {{"all_reduce", "t", kTokens / 2}},
               .step = {{"all_reduce", "t", kTokens / 2, 2}, combining({"all_reduce", "d", kWeights / n, 2})},
               .largest = std::max(kTokens, kHidden / n) / 2});
    check_attention({.mesh = fmt::format("d=2, t={}", n),
                     .x = "d,_,_",
                     .w = {"_,_,t,_", "t,_,_"},
                     .forward = {{"all_reduce", "t", kTokens / 2}},
                     .step = {{"all_reduce", "t", kTokens / 2, 2},
                              combining({"all_reduce", "d", 3 * kSquare / n}),
                              combining({"all_reduce", "d", kSquare / n})},
                     .largest = std::max(kTokens, 3 * kTokens / n) / 2});
  }
}

TEST_CASE("FSDP+TP") {
  for (const int n : {2, 4, 8}) {
    check_mlp({.mesh = fmt::format("f=2, t={}", n),
               .x = "f,_,_",
               .w = {"f,t", "t,f"},
               .forward = {{"all_gather", "f", kWeights / n, 2}, {"all_reduce", "t", kTokens / 2}},
               .step = {{"all_gather", "f", kWeights / n, 4},
                        {"all_reduce", "t", kTokens / 2, 2},
                        {"reduce_scatter", "f", kWeights / n, 2}},
               .largest = std::max(kTokens, kHidden / n) / 2});
    check_attention({.mesh = fmt::format("f=2, t={}", n),
                     .x = "f,_,_",
                     .w = {"f,_,t,_", "t,_,f"},
                     .forward = {{"all_gather", "f", 3 * kSquare / n},
                                 {"all_gather", "f", kSquare / n},
                                 {"all_reduce", "t", kTokens / 2}},
                     .step = {{"all_gather", "f", 3 * kSquare / n, 2},
                              {"all_gather", "f", kSquare / n, 2},
                              {"all_reduce", "t", kTokens / 2, 2},
                              {"reduce_scatter", "f", 3 * kSquare / n},
                              {"reduce_scatter", "f", kSquare / n}},
                     .largest = std::max(kTokens, 3 * kTokens / n) / 2});
  }
}

TEST_CASE("ZeRO: momenta split over the data axis make gradients scattered, and the new weights gathered") {
  for (const int n : {2, 4, 8}) {
    check_mlp({.mesh = fmt::format("d={}", n),
               .x = "d,_,_",
               .w = {"_,_", "_,_"},
               .m = {"d,_", "d,_"},
               .forward = {},
               .step = {{"reduce_scatter", "d", kWeights, 2}, behind_loops({"all_gather", "d", kWeights, 2})},
               .largest = kHidden / n});
    check_attention({.mesh = fmt::format("d={}", n),
                     .x = "d,_,_",
                     .w = {"_,_,_,_", "_,_,_"},
                     .m = {"d,_,_,_", "d,_,_"},
                     .forward = {},
                     .step = {{"reduce_scatter", "d", 3 * kSquare},
                              {"reduce_scatter", "d", kSquare},
                              behind_loops({"all_gather", "d", 3 * kSquare}),
                              behind_loops({"all_gather", "d", kSquare})},
                     .largest = 3 * kTokens / n});
  }
}

// The sums of attention and of the MLP beside it are one.
TEST_CASE("TP of attention beside an MLP: one sum for both, in each pass") {
  const auto layer = [](const Array& x, const Weights& w) { return attention(x, w[0], w[1]) + mlp(x, w[2], w[3]); };
  const auto shapes = [](const Sizes& s) {
    Shapes both = attention_shapes(s);
    const Shapes beside = mlp_shapes(s);
    both.w.insert(both.w.end(), beside.w.begin(), beside.w.end());
    return both;
  };
  for (const int n : {2, 4, 8})
    check({.mesh = fmt::format("t={}", n),
           .x = "_,_,_",
           .w = {"_,_,t,_", "t,_,_", "_,t", "t,_"},
           .forward = {{"all_reduce", "t", kTokens}},
           .step = {{"all_reduce", "t", kTokens, 2}},
           .largest = std::max({kTokens, kHidden / n, 3 * kTokens / n})},
          layer, shapes(kLarge), shapes(kSmall));
}
