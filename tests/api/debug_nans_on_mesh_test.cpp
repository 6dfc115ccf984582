// NaN and infinity in programs on several devices: the report names the equation, the user's line and the device.
#include <doctest/doctest.h>

#include <limits>

#include "sheaf/sheaf.h"
#include "tests/message.h"

using namespace sheaf;
using sheaf::tests::message_of;

namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

const Mesh& mesh() {
  static const Mesh m = [] {
    ensure_devices(4);
    return Mesh({{"x", 4}});
  }();
  return m;
}

struct Watching {
  explicit Watching(bool infinities = false) {
    set_debug_nans(!infinities);
    set_debug_infs(infinities);
  }
  ~Watching() {
    set_debug_nans(false);
    set_debug_infs(false);
  }
};

}  // namespace

TEST_CASE("a NaN that one device of a shard_map makes names that device, in jit and called at once") {
  const int base = __LINE__;
  const auto f = shard_map(
      [](Array part) {
        const Array y = log(part);
        return y * 2;
      },
      {.mesh = mesh(), .in = {P("x")}, .out = {P("x")}});
  const Watching on;
  const Array x = array({1.0f, 2.0f, 3.0f, 4.0f, 5.0f, -6.0f, 7.0f, 8.0f});
  const std::string where =
      "result 0 is NaN at [5]\n"
      "  HERE+3: log gives NaN at [1] of the part on cpu:2\n"
      "  operand 0: f32[2] in [-6, 5]";
  const auto compiled = jit(f, {.name = "logs"});
  const auto in_jit = [&] { compiled(x); };
  CHECK(message_of(in_jit, base) == "HERE+14: logs: " + where);
  const auto at_once = [&] { f(x); };
  CHECK(message_of(at_once, base).ends_with(where));
  const std::string found = tests::with_here(find_nan(f, x), base);
  CHECK(found == where.substr(where.find("HERE")));
}

TEST_CASE("in a program over whole arrays the device that has the part is named") {
  const int base = __LINE__;
  const auto f = jit([](Array v) { return sqrt(v - 3.0) + sum(v); }, {.name = "roots"});
  const Array x = device_put(arange(8, f32), mesh(), P("x"));
  const Watching on;
  const auto call = [&] { f(x); };
  CHECK(message_of(call, base) ==
        "HERE+4: roots: result 0 is NaN at [0]\n"
        "  HERE+1: sqrt gives NaN at [0] of the part on cpu:0\n"
        "  operand 0: f32[2] in [-3, -2]");
}

TEST_CASE("a NaN that only a sum over devices makes is the sum's, and steps of loops are told") {
  const int base = __LINE__;
  const auto f = jit(shard_map(
                         [](Array part) {
                           const auto step = [](Array c, Array) { return std::pair{psum(c * 2, "x") + c, none}; };
                           return scan(step, part, arange(3)).first;
                         },
                         {.mesh = mesh(), .in = {P("x")}, .out = {P("x")}}),
                     {.name = "sums"});
  const Array x = array({3e38f, -3e38f, 1.0f, 1.0f});
  const Watching on;
  const auto call = [&] { f(x); };
  CHECK(message_of(call, base) ==
        "HERE+10: sums: result 0 is NaN at [0]\n"
        "  HERE+3: all_reduce gives NaN at [0] of the part on cpu:0 in step 0 of the scan at HERE+4\n"
        "  operand 0: f32[1] in [inf, inf]\n"
        "  operand 1: f32[1] in [-inf, -inf]\n"
        "  operand 2: f32[1] in [2, 2]\n"
        "  operand 3: f32[1] in [2, 2]");
}

TEST_CASE("infinities are found in the same way, and an input that holds one is named") {
  const int base = __LINE__;
  const auto f = jit([](Array v) { return 1.0 / v; }, {.name = "inverse"});
  const Watching on(true);
  const auto call = [&] { f(device_put(array({1.0f, 2.0f, 0.0f, 4.0f}), mesh(), P("x"))); };
  CHECK(message_of(call, base) ==
        "HERE+3: inverse: result 0 is infinity at [2]\n"
        "  HERE+1: div gives infinity at [0] of the part on cpu:2\n"
        "  operand 0: f32[] in [1, 1]\n"
        "  operand 1: f32[1] in [0, 0]");
  const auto given = [&] { f(device_put(array({1.0f, 2.0f, kInf, 4.0f}), mesh(), P("x")) * 2.0); };
  CHECK(message_of(given, base) ==
        "HERE+9: mul: result 0 is infinity at [2]\n"
        "  it was given: input 0 is infinity at [2]");
}
