// Strategies that take more than the layout of weights: a state of the optimizer that is split, two blocks side by
// side; and that the work of laying out is linear in the program and the same for any number of devices.
#include <fmt/format.h>

#include <algorithm>

#include "ir/text.h"
#include "tests/acceptance/models.h"

using namespace sheaf;
using namespace sheaf::acceptance;

namespace {

// Of gradient descent with momentum: the new weights and the new momenta.
template <Block block>
auto momentum_step(const Array& x, const Array& g, const Weights& w1, const Weights& w2, const Weights& m1,
                   const Weights& m2) {
  const auto [y, pullback] = vjp(layers<block>, x, w1, w2);
  const auto [dx, d1, d2] = pullback(g);
  Weights v1 = w1, v2 = w2, n1 = m1, n2 = m2;
  for (std::size_t i = 0; i < w1.size(); ++i) {
    n1[i] = 0.9 * m1[i] + d1[i];
    n2[i] = 0.9 * m2[i] + d2[i];
    v1[i] = trained(w1[i], n1[i]);
    v2[i] = trained(w2[i], n2[i]);
  }
  return std::tuple(y, dx, v1, v2, n1, n2);
}

template <Block block>
ir::FunctionRef momentum_program(const Sizes& s, int count, const Shape& first, const Shape& second) {
  const Array x = abstract({s.b, s.s, s.h});
  const Weights w1(count, abstract(first)), w2(count, abstract(second));
  return program({"x", "g", "w1", "w2", "m1", "m2"}, momentum_step<block>, x, x, w1, w2, w1, w2);
}
ir::FunctionRef momentum_of_mlp(const Sizes& s, int count) {
  return momentum_program<mlp>(s, count, {s.h, s.f}, {s.f, s.h});
}
ir::FunctionRef momentum_of_attention(const Sizes& s, int count) {
  return momentum_program<attention>(s, count, {s.h, 3, s.heads, s.d()}, {s.heads, s.d(), s.h});
}

Array side_by_side(const Array& x, const Array& a1, const Array& a2, const Array& w1, const Array& w2) {
  return attention(x, a1, a2) + mlp(x, w1, w2);
}
auto side_by_side_step(const Array& x, const Array& g, const Array& a1, const Array& a2, const Array& w1,
                       const Array& w2) {
  const auto [y, pullback] = vjp(side_by_side, x, a1, a2, w1, w2);
  const auto [dx, da1, da2, d1, d2] = pullback(g);
  return std::tuple(y, dx, trained(a1, da1), trained(a2, da2), trained(w1, d1), trained(w2, d2));
}
ir::FunctionRef side_by_side_program(const Sizes& s) {
  const Array x = abstract({s.b, s.s, s.h});
  return program({"x", "g", "a1", "a2", "w1", "w2"}, side_by_side_step, x, x, abstract({s.h, 3, s.heads, s.d()}),
                 abstract({s.heads, s.d(), s.h}), abstract({s.h, s.f}), abstract({s.f, s.h}));
}

// Sizes that 1024 ways divide, so that nothing is left out for many devices.
Partitioned fsdp_and_tp(int layer_count, int f, int t) {
  Layout layout{.mesh = fmt::format("f={}, t={}", f, t),
                .params = {{"x", "f,_,_"}, {"g", "f,_,_"}, {"w1", "f,t"}, {"w2", "t,f"}}};
  const Sizes s{.b = 2048, .s = 2048, .h = 2048, .f = 8192, .heads = 8};
  return partitioned(unrolled<mlp>(s, layer_count, {s.h, s.f}, {s.f, s.h}).step, layout);
}

}  // namespace

TEST_CASE("ZeRO: momenta split over the data axis make gradients scattered, and the new weights gathered") {
  for (const int n : {2, 4, 8})
    for (const int count : {1, 2}) {
      Layout layout{.mesh = fmt::format("d={}", n),
                    .params = {{"x", "d,_,_"}, {"g", "d,_,_"}, {"m1", "d,_"}, {"m2", "d,_"}}};
      for (int i = 1; i <= 2 * count; ++i) {
        layout.results.emplace_back(-i, "d,_");
        layout.results.emplace_back(-i - 2 * count, "_,_");
      }
      const Partitioned p = partitioned(momentum_of_mlp(kLarge, count), layout);
      INFO(ir::print(p.whole), ir::print(p.local));
      CHECK(collectives_of(*p.local) ==
            listed({{"reduce_scatter", "d", kWeights, 2 * count}, {"all_gather", "d", kWeights, 2 * count}}));
      if (n == 4) CHECK(largest_difference(partitioned(momentum_of_mlp(kSmall, count), layout)) < 1e-5);
    }
}

TEST_CASE("ZeRO of attention") {
  for (const int n : {2, 4, 8})
    for (const int count : {1, 2}) {
      Layout layout{.mesh = fmt::format("d={}", n),
                    .params = {{"x", "d,_,_"}, {"g", "d,_,_"}, {"m1", "d,_,_,_"}, {"m2", "d,_,_"}}};
      for (int i = 1; i <= count; ++i) {
        layout.results.emplace_back(-i, "d,_,_");
        layout.results.emplace_back(-i - count, "d,_,_,_");
        layout.results.emplace_back(-i - 2 * count, "_,_,_");
        layout.results.emplace_back(-i - 3 * count, "_,_,_,_");
      }
      const Partitioned p = partitioned(momentum_of_attention(kLarge, count), layout);
      INFO(ir::print(p.whole), ir::print(p.local));
      CHECK(collectives_of(*p.local) == listed({{"reduce_scatter", "d", 3 * kSquare, count},
                                                {"reduce_scatter", "d", kSquare, count},
                                                {"all_gather", "d", 3 * kSquare, count},
                                                {"all_gather", "d", kSquare, count}}));
      if (n == 4) CHECK(largest_difference(partitioned(momentum_of_attention(kSmall, count), layout)) < 1e-5);
    }
}

TEST_CASE("TP of attention beside an MLP: one sum for both, in each pass") {
  for (const int n : {2, 4, 8}) {
    Layout layout{.mesh = fmt::format("t={}", n),
                  .params = {{"a1", "_,_,t,_"}, {"a2", "t,_,_"}, {"w1", "_,t"}, {"w2", "t,_"}},
                  .results = {{2, "_,_,t,_"}, {3, "t,_,_"}, {4, "_,t"}, {5, "t,_"}}};
    const Partitioned p = partitioned(side_by_side_program(kLarge), layout);
    INFO(ir::print(p.whole), ir::print(p.local));
    CHECK(collectives_of(*p.local) == listed({{"all_reduce", "t", kTokens, 2}}));
    if (n == 4) CHECK(largest_difference(partitioned(side_by_side_program(kSmall), layout)) < 1e-5);
  }
}

TEST_CASE("the work of laying out and partitioning is linear in layers, and the same for 8 devices and 1024") {
  std::int64_t visits = 0, equations = 0, assignments = 0;
  for (const int count : {2, 4, 8, 16}) {
    const Partitioned p = fsdp_and_tp(count, 2, 4);
    if (count > 2) {
      CHECK(p.visits <= 2 * visits + 8);
      CHECK(p.work.equations <= 2 * equations);
      CHECK(p.work.assignments <= 2 * assignments);
    }
    visits = p.visits;
    equations = p.work.equations;
    assignments = p.work.assignments;
  }
  const Partitioned many = fsdp_and_tp(16, 32, 32);
  CHECK(many.visits == visits);
  CHECK(many.work.equations == equations);
  CHECK(many.work.assignments == assignments);
}
