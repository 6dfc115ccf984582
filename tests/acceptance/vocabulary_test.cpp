// A vocabulary that is split over devices: the embedding that looks tokens up, and the head whose logits are never
// whole on any device, nor is their derivative.
#include <fmt/format.h>

#include "ir/text.h"
#include "tests/acceptance/models.h"

using namespace sheaf;
using namespace sheaf::acceptance;

namespace {

constexpr std::int64_t kVocabulary = 512;

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
auto language_step(const Array& table, const Array& head, const Array& tokens, const Array& labels) {
  const auto [loss, pullback] =
      vjp([&](const Array& t, const Array& w) { return loss_of(embedded(t, tokens), w, labels); }, table, head);
  const auto [dt, dw] = pullback(ones_like(loss));
  return std::tuple(loss, trained(table, dt), trained(head, dw));
}

struct Arguments {
  Array x, table, head, tokens;
};
Arguments arguments(const Sizes& s, std::int64_t vocabulary) {
  return {abstract({s.b, s.s, s.h}), abstract({vocabulary, s.h}), abstract({s.h, vocabulary}),
          abstract({s.b, s.s}, i32)};
}

template <class Make>
void check(const Make& make, const Layout& layout, const std::vector<Expected>& expected,
           std::int64_t vocabulary = kVocabulary) {
  CAPTURE(layout.mesh);
  const Partitioned p = partitioned(make(arguments(kLarge, vocabulary)), layout);
  INFO(ir::print(p.whole), ir::print(p.local));
  CHECK(collectives_of(*p.local) == listed(expected));
  if (p.whole->mesh().size() <= 4) {
    const Partitioned small = partitioned(make(arguments(kSmall, 16)), layout);
    CHECK(largest_difference(small) < 1e-5);
  }
}

constexpr std::int64_t kOfTokens = kTokens / kLarge.h;  // one number for each token

}  // namespace

TEST_CASE("an embedding split by words: one sum of activations, and none for its derivative") {
  for (const int n : {2, 4, 8})
    check([](const Arguments& a) { return program({"table", "tokens", "g"}, embed_step, a.table, a.tokens, a.x); },
          {.mesh = fmt::format("t={}", n), .params = {{"table", "t,_"}}, .results = {{1, "t,_"}}},
          {{"all_reduce", "t", kTokens}});
}

// The label's log probability is summed over the tokens of a device before it is summed over devices: one number. The
// third number for each token is the sum of the cotangents of its log probabilities.
TEST_CASE("a head split by words: devices exchange numbers for each token, no logits") {
  for (const int n : {2, 4, 8})
    check([](const Arguments& a) { return program({"x", "head", "labels"}, head_step, a.x, a.head, a.tokens); },
          {.mesh = fmt::format("t={}", n), .params = {{"head", "_,t"}}, .results = {{2, "_,t"}}},
          {{"all_reduce", "t", kOfTokens, 3}, {"all_reduce", "t", 4}, {"all_reduce", "t", kTokens}});
}

namespace {

void check_language(int n, std::int64_t vocabulary, std::vector<Expected> of_table) {
  const std::int64_t weights = vocabulary * kLarge.h * 4;
  std::vector<Expected> expected{{"all_reduce", "t", kTokens / 2},
                                 {"all_reduce", "t", kOfTokens / 2, 3},
                                 {"all_reduce", "d+t", 4},
                                 {"all_reduce", "d", weights / n, 2}};
  expected.insert(expected.end(), of_table.begin(), of_table.end());
  check(
      [](const Arguments& a) {
        return program({"table", "head", "tokens", "labels"}, language_step, a.table, a.head, a.tokens, a.tokens);
      },
      {.mesh = fmt::format("d=2, t={}", n),
       .params = {{"table", "t,_"}, {"head", "_,t"}, {"tokens", "d,_"}, {"labels", "d,_"}},
       .results = {{1, "t,_"}, {2, "_,t"}}},
      expected, vocabulary);
}

}  // namespace

TEST_CASE("embedding and head of a language model, with the batch split over another axis") {
  for (const int n : {2, 4}) {
    // The derivative of activations is summed where words outnumber tokens, and else what it adds to the table is.
    check_language(n, 16384, {{"all_reduce", "t", kTokens / 2}});
    check_language(n, kVocabulary, {{"reduce_scatter", "t", kVocabulary * kLarge.h * 4}});
  }
}
