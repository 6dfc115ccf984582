// The exact texts of what is wrong with a loop or a branch: the leaf, both types, the fix.
#include <doctest/doctest.h>

#include "sheaf/sheaf.h"
#include "tests/message.h"

using namespace sheaf;
using sheaf::tests::message_here;

namespace {

struct State {
  Array h, c;
};

}  // namespace

TEST_CASE("a carry that changes its type names the leaf, both types and the fix") {
  const Array x = zeros({3});
  CHECK(message_here<TypeError>(
            [&] { scan([](Array h, None) { return std::pair{convert(h, f64), none}; }, x, none, {.length = 2}); }) ==
        "HERE: scan: the carry must leave the body with the type it enters with\n"
        "  it enters as f32[3], leaves as f64[3]: start from convert(.., f64) or return convert(.., f32)");
  CHECK(message_here<TypeError>([&] {
          while_loop([](State s) { return sum(s.h) < 3; }, [](State s) { return State{s.h + 1, outer(s.c, s.c)}; },
                     State{x, x});
        }) ==
        "HERE: while_loop: the carry must leave the body with the type it enters with\n"
        "  .c enters as f32[3], leaves as f32[3, 3]: start from f32[3, 3] or return f32[3]");
  CHECK(message_here<TypeError>([&] { fori_loop(0, 3, [](Array, Array c) { return c < 1; }, x); }) ==
        "HERE: fori_loop: the carry must leave the body with the type it enters with\n"
        "  .carry enters as f32[3], leaves as bool[3]: start from convert(.., bool) or return convert(.., f32)");
  CHECK(message_here<TypeError>(
            [&] { scan([](Array c, Array r) { return std::pair{c + r, none}; }, 0.0, zeros({2, 3})); }) ==
        "HERE: scan: the carry must leave the body with the type it enters with\n"
        "  it enters as f32[], leaves as f32[3]: start from f32[3] or return f32[]");
}

TEST_CASE("a carry that changes its tree") {
  using List = std::vector<Array>;
  const List two{zeros({3}), zeros({3})};
  CHECK(
      message_here<TypeError>([&] { while_loop([](List) { return true; }, [](List l) { return List{l[0]}; }, two); }) ==
      "HERE: while_loop: the carry must leave the body as the tree it enters as\n"
      "  enters: [0], [1]\n"
      "  leaves: [0]");
  using Counted = std::pair<Array, int>;
  CHECK(
      message_here<TypeError>([&] {
        scan([](Counted c, None) { return std::pair{Counted{c.first, c.second + 1}, none}; }, Counted{zeros({3}), 0},
             none, {.length = 2});
      }) ==
      "HERE: scan: the carry must leave the body as the tree it enters as; its numbers, texts or sizes differ, which are "
      "static: make an Array of what changes");
}

TEST_CASE("xs that do not fit together, and lengths that are none") {
  auto step = [](Array c, State) { return std::pair{c, none}; };
  CHECK(message_here<ShapeError>([&] { scan(step, 0.0, State{zeros({3, 2}), zeros({4})}); }) ==
        "HERE: scan: the arrays of xs must have the same length\n"
        "  .h: f32[3, 2], length 3\n"
        "  .c: f32[4], length 4");
  CHECK(message_here<ShapeError>([&] { scan(step, 0.0, State{zeros({3, 2}), zeros({3})}, {.length = 2}); }) ==
        "HERE: scan: the arrays of xs must have the same length, 2 as .length says\n"
        "  .h: f32[3, 2], length 3\n"
        "  .c: f32[3], length 3");
  CHECK(message_here<ShapeError>([&] { scan(step, 0.0, State{zeros({}), zeros({3})}); }) ==
        "HERE: scan: .h is f32[] and has no axis 0 to go along");
  CHECK(message_here<ShapeError>([&] { map(sheaf::sin, Array(1.0)); }) ==
        "HERE: map: xs is f32[] and has no axis 0 to go along");
  auto bare = [](Array c, None) { return std::pair{c, none}; };
  CHECK(message_here<TypeError>([&] { scan(bare, 0.0, none); }) == "HERE: scan: xs has no arrays; give .length");
  CHECK(message_here<ShapeError>([&] { scan(bare, 0.0, none, {.length = -1}); }) ==
        "HERE: scan: the length must not be negative, and is -1");
  CHECK(message_here<TypeError>([&] { scan(bare, 0.0, none, {.length = 1, .unroll = 0}); }) ==
        "HERE: scan: unroll must be at least 1, and is 0");
}

