// Strategies that split a sequence: constraints inside the program say what is wanted where.
#include <fmt/format.h>

#include "ir/text.h"
#include "tests/acceptance/models.h"

using namespace sheaf;
using namespace sheaf::acceptance;

namespace {

// A step of training of one block, which is given a constraint to put on its inner values.
template <class F>
ir::FunctionRef step_of(const Sizes& s, const F& block, const Shape& w1, const Shape& w2) {
  const Array x = abstract({s.b, s.s, s.h});
  const auto step = [block](const Array& in, const Array& g, const Array& first, const Array& second) {
    const auto [y, pullback] = vjp(block, in, first, second);
    const auto [dx, d1, d2] = pullback(g);
    return std::tuple(y, dx, trained(first, d1), trained(second, d2));
  };
  return program({"x", "g", "w1", "w2"}, step, x, x, abstract(w1), abstract(w2));
}

void check(const ir::FunctionRef& large, const ir::FunctionRef& small, const Layout& layout,
           const std::vector<Expected>& expected) {
  CAPTURE(layout.mesh);
  const Partitioned p = partitioned(large, layout);
  INFO(ir::print(p.whole), ir::print(p.local));
  CHECK(collectives_of(*p.local) == listed(expected));
  if (p.whole->mesh().size() <= 4) CHECK(largest_difference(partitioned(small, layout)) < 1e-5);
}

}  // namespace

TEST_CASE("TP+SP: activations between blocks are split by tokens, gathered before and scattered behind them") {
  for (const int n : {2, 4, 8}) {
    const Mesh mesh = Mesh::abstract({{"t", n}});
    const auto block = [mesh](const Array& x, const Array& w1, const Array& w2) {
      return dot(tanh(with_sharding(dot(x, w1), mesh, P(none, none, "t"))), w2);
    };
    const auto make = [&](const Sizes& s) { return step_of(s, block, {s.h, s.f}, {s.f, s.h}); };
    check(make(kLarge), make(kSmall),
          {.mesh = fmt::format("t={}", n),
           .params = {{"x", "_,t,_"}, {"g", "_,t,_"}, {"w1", "_,t"}, {"w2", "t,_"}},
           .results = {{0, "_,t,_"}, {1, "_,t,_"}, {2, "_,t"}, {3, "t,_"}}},
          {{"all_gather", "t", kTokens, 3}, {"reduce_scatter", "t", kTokens, 2}});
  }
}

TEST_CASE("Ulysses: a sequence is split by tokens but inside attention, where heads are") {
  for (const int n : {2, 4}) {
    const Mesh mesh = Mesh::abstract({{"c", n}});
    const auto block = [mesh](const Array& x, const Array& w1, const Array& w2) {
      const Array by_tokens = with_sharding(einsum("bsm,mthd->tbshd", x, w1), mesh, P(none, none, "c"));
      const Array qkv = with_sharding(by_tokens, mesh, P(none, none, none, "c"));
      const Array o = with_sharding(dot_product_attention(qkv[0], qkv[1], qkv[2]), mesh, P(none, none, "c"));
      return einsum("bshd,hdm->bsm", with_sharding(o, mesh, P(none, "c")), w2);
    };
    const auto make = [&](const Sizes& s) {
      return step_of(s, block, {s.h, 3, s.heads, s.d()}, {s.heads, s.d(), s.h});
    };
    check(make(kLarge), make(kSmall),
          {.mesh = fmt::format("c={}", n),
           .params = {{"x", "_,c,_"}, {"g", "_,c,_"}},
           .results = {{0, "_,c,_"}, {1, "_,c,_"}, {2, "_,_,_,_"}, {3, "_,_,_"}}},
          {{"all_to_all", "c", 3 * kTokens / n, 2},
           {"all_to_all", "c", kTokens / n, 2},
           {"all_reduce", "c", 3 * kSquare},
           {"all_reduce", "c", kSquare}});
  }
}

// Features outnumber tokens: where they do not, weights are cheaper to gather than activations.
TEST_CASE("TP+SP of attention: activations between blocks are split by tokens, heads within") {
  for (const int n : {2, 4, 8}) {
    const Mesh mesh = Mesh::abstract({{"t", n}});
    const auto block = [mesh](const Array& x, const Array& w1, const Array& w2) {
      const Array qkv = with_sharding(einsum("bsm,mthd->tbshd", x, w1), mesh, P(none, none, none, "t"));
      return einsum("bshd,hdm->bsm", dot_product_attention(qkv[0], qkv[1], qkv[2]), w2);
    };
    const auto make = [&](const Sizes& s) {
      return step_of(s, block, {s.h, 3, s.heads, s.d()}, {s.heads, s.d(), s.h});
    };
    const Sizes large{.b = 4, .s = 128, .h = 1024, .f = 1, .heads = 8},
        small{.b = 2, .s = 8, .h = 16, .f = 1, .heads = 8};
    const std::int64_t tokens = large.b * large.s * large.h * 4;
    check(make(large), make(small),
          {.mesh = fmt::format("t={}", n),
           .params = {{"x", "_,t,_"}, {"g", "_,t,_"}, {"w1", "_,_,t,_"}, {"w2", "t,_,_"}},
           .results = {{0, "_,t,_"}, {1, "_,t,_"}, {2, "_,_,t,_"}, {3, "t,_,_"}}},
          {{"all_gather", "t", tokens, 3}, {"reduce_scatter", "t", tokens, 2}});
  }
}

// One head and one sequence, so that there is nothing else to split. The derivative gathers queries, their cotangents
// and two numbers for each, and scatters one sum: less than keys and values again, and two sums.
TEST_CASE("a sequence split by tokens: keys and values are gathered, and for the derivative what belongs to queries") {
  for (const int n : {2, 4, 8}) {
    const Mesh mesh = Mesh::abstract({{"c", n}});
    const auto block = [mesh](const Array& x, const Array& w1, const Array& w2) {
      const Array qkv = with_sharding(einsum("bsm,mthd->tbshd", x, w1), mesh, P(none, none, "c"));
      const Array o = with_sharding(dot_product_attention(qkv[0], qkv[1], qkv[2]), mesh, P(none, "c"));
      return einsum("bshd,hdm->bsm", o, w2);
    };
    const auto make = [&](const Sizes& s) {
      return step_of(s, block, {s.h, 3, s.heads, s.d()}, {s.heads, s.d(), s.h});
    };
    const Sizes large{.b = 1, .s = 4096, .h = 64, .f = 1, .heads = 1},
        small{.b = 1, .s = 16, .h = 16, .f = 1, .heads = 1};
    check(make(large), make(small),
          {.mesh = fmt::format("c={}", n),
           .params = {{"x", "_,c,_"}, {"g", "_,c,_"}},
           .results = {{0, "_,c,_"}, {1, "_,c,_"}, {2, "_,_,_,_"}, {3, "_,_,_"}}},
          {{"all_gather", "c", kTokens, 4},
           {"all_gather", "c", kTokens / kLarge.h, 2},
           {"reduce_scatter", "c", kTokens},
           {"all_reduce", "c", 3 * kSquare},
           {"all_reduce", "c", kSquare}});
  }
}
