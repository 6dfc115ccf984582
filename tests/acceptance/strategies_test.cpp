// The strategies that people write by hand for transformers: each is a layout of the same program, and the collectives
// that are left are those an expert would have written. docs/sharding-acceptance.md has the table.
#include <fmt/format.h>

#include "ir/text.h"
#include "tests/acceptance/acceptance.h"

using namespace sheaf;
using namespace sheaf::acceptance;

namespace {

struct Sizes {
  std::int64_t n, h, f;  // tokens, features, hidden features
};
constexpr Sizes kLarge{.n = 4096, .h = 64, .f = 512}, kSmall{.n = 64, .h = 8, .f = 16};
constexpr std::int64_t kTokens = kLarge.n * kLarge.h * 4, kWeights = kLarge.h * kLarge.f * 4;  // bytes

Array mlp(const Array& x, const Array& w1, const Array& w2) { return dot(tanh(dot(x, w1)), w2); }

Array mlps(Array x, const std::vector<Array>& w1, const std::vector<Array>& w2) {
  for (std::size_t i = 0; i < w1.size(); ++i) x = mlp(x, w1[i], w2[i]);
  return x;
}

// Given the derivative of a loss with respect to the output: the output, the derivative with respect to the input, and
// the new weights.
auto mlp_step(const Array& x, const Array& g, const std::vector<Array>& w1, const std::vector<Array>& w2) {
  const auto [y, pullback] = vjp(mlps, x, w1, w2);
  auto [dx, d1, d2] = pullback(g);
  for (std::size_t i = 0; i < w1.size(); ++i) {
    d1[i] = w1[i] - 0.1 * d1[i];
    d2[i] = w2[i] - 0.1 * d2[i];
  }
  return std::tuple(y, dx, d1, d2);
}

ir::FunctionRef mlp_forward_program(const Sizes& s, int layers) {
  return program({"x", "w1", "w2"}, mlps, abstract({s.n, s.h}), std::vector<Array>(layers, abstract({s.h, s.f})),
                 std::vector<Array>(layers, abstract({s.f, s.h})));
}
ir::FunctionRef mlp_step_program(const Sizes& s, int layers) {
  return program({"x", "g", "w1", "w2"}, mlp_step, abstract({s.n, s.h}), abstract({s.n, s.h}),
                 std::vector<Array>(layers, abstract({s.h, s.f})), std::vector<Array>(layers, abstract({s.f, s.h})));
}

// A row of the table: what is given, and what is expected of one layer.
struct Row {
  std::string mesh, x, w1, w2;
  std::vector<Expected> forward, step;
};

std::vector<Expected> times(std::vector<Expected> all, int layers) {
  for (Expected& e : all) e.count *= layers;
  return all;
}

// Weights stay where they are.
void check_mlp(const Row& row) {
  CAPTURE(row.mesh);
  for (const int layers : {1, 2}) {
    CAPTURE(layers);
    Layout layout{.mesh = row.mesh, .params = {{"x", row.x}, {"w1", row.w1}, {"w2", row.w2}}};
    const Partitioned forward = partitioned(mlp_forward_program(kLarge, layers), layout);
    CHECK(collectives_of(forward) == listed(times(row.forward, layers)));
    layout.params["g"] = row.x;
    for (int i = 0; i < layers; ++i) {
      layout.results.emplace_back(-1 - i, row.w2);
      layout.results.emplace_back(-1 - i - layers, row.w1);
    }
    const Partitioned step = partitioned(mlp_step_program(kLarge, layers), layout);
    INFO(ir::print(step.whole), ir::print(step.local));
    CHECK(collectives_of(step) == listed(times(row.step, layers)));
    CHECK(largest_difference(partitioned(mlp_step_program(kSmall, layers), layout)) < 1e-5);
  }
}

}  // namespace

TEST_CASE("DP: gradients are added up") {
  for (const int n : {2, 4, 8})
    check_mlp({.mesh = fmt::format("d={}", n),
               .x = "d,_",
               .w1 = "_,_",
               .w2 = "_,_",
               .forward = {},
               .step = {{"all_reduce", "d", kWeights, 2}}});
}

TEST_CASE("FSDP: weights are gathered where they are used, for each pass, and gradients scattered to where they lie") {
  for (const int n : {2, 4, 8})
    check_mlp({.mesh = fmt::format("f={}", n),
               .x = "f,_",
               .w1 = "f,_",
               .w2 = "f,_",
               .forward = {{"all_gather", "f", kWeights, 2}},
               .step = {{"all_gather", "f", kWeights, 4}, {"reduce_scatter", "f", kWeights, 2}}});
}

TEST_CASE("HSDP: as FSDP within a group, and the parts of gradients are added up over the groups") {
  for (const int n : {2, 4, 8})
    check_mlp({.mesh = fmt::format("d=2, f={}", n),
               .x = "d+f,_",
               .w1 = "f,_",
               .w2 = "f,_",
               .forward = {{"all_gather", "f", kWeights, 2}},
               .step = {{"all_gather", "f", kWeights, 4},
                        {"reduce_scatter", "f", kWeights, 2},
                        {"all_reduce", "d", kWeights / n, 2}}});
}

TEST_CASE("TP: one sum of activations for each pass") {
  for (const int n : {2, 4, 8})
    check_mlp({.mesh = fmt::format("t={}", n),
               .x = "_,_",
               .w1 = "_,t",
               .w2 = "t,_",
               .forward = {{"all_reduce", "t", kTokens}},
               .step = {{"all_reduce", "t", kTokens, 2}}});
}

TEST_CASE("DP+TP") {
  for (const int n : {2, 4, 8})
    check_mlp({.mesh = fmt::format("d=2, t={}", n),
               .x = "d,_",
               .w1 = "_,t",
               .w2 = "t,_",
               .forward = {{"all_reduce", "t", kTokens / 2}},
               .step = {{"all_reduce", "t", kTokens / 2, 2}, {"all_reduce", "d", kWeights / n, 2}}});
}

TEST_CASE("FSDP+TP") {
  for (const int n : {2, 4, 8})
    check_mlp({.mesh = fmt::format("f=2, t={}", n),
               .x = "f,_",
               .w1 = "f,t",
               .w2 = "t,f",
               .forward = {{"all_gather", "f", kWeights / n, 2}, {"all_reduce", "t", kTokens / 2}},
               .step = {{"all_gather", "f", kWeights / n, 4},
                        {"all_reduce", "t", kTokens / 2, 2},
                        {"reduce_scatter", "f", kWeights / n, 2}}});
}
