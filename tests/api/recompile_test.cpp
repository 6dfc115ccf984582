// Why a function was compiled again: every part of a key, flipped alone, is named with both its values.
#include <doctest/doctest.h>

#include "ir/log.h"
#include "runtime/cache.h"
#include "sheaf/sheaf.h"
#include "sheaf/warm.h"
#include "tests/child.h"
#include "tests/message.h"

using namespace sheaf;
using tests::message_here;

namespace {

struct Times {
  Array x;
  int times;
  std::vector<std::string> names = {};
};
enum class Mode { fast, exact };

/// The differences that the second call of a function of any arguments makes.
template <class Call>
std::vector<KeyChange> flipped(Call call) {
  const auto f = jit(
      [](auto x, auto n) {
        if constexpr (std::same_as<decltype(x), Times>) return x.x * x.times;
        else if constexpr (std::same_as<decltype(x), std::pair<Array, Array>>) return x.first;
        else if constexpr (std::same_as<decltype(n), Array>) return x * n;
        else return x + 1;
      },
      {.name = "f"});
  const std::size_t before = why_recompiled(f).size();
  call(f);
  const std::vector<Recompilation> again = why_recompiled(f);
  REQUIRE(again.size() == before + 1);
  return again.back().changes;
}

using Changes = std::vector<KeyChange>;

}  // namespace

TEST_CASE("the first call is no recompilation, and one that finds its program is none either") {
  const auto f = jit([](Array x) { return x * 3; });
  const Array x = ones({4});
  f(x);
  f(x + 1);
  CHECK(why_recompiled(f).empty());
  f(ones({5}));
  f(ones({5}));
  f(x);
  REQUIRE(why_recompiled(f).size() == 1);
  CHECK(compiles(f) == 2);
}

TEST_CASE("an extent, a rank, a dtype and a C++ number in place of an array are named with the leaf they are of") {
  CHECK(flipped([](auto f) {
          f(Times{ones({8, 3}), 2}, 1);
          f(Times{ones({8, 4}), 2}, 1);
        }) == Changes{{"argument 0 .x: dim 1", "3", "4"}});
  CHECK(flipped([](auto f) {
          f(ones({7}), 1);
          f(ones({7, 1}), 1);
        }) == Changes{{"argument 0: shape", "[7]", "[7, 1]"}});
  CHECK(flipped([](auto f) {
          f(ones({9}), 1);
          f(ones({9}, i32), 1);
        }) == Changes{{"argument 0: dtype", "f32", "i32"}});
  CHECK(flipped([](auto f) {
          f(ones({}), 1);
          f(Array(2.0), 1);
        }) == Changes{{"argument 0", "an array", "a C++ number"}});
}

TEST_CASE("static values, sizes, texts and functions are named, inside trees with their paths") {
  CHECK(flipped([](auto f) {
          f(ones({2}), 3);
          f(ones({2}), 4);
        }) == Changes{{"argument 1", "3", "4"}});
  CHECK(flipped([](auto f) {
          f(ones({3}), 0.1);
          f(ones({3}), 0.1000000001);
        }) == Changes{{"argument 1", "0.1", "0.1000000001"}});
  CHECK(flipped([](auto f) {
          f(ones({4}), true);
          f(ones({4}), false);
        }) == Changes{{"argument 1", "true", "false"}});
  CHECK(flipped([](auto f) {
          f(ones({5}), Mode::fast);
          f(ones({5}), Mode::exact);
        }) == Changes{{"argument 1", "0", "1"}});
  CHECK(flipped([](auto f) {
          f(ones({6}), std::string("a"));
          f(ones({6}), std::string("b"));
        }) == Changes{{"argument 1", "\"a\"", "\"b\""}});
  CHECK(flipped([](auto f) {
          f(Times{ones({2}), 2, {"u"}}, 1);
          f(Times{ones({2}), 3, {"v"}}, 1);
        }) == Changes{{"argument 0", ".times = 2, .names has 1, .names[0] = \"u\"",
                       ".times = 3, .names has 1, .names[0] = \"v\""}});
}

TEST_CASE("the number of leaves, the C++ type and two NaNs that print alike are told apart") {
  using List = std::vector<Array>;
  const auto f = jit([](List l) { return l[0]; });
  f(List{ones({2})});
  f(List{ones({2}), ones({2})});
  REQUIRE(why_recompiled(f).size() == 1);
  CHECK(why_recompiled(f)[0].changes ==
        Changes{{"argument 0: leaves", "[0]", "[0], [1]"}, {"argument 0", "has 1", "has 2"}});
  CHECK(flipped([](auto g) {
          g(ones({12}), 3);
          g(ones({12}), 3u);
        }) == Changes{{"argument 1: C++ type", "int", "unsigned int"}});
  const auto nan_of = [](std::uint32_t bits) { return std::bit_cast<float>(bits); };
  CHECK(flipped([&](auto g) {
          g(ones({13}), nan_of(0x7fc00001));
          g(ones({13}), nan_of(0x7fc00002));
        }) == Changes{{"the bytes of static arguments", "byte 0: 01 00 c0 7f", "byte 0: 02 00 c0 7f"}});
}

TEST_CASE("arguments of other C++ types are another program, even where leaves and bytes are the same") {
  const auto f = jit([](auto x, auto n) {
    if constexpr (std::same_as<decltype(n), unsigned>) return std::pair{x, x * 2.0};
    else return x * n;
  });
  CHECK(f(ones({2}), 5).template to_vector<double>() == std::vector<double>{5, 5});
  CHECK(f(ones({2}), 5u).second.template to_vector<double>() == std::vector<double>{2, 2});
  CHECK(traces(f) == 2);
}

