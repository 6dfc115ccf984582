// The strategies that people write by hand for transformers: each is a layout of the same program, and the collectives
// that are left are those an expert would have written. docs/sharding-acceptance.md has the table.
#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "ir/text.h"
#include "tests/acceptance/models.h"

using namespace sheaf;
using namespace sheaf::acceptance;

namespace {

// A row of the table: what is given, and what is expected of one layer.
struct Row {
  std::string mesh, x, w1, w2;
  std::vector<Expected> forward, step;
  std::int64_t largest;  // value that a device holds in a step
};

std::vector<Expected> times(std::vector<Expected> all, int count) {
  for (Expected& e : all) e.count *= count;
  return all;
}
std::vector<Expected> each_of(std::vector<Expected> all, int steps) {
  for (Expected& e : all) e.steps = steps;
  return all;
}

// Weights stay where they are.
void check(const Row& row, const std::vector<Expected>& forward, const std::vector<Expected>& step,
           const Programs& large, const Programs& small) {
  Layout layout{.mesh = row.mesh, .params = {{"x", row.x}, {"w1", row.w1}, {"w2", row.w2}}};
  const Partitioned f = partitioned(large.forward, layout);
  INFO(ir::print(f.whole), ir::print(f.local));
  CHECK(collectives_of(*f.local) == listed(forward));
  layout.params["g"] = row.x;
  const int weights = static_cast<int>(large.step->results().size()) / 2 - 1;
  for (int i = 1; i <= weights; ++i) {
    layout.results.emplace_back(-i, row.w2);
    layout.results.emplace_back(-i - weights, row.w1);
  }
  const Partitioned s = partitioned(large.step, layout);
  INFO(ir::print(s.whole), ir::print(s.local));
  CHECK(collectives_of(*s.local) == listed(step));
  CHECK(largest_value(*s.local) <= row.largest);
  if (s.whole->mesh().size() == 4) CHECK(largest_difference(partitioned(small.step, layout)) < 1e-5);
}

template <Block block>
void check_block(const Row& row, const std::function<std::pair<Shape, Shape>(const Sizes&)>& weights) {
  CAPTURE(row.mesh);
  const auto [w1, w2] = weights(kLarge);
  const auto [v1, v2] = weights(kSmall);
  for (const int count : {1, 2}) {
    CAPTURE(count);
    check(row, times(row.forward, count), times(row.step, count), unrolled<block>(kLarge, count, w1, w2),
          unrolled<block>(kSmall, count, v1, v2));
  }
  Row stacks = row;
  stacks.w1 = "_," + row.w1;
  stacks.w2 = "_," + row.w2;
  stacks.largest *= 4;
  check(stacks, each_of(row.forward, 4), each_of(row.step, 4), looped<block>(kLarge, 4, w1, w2),
        looped<block>(kSmall, 4, v1, v2));
}

void check_mlp(const Row& row) {
  const auto weights = [](const Sizes& s) { return std::pair(Shape{s.h, s.f}, Shape{s.f, s.h}); };
  check_block<mlp>(row, weights);
  check_block<remade<mlp>>(row, weights);
}
void check_attention(const Row& row) {
  const auto weights = [](const Sizes& s) {
    return std::pair(Shape{s.h, 3, s.heads, s.d()}, Shape{s.heads, s.d(), s.h});
  };
  check_block<attention>(row, weights);
  check_block<remade<attention>>(row, weights);
}

}  // namespace

TEST_CASE("DP: gradients are added up") {
  for (const int n : {2, 4, 8}) {
    check_mlp({.mesh = fmt::format("d={}", n),
               .x = "d,_,_",
               .w1 = "_,_",
               .w2 = "_,_",
               .forward = {},
               .step = {{"all_reduce", "d", kWeights, 2}},
               .largest = kHidden / n});
    check_attention({.mesh = fmt::format("d={}", n),
                     .x = "d,_,_",
                     .w1 = "_,_,_,_",
                     .w2 = "_,_,_",
                     .forward = {},
                     .step = {{"all_reduce", "d", 3 * kSquare}, {"all_reduce", "d", kSquare}},
                     .largest = 3 * kTokens / n});
  }
}

