// A vocabulary that is split over devices: the embedding that looks tokens up, and the head whose logits are never
// whole on any device, nor is their derivative; alone, and around layers whose hidden features are split.
#include <fmt/format.h>

#include <algorithm>

#include "tests/acceptance/rows.h"

using namespace sheaf;
using namespace sheaf::acceptance;

namespace {

constexpr std::int64_t kVocabulary = 512;
constexpr std::int64_t kOfTokens = kTokens / kLarge.h;  // one number for each token
constexpr std::int64_t kLogits = kOfTokens * kVocabulary;

Array embedded(const Array& table, const Array& tokens) { return take(table, tokens); }
Array loss_of(const Array& x, const Array& head, const Array& labels) { return cross_entropy(dot(x, head), labels); }

auto embed_step(const Array& table, const Array& tokens, const Array& g) {
  const auto [x, pullback] = vjp([&](const Array& t) { return embedded(t, tokens); }, table);
  const auto [d] = pullback(g);
  return std::pair(x, trained(table, d));
}
auto head_step(const Array& x, const Array& head, const Array& labels) {
  const auto [loss, pullback] = vjp([&](const Array& in, const Array& w) { return loss_of(in, w, labels); }, x, head);
  const auto [dx, dw] = pullback(ones_like(loss));
  return std::tuple(loss, dx, trained(head, dw));
}
template <class Layers>
auto language_step(Layers layers) {
  return [layers](const Array& table, const Array& head, const auto& w, const Array& tokens, const Array& labels) {
    const auto loss = [&](const Array& t, const Array& h, const auto& v) {
      return loss_of(layers(embedded(t, tokens), v), h, labels);
    };
    const auto [value, gradients] = value_and_grad<0, 1, 2>(loss)(table, head, w);
    const auto& [dt, dh, dw] = gradients;
    return std::tuple(value, trained(table, dt), trained(head, dh), tree_map(trained, w, dw));
  };
}

struct Arguments {
  Array x, table, head, tokens;
};
Arguments arguments(const Sizes& s, std::int64_t vocabulary) {
  return {abstract({s.b, s.s, s.h}), abstract({vocabulary, s.h}), abstract({s.h, vocabulary}),
          abstract({s.b, s.s}, i32)};
}

template <class Make>
void check_program(const Make& make, const Layout& layout, const std::vector<Expected>& expected, std::int64_t largest,
                   std::int64_t vocabulary = kVocabulary) {
  const ir::FunctionRef small = make(kSmall, 16);
  check({make(kLarge, vocabulary), small, small}, layout, expected, largest);
}

}  // namespace

TEST_CASE("an embedding split by words: one sum of activations, and none for its derivative") {
  for (const int n : {2, 4, 8})
    check_program(
        [](const Sizes& s, std::int64_t vocabulary) {
          const Arguments a = arguments(s, vocabulary);
          return program({"table", "tokens", "g"}, embed_step, a.table, a.tokens, a.x);
        },
        {.mesh = fmt::format("t={}", n), .params = {{"table", "t,_"}}, .results = {{1, "t,_"}}},
        {{"all_reduce", "t", kTokens}}, kTokens);
}

// The largest logit of each token, the sum of their exponentials, the labels' logits summed over tokens; and the
// derivative with respect to the input.
TEST_CASE("a head split by words: devices exchange numbers for each token, no logits") {
  for (const int n : {2, 4, 8})
    check_program(
        [](const Sizes& s, std::int64_t vocabulary) {
          const Arguments a = arguments(s, vocabulary);
          return program({"x", "head", "labels"}, head_step, a.x, a.head, a.tokens);
        },
        {.mesh = fmt::format("t={}", n), .params = {{"head", "_,t"}}, .results = {{2, "_,t"}}},
        {{"all_reduce", "t", kOfTokens, 2}, {"all_reduce", "t", 4}, {"all_reduce", "t", kTokens}},
        std::max(kTokens, kLogits / n));
}

namespace {

// `count` layers between, or a loop over so many.
struct Between {
  int count = 1;
  bool is_loop = false;
  Layer layer = mlp_layer;
};
ir::FunctionRef language(const Between& between, const Sizes& s, std::int64_t vocabulary) {
  const Arguments a = arguments(s, vocabulary);
  const std::vector<std::string> names{"table", "head", "w", "tokens", "labels"};
  if (between.is_loop)
    return program(names, language_step(looped(between.layer)), a.table, a.head,
                   abstract_stacks(mlp_shapes(s), between.count), a.tokens, a.tokens);
  return program(names, language_step(unrolled(between.layer, between.count)), a.table, a.head,
                 abstract_weights(mlp_shapes(s), between.count), a.tokens, a.tokens);
}

// The table's gradient is a sum over t of what the derivative of activations adds to it. Where words outnumber tokens,
// that derivative is summed over t first, and else the table's gradient is, and scattered.
void check_language(int n, std::int64_t vocabulary, const Between& between) {
  CAPTURE(between.count);
  CAPTURE(between.is_loop);
  const std::int64_t words = vocabulary * kLarge.h * 4, steps = between.is_loop ? between.count : 1;
  const int layers = between.is_loop ? 1 : between.count;
  std::vector<Expected> expected{{"all_reduce", "t", kTokens / 2},
                                 {"all_reduce", "t", kOfTokens / 2, 2},
                                 {"all_reduce", "d+t", 4},
                                 combining({"all_reduce", "d", words / n, 2}),
                                 {"all_reduce", "t", kTokens / 2, 2 * layers, steps},
                                 combining({"all_reduce", "d", kWeights / n, 2 * layers, steps})};
  // A loop gives its carry whole.
  if (vocabulary > kVocabulary || between.is_loop) expected.push_back({"all_reduce", "t", kTokens / 2});
  else expected.push_back({"reduce_scatter", "t", words});
  Layout layout{.mesh = fmt::format("d=2, t={}", n),
                .params = {{"table", "t,_"},
                           {"head", "_,t"},
                           {"w[0]", between.is_loop ? "_,_,t" : "_,t"},
                           {"w[1]", between.is_loop ? "_,t,_" : "t,_"},
                           {"tokens", "d,_"},
                           {"labels", "d,_"}},
                .results = {{1, "t,_"}, {2, "_,t"}}};
  for (int i = 0; i < layers; ++i) {
    layout.results.emplace_back(3 + i, layout.params["w[0]"]);
    layout.results.emplace_back(3 + layers + i, layout.params["w[1]"]);
  }
  const std::int64_t activations = kOfTokens / 2 * std::max({vocabulary / n, kLarge.h * steps, kLarge.f / n * steps});
  check_program([&](const Sizes& s, std::int64_t v) { return language(between, s, v); }, layout, expected,
                std::max(activations, words), vocabulary);
}

}  // namespace

TEST_CASE("a language model with the batch split over one axis, words and hidden features over another") {
  for (const int n : {2, 4})
    for (const Layer& layer : {Layer(mlp_layer), remade(mlp_layer)}) {
      for (const int count : {1, 2})
        for (const std::int64_t vocabulary : {kVocabulary, std::int64_t{8192}})
          check_language(n, vocabulary, {.count = count, .layer = layer});
      check_language(n, kVocabulary, {.count = 4, .is_loop = true, .layer = layer});
    }
}