TEST_CASE("the precision of the scope around a call is named") {
  CHECK(flipped([](auto f) {
          f(ones({2}), 1);
          const PrecisionScope scope(Precision::tf32);
          f(ones({2}), 1);
        }) == Changes{{"the PrecisionScope around the call", "full", "tf32"}});
}

TEST_CASE("the named axes around a call, and the options of functions made on one line, are named") {
  const auto f = jit([](Array x) { return x * 2; }, {.inlined = true});
  f(ones({3}));
  vmap([&](Array x) { return f(x); }, {.axis_name = "i"})(ones({2, 3}));
  REQUIRE(why_recompiled(f).size() == 1);
  CHECK(why_recompiled(f)[0].changes == Changes{{"the named axes around the call", "none", "i=2,0[];"}});
  const auto with = [](JitOptions options) { return jit([](Array x) { return x * 4; }, std::move(options)); };
  with({.name = "a"})(ones({2}));
  const auto donating = with({.name = "a", .donate = {0}});
  donating(ones({2}));
  REQUIRE(why_recompiled(donating).size() == 1);
  CHECK(why_recompiled(donating)[0].changes == Changes{{"jit's option donate", "[]", "[0]"}});
}

TEST_CASE("a lambda that captures is known by its object, which is what a loop that makes it anew is told") {
  std::vector<Recompilation> again;
  for (int i = 0; i < 2; ++i) {
    const auto f = jit([i](Array x) { return x + i; });
    f(ones({2}));
    again = why_recompiled(f);
  }
  REQUIRE(again.size() == 1);
  CHECK(again[0].changes[0].field == "the object that is called, of a lambda that captures");
}

TEST_CASE("where arguments lie is named where that is what a program is compiled for again") {
  ensure_devices(4);
  const Mesh mesh({{"x", 4}});
  const auto f = jit([](Array x) { return x * 2; });
  const Array x = ones({8});
  f(x);
  f(device_put(x, {mesh, P("x")}));
  f(device_put(x, {mesh, P()}));
  CHECK(traces(f) == 1);
  const std::vector<Recompilation> again = why_recompiled(f);
  REQUIRE(again.size() == 2);
  CHECK(!again[0].is_traced);
  CHECK(again[0].changes == Changes{{"the mesh", "none", "[x=4] of cpu:0-3"}});
  CHECK(again[1].changes ==
        Changes{{"argument 0: sharding", "P(\"x\") on [x=4] of cpu:0-3", "P() on [x=4] of cpu:0-3"}});
}

TEST_CASE("a recompilation is told with the line of the call") {
  const auto f = jit([](Array x) { return x * 5; });
  f(ones({2}));
  f(ones({3}));
  CHECK(tests::with_here(to_string(why_recompiled(f)[0]), __LINE__ - 1) ==
        "HERE+0: traced again: argument 0: dim 0 was 2 and is 3");
}

TEST_CASE("after require_warm a compilation is an error that names the function and what is new") {
  const auto f = jit([](Array x) { return exp(x) - 0.25; }, {.name = "step"});
  const auto g = jit([](Array x) { return cos(x) - 0.75; }, {.name = "other"});
  const Array two = ones({2}), three = ones({3});
  f(two);
  require_warm(true);
  const std::int64_t compiled = stats().kernels_compiled;
  for (int i = 0; i < 20; ++i) f(two).wait();
  CHECK(stats().kernels_compiled == compiled);
  const std::string another = message_here<RuntimeError>([&] { f(three); });
  const std::string first = message_here<RuntimeError>([&] { g(two); });
  const std::string alone = message_here<RuntimeError>([&] { (void)atan2(three, three); });
  require_warm(false);
  CHECK(alone ==
        "HERE: atan2: would be compiled, and require_warm allows that no more: it has not been compiled before; do it in "
        "a jitted function, or warm it (docs/warm.md)");
  CHECK(another ==
        "HERE: jit step: would be compiled, and require_warm allows that no more: argument 0: dim 0 was 2 and is 3");
  CHECK(first ==
        "HERE: jit other: would be compiled, and require_warm allows that no more: it has not been compiled before");
  CHECK(f(three).to_vector<double>().size() == 3);
}

TEST_CASE("[recompile] a program" * doctest::skip()) {
  const auto f = jit([](Array x) { return x * 2; }, {.name = "step"}, Loc{"program.cpp", 1});
  for (int n = 1; n <= 6; ++n) f(ones({n}));
  f(ones({6}, i32));
}

TEST_CASE("as many recompilations of one function as SHEAF_RECOMPILE_WARNING says are one warning") {
  CHECK(
      tests::said_by_child("recompile", {{"SHEAF_RECOMPILE_WARNING", "4"}}) ==
      "sheaf warning: jit step at program.cpp:1 has been compiled again 4 times; new were argument 0: dim 0 (4 times, "
      "last 5 after 4)\n");
  CHECK(tests::said_by_child("recompile", {}).empty());
  CHECK(tests::said_by_child("recompile", {{"SHEAF_RECOMPILE_WARNING", "0"}}).empty());
  CHECK(tests::said_by_child("recompile", {{"SHEAF_RECOMPILE_WARNING", "-1"}}) ==
        "sheaf warning: SHEAF_RECOMPILE_WARNING=-1 is not a number from 0 on; using 16\n");
}

TEST_CASE("SHEAF_LOG=compile says for whom each program is compiled, and why") {
  const std::string text = tests::said_by_child("recompile", {{"SHEAF_LOG", "compile"}});
  CHECK(text.find("sheaf compile: jit step at recompile_test.cpp:") != std::string::npos);
  CHECK(text.find(" is compiled for cpu: it has not been compiled before\n") != std::string::npos);
  CHECK(text.find(" is compiled for cpu: argument 0: dim 0 was 1 and is 2\n") != std::string::npos);
}
