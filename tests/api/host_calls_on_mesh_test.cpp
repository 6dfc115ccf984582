// Calls of the host where not all devices get to them: who calls, how often, and that nobody waits for those who do
// not.
#include <doctest/doctest.h>

#include <atomic>
#include <mutex>
#include <string>
#include <vector>

#include "sheaf/sheaf.h"

using namespace sheaf;

namespace {

struct Seven {
  std::atomic<int> calls = 0;
  HostFunction call{"seven", [this](std::span<const HostTensor>, std::span<const HostTensor> out) {
                      ++calls;
                      out[0].as<float>()[0] = 7;
                    }};
  Array operator()() const { return call({}, {abstract({}, f32)})[0]; }
};

struct Printed {
  Printed() {
    set_debug_output([this](std::string_view line) {
      std::lock_guard lock(mutex);
      lines.emplace_back(line);
    });
  }
  ~Printed() { set_debug_output(nullptr); }
  std::mutex mutex;
  std::vector<std::string> lines;
};

}  // namespace

TEST_CASE("in a branch that some devices take, each of them calls for itself, though its operands are all devices'") {
  ensure_devices(4);
  const Mesh mesh({{"x", 4}});
  Seven seven;
  const auto f = shard_map(
      [&](Array part) {
        return cond(axis_index("x") < 2, [&](Array y) { return y + seven(); }, [](Array y) { return y; }, part);
      },
      {.mesh = mesh, .in = {P("x")}, .out = {P("x")}});
  CHECK(jit(f)(zeros({4})).to_vector<float>() == std::vector<float>{7, 7, 0, 0});
  CHECK(seven.calls == 2);
}

TEST_CASE("along the axes that the choice is alike on, one device calls for all") {
  ensure_devices(4);
  const Mesh mesh({{"x", 2}, {"y", 2}});
  Seven seven;
  const auto f = shard_map(
      [&](Array part) {
        const auto chosen = [&](Array y) {
          return cond(sum(y) >= 0, [&](Array z) { return z + seven(); }, [](Array z) { return z; }, y);
        };
        return cond(axis_index("x") == 1, chosen, [](Array y) { return y; }, part);
      },
      {.mesh = mesh, .in = {P("x")}, .out = {P("x")}});
  CHECK(jit(f)(zeros({2})).to_vector<float>() == std::vector<float>{0, 7});
  CHECK(seven.calls == 1);
}

TEST_CASE("in a loop of which devices make different numbers of steps, each prints its own") {
  ensure_devices(4);
  const Mesh mesh({{"x", 4}});
  Printed printed;
  const auto f = shard_map(
      [](Array part) {
        const auto more = [](Array t) { return t < axis_index("x"); };
        const auto step = [](Array t) {
          debug_print("a step");
          return t + 1;
        };
        return part + convert(while_loop(more, step, Array(0)), f32);
      },
      {.mesh = mesh, .in = {P("x")}, .out = {P("x")}});
  CHECK(jit(f)(zeros({4})).to_vector<float>() == std::vector<float>{0, 1, 2, 3});
  CHECK(printed.lines == std::vector<std::string>(0 + 1 + 2 + 3, "a step"));
}