TEST_CASE("FSDP: weights are gathered where they are used, for each pass, and gradients scattered to where they lie") {
  for (const int n : {2, 4, 8}) {
    check_mlp({.mesh = fmt::format("f={}", n),
               .x = "f,_,_",
               .w1 = "f,_",
               .w2 = "f,_",
               .forward = {{"all_gather", "f", kWeights, 2}},
               .step = {{"all_gather", "f", kWeights, 4}, {"reduce_scatter", "f", kWeights, 2}},
               .largest = kHidden / n});
    check_attention({.mesh = fmt::format("f={}", n),
                     .x = "f,_,_",
                     .w1 = "f,_,_,_",
                     .w2 = "_,_,f",
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
               .w1 = "f,_",
               .w2 = "f,_",
               .forward = {{"all_gather", "f", kWeights, 2}},
               .step = {{"all_gather", "f", kWeights, 4},
                        {"reduce_scatter", "f", kWeights, 2},
                        {"all_reduce", "d", kWeights / n, 2}},
               .largest = kHidden / n / 2});
    check_attention({.mesh = fmt::format("d=2, f={}", n),
                     .x = "d+f,_,_",
                     .w1 = "f,_,_,_",
                     .w2 = "_,_,f",
                     .forward = {{"all_gather", "f", 3 * kSquare}, {"all_gather", "f", kSquare}},
                     .step = {{"all_gather", "f", 3 * kSquare, 2},
                              {"all_gather", "f", kSquare, 2},
                              {"reduce_scatter", "f", 3 * kSquare},
                              {"reduce_scatter", "f", kSquare},
                              {"all_reduce", "d", 3 * kSquare / n},
                              {"all_reduce", "d", kSquare / n}},
                     .largest = 3 * kTokens / n / 2});
  }
}

TEST_CASE("TP: one sum of activations for each pass") {
  for (const int n : {2, 4, 8}) {
    check_mlp({.mesh = fmt::format("t={}", n),
               .x = "_,_,_",
               .w1 = "_,t",
               .w2 = "t,_",
               .forward = {{"all_reduce", "t", kTokens}},
               .step = {{"all_reduce", "t", kTokens, 2}},
               .largest = std::max(kTokens, kHidden / n)});
    check_attention({.mesh = fmt::format("t={}", n),
                     .x = "_,_,_",
                     .w1 = "_,_,t,_",
                     .w2 = "t,_,_",
                     .forward = {{"all_reduce", "t", kTokens}},
                     .step = {{"all_reduce", "t", kTokens, 2}},
                     .largest = std::max(kTokens, 3 * kTokens / n)});
  }
}

TEST_CASE("DP+TP") {
  for (const int n : {2, 4, 8}) {
    check_mlp({.mesh = fmt::format("d=2, t={}", n),
               .x = "d,_,_",
               .w1 = "_,t",
               .w2 = "t,_",
               .forward = {{"all_reduce", "t", kTokens / 2}},
               .step = {{"all_reduce", "t", kTokens / 2, 2}, {"all_reduce", "d", kWeights / n, 2}},
               .largest = std::max(kTokens, kHidden / n) / 2});
    check_attention({.mesh = fmt::format("d=2, t={}", n),
                     .x = "d,_,_",
                     .w1 = "_,_,t,_",
                     .w2 = "t,_,_",
                     .forward = {{"all_reduce", "t", kTokens / 2}},
                     .step = {{"all_reduce", "t", kTokens / 2, 2},
                              {"all_reduce", "d", 3 * kSquare / n},
                              {"all_reduce", "d", kSquare / n}},
                     .largest = std::max(kTokens, 3 * kTokens / n) / 2});
  }
}

TEST_CASE("FSDP+TP") {
  for (const int n : {2, 4, 8}) {
    check_mlp({.mesh = fmt::format("f=2, t={}", n),
               .x = "f,_,_",
               .w1 = "f,t",
               .w2 = "t,f",
               .forward = {{"all_gather", "f", kWeights / n, 2}, {"all_reduce", "t", kTokens / 2}},
               .step = {{"all_gather", "f", kWeights / n, 4},
                        {"all_reduce", "t", kTokens / 2, 2},
                        {"reduce_scatter", "f", kWeights / n, 2}},
               .largest = std::max(kTokens, kHidden / n) / 2});
    check_attention({.mesh = fmt::format("f=2, t={}", n),
                     .x = "f,_,_",
                     .w1 = "f,_,t,_",
                     .w2 = "t,_,f",
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