TEST_CASE("a condition that is no bool scalar, bounds that are no integers, a negative bound on trips") {
  auto next = [](Array c) { return c + 1; };
  CHECK(message_here<TypeError>([&] { while_loop([](Array c) { return c < 3; }, next, zeros({2})); }) ==
        "HERE: while_loop: the condition must return a bool scalar, not bool[2]; reduce it with any() or all()");
  CHECK(message_here<TypeError>([&] { while_loop([](Array c) { return c; }, next, 1.0); }) ==
        "HERE: while_loop: the condition must return a bool scalar, not f32[]");
  CHECK(message_here<TypeError>([&] { while_loop([](Array c) { return c < 3; }, next, 1.0, {.max_trips = -2}); }) ==
        "HERE: while_loop: max_trips must not be negative, and is -2");
  auto same_carry = [](Array, Array c) { return c; };
  CHECK(message_here<TypeError>([&] { fori_loop(0, 2.5, same_carry, 1.0); }) ==
        "HERE: fori_loop: the upper bound must be an integer scalar, not f32[]");
  CHECK(message_here<TypeError>([&] { fori_loop(zeros({2}, i32), 3, same_carry, 1.0); }) ==
        "HERE: fori_loop: the lower bound must be an integer scalar, not i32[2]");
}

TEST_CASE("a predicate or an index of another kind") {
  auto same_value = [](Array v) { return v; };
  const Array x = zeros({3});
  CHECK(message_here<TypeError>([&] { cond(x, same_value, same_value, x); }) ==
        "HERE: cond: the predicate must be a bool scalar, not f32[3]; compare it");
  CHECK(
      message_here<TypeError>([&] { cond(x > 0, same_value, same_value, x); }) ==
      "HERE: cond: the predicate must be a bool scalar, not bool[3]; choose per element with where(), or reduce it with "
      "any() or all()");
  CHECK(message_here<TypeError>([&] { switch_(x, std::tuple{same_value}, x); }) ==
        "HERE: switch_: the index must be an integer scalar, not f32[3]");
  CHECK(message_here<TypeError>([&] { switch_(0.5, std::tuple{same_value}, x); }) ==
        "HERE: switch_: the index must be an integer scalar, not f32");
}

TEST_CASE("branches that differ name themselves, the leaf and both types") {
  const Array x = zeros({3});
  CHECK(message_here<TypeError>(
            [&] { cond(true, [](Array v) { return v; }, [](Array v) { return convert(v, f64); }, x); }) ==
        "HERE: cond: the branches must return the same types; convert or reshape what one of them returns\n"
        "  the result: f32[3] from if_true, f64[3] from if_false");
  CHECK(message_here<TypeError>([&] {
          switch_(1,
                  std::tuple{[](Array v) { return State{v, 0}; }, [](Array v) { return State{v, v[0]}; },
                             [](Array v) { return State{v, v}; }},
                  x);
        }) ==
        "HERE: switch_: the branches must return the same types; convert or reshape what one of them returns\n"
        "  .c: f32[] from branch 1, f32[3] from branch 2");
  using List = std::vector<Array>;
  CHECK(message_here<TypeError>(
            [&] { cond(false, [](Array v) { return List{v, v}; }, [](Array) { return List{}; }, x); }) ==
        "HERE: cond: the branches must return the same tree\n"
        "  if_true returns [0], [1]\n"
        "  if_false returns none");
  using Counted = std::pair<Array, int>;
  CHECK(
      message_here<TypeError>(
          [&] { cond(true, [](Array v) { return Counted{v, 0}; }, [](Array v) { return Counted{v, 1}; }, x); }) ==
      "HERE: cond: the branches must return the same tree; numbers, texts or sizes differ between if_true and if_false, "
      "which are static: return Arrays");
}

TEST_CASE("a branch with an effect has no batch of its own choices") {
  const auto f = [](Array x) {
    return cond(
        x > 0,
        [](Array v) {
          debug_print("positive: {}", v);
          return v;
        },
        [](Array v) { return -v; }, x);
  };
  CHECK(message_here<TypeError>([&] { vmap(f)(ones({3})); }) ==
        "HERE: cond: under vmap every branch runs, so that a branch may not print, check or call back");
}

TEST_CASE("a loop whose examples stop at different steps may not check or print under vmap") {
  const auto counts = [](Array x) {
    const auto body = [](Array c) {
      check(c < 25, "never");
      return c + 3;
    };
    return while_loop([](Array c) { return c < 25; }, body, x);
  };
  CHECK(counts(Array(10)).item<int>() == 25);
  CHECK(vmap(counts, {.in = {none}, .size = 2})(Array(10)).to_vector<int>() == std::vector<int>{25, 25});
  CHECK(message_here<TypeError>([&] { vmap(counts)(array({10, 20})); }) ==
        "HERE: while: under vmap an example that is done goes along until the last one is, so that where they stop at "
        "different steps the loop may not print, check or call back");
}
