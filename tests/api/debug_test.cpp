// Prints, checks, host functions and the NaN finder: what users look into running programs with.
#include <doctest/doctest.h>

#include <functional>
#include <future>

#include "sheaf/sheaf.h"
#include "tests/message.h"

using namespace sheaf;
using sheaf::tests::message_here;
using sheaf::tests::message_of;

namespace {

struct Captured {
  Captured() {
    set_debug_output([this](std::string_view line) { lines.emplace_back(line); });
  }
  ~Captured() { set_debug_output(nullptr); }
  std::vector<std::string> lines;
};

}  // namespace

TEST_CASE(
    "debug_print prints each time the program gets there: eagerly, under jit, in a scan, and per example under vmap") {
  Captured out;
  debug_print("x = {}", Array(2.0f));
  const auto f = jit([](Array x) {
    debug_print("x = {}, twice {}", x, 2.0f * x);
    return x + 1.0f;
  });
  f(Array(1.0f)).item<float>();
  f(Array(3.0f)).item<float>();
  const auto loop = jit([](Array x) {
    return scan(
               [](Array c, Array r) {
                 debug_print("{}", c);
                 return std::pair{c + r, none};
               },
               x, arange(3, f32))
        .first;
  });
  loop(Array(10.0f)).item<float>();
  const auto batch = jit([](Array x) {
    return vmap([](Array y) {
      debug_print("[{}]", y);
      return 2.0f * y;
    })(x);
  });
  batch(arange(2, f32)).to_vector<float>();
  CHECK(out.lines == std::vector<std::string>{"x = 2.", "x = 1., twice 2.", "x = 3., twice 6.", "10.", "10.", "11.",
                                              "[0.]", "[1.]"});
}

TEST_CASE("debug_print's format and arrays must agree") {
  const auto one_short = [] { debug_print("{} and {}", Array(1.0f)); };
  CHECK(message_of(one_short) ==
        "debug_test.cpp:58: debug_print: the format \"{} and {}\" has 2 {}, and 1 arrays are given");
}

TEST_CASE("check ends the run that breaks it, with its message and line, and no other") {
  const auto f = jit([](Array x) {
    check(x > 0.0f, "x must be positive");
    return sqrt(x);
  });
  CHECK(f(Array(4.0f)).item<float>() == 2);
  CHECK(message_of([&] {
          f(Array(-1.0f)).item<float>();
        }).find("debug_test.cpp:65: check failed: x must be positive") != std::string::npos);
  CHECK(f(Array(9.0f)).item<float>() == 3);
  CHECK(message_of([] { check(Array(1.0f) > 2.0f, "one is less"); }) == "debug_test.cpp:73: check failed: one is less");
  const auto no_bool = [] { check(Array(1.0f), "no bool"); };
  CHECK(message_of(no_bool) ==
        "debug_test.cpp:74: check: takes a bool scalar\n  operand: f32[]   (made at debug_test.cpp:74)");
  const auto all = vmap([](Array x) {
    check(x < 3.0f, "too large");
    return x;
  });
  CHECK_NOTHROW(jit(all)(arange(3, f32)).to_vector<float>());
  CHECK_THROWS_AS(jit(all)(arange(4, f32)).to_vector<float>(), RuntimeError);
}

TEST_CASE("a host function computes on the host, under jit and vmap, and what it throws ends the run") {
  const HostFunction twice("twice",
                           [](std::span<const HostTensor> in, std::span<const HostTensor> out) {
                             for (std::size_t i = 0; i < in[0].as<float>().size(); ++i)
                               out[0].as<float>()[i] = 2 * in[0].as<float>()[i];
                           },
                           {.pure = true});
  const auto f = [&](Array x) { return twice({x}, {x})[0]; };
  CHECK(f(arange(3, f32)).to_vector<float>() == std::vector<float>{0, 2, 4});
  CHECK(jit(f)(arange(3, f32)).to_vector<float>() == std::vector<float>{0, 2, 4});
  CHECK(jit(vmap(f))(arange(3, f32)).to_vector<float>() == std::vector<float>{0, 2, 4});
  const HostFunction fails("reader", [](auto, auto) { throw std::runtime_error("no such file"); });
  const auto reads = jit([&](Array x) { return fails({x}, {x})[0]; });
  CHECK(message_of([&] { reads(Array(1.0f)).item<float>(); }).find("debug_test.cpp:97: reader: no such file") !=
        std::string::npos);
}

TEST_CASE("what is the same for all examples is given to each of them") {
  Captured out;
  const auto print_both = [](Array x, Array y) {
    debug_print("{} {}", x, y);
    return x;
  };
  vmap(print_both, {.in = {0, none}})(array({1, 2}), array({7, 8})).wait();
  CHECK(out.lines == std::vector<std::string>{"1 [7 8]", "2 [7 8]"});
}

TEST_CASE("whatever a host function throws ends the run") {
  const HostFunction five("five", [](auto, auto) { throw 5; });
  const auto call = [&] { five({ones({2})}, {ones({2})})[0].wait(); };
  CHECK(message_of(call).find("the function threw something that is no std::exception") != std::string::npos);
}

TEST_CASE("find_nan names the equation a NaN comes from, its operands' ranges, and the step of the loop") {
  const auto fine = [](Array x) { return log(x); };
  CHECK(find_nan(fine, arange(1, 4, 1, f32)).empty());
  CHECK(find_nan(fine, Array(-1.0f)) == "debug_test.cpp:119: log gives NaN at []\n  operand 0: f32[] in [-1, -1]");
  const auto loop = [](Array x) {
    return scan([](Array c, Array) { return std::pair{sqrt(c) - 1.0f, none}; }, x, arange(3)).first;
  };
  CHECK(
      find_nan(loop, Array(2.0f)) ==
      "debug_test.cpp:123: sqrt gives NaN at [] in step 2 of the scan at debug_test.cpp:123\n  operand 0: f32[] in [-0.356406, -0.356406]");
}

TEST_CASE("a loop or branch that only prints does so, whatever of it nobody reads") {
  Captured out;
  const auto only = jit([](Array x) {
    scan(
        [](None, Array row) {
          debug_print("row {}", row);
          return std::pair{none, none};
        },
        none, x);
    cond(
        x[0] < 1.0f,
        [](Array y) {
          debug_print("first {}", y[1]);
          return none;
        },
        [](Array) { return none; }, x);
    return x + 1.0f;
  });
  only(arange(2, f32)).wait();
  CHECK(out.lines == std::vector<std::string>{"row 0.", "row 1.", "first 1."});
  out.lines.clear();
  const auto unread = jit([](Array x) {
    scan(
        [](Array c, Array row) {
          debug_print("row {}", row);
          return std::pair{c * row, none};
        },
        x[0], x);
    return x + 1.0f;
  });
  unread(arange(2, f32)).wait();
  CHECK(out.lines == std::vector<std::string>{"row 0.", "row 1."});
}

TEST_CASE("a host function that runs a program or waits for an array is told so, and the device goes on") {
  const auto large = jit([](Array x) { return sum(exp(x)); }, {.name = "large"});
  const Array data = ones({300'000});
  const float expected = large(data).item<float>();
  const auto error_of = [&](const std::function<void()>& body, const std::function<void()>& meanwhile) {
    const HostFunction calls("calls", [&](std::span<const HostTensor>, std::span<const HostTensor>) { body(); });
    const Array y = jit([&](Array x) { return sum(exp(x)) + calls({x}, {abstract({})})[0]; })(data);
    meanwhile();
    return message_here([&] { y.wait(); });
  };
  const std::string says =
      "HERE: HERE: calls: HERE: the device waits for the host function calls, which may neither run programs nor wait "
      "for arrays";
  CHECK(error_of([&] { large(data); }, [] {}) == says);
  std::promise<Array> promise;
  CHECK(error_of([&] { promise.get_future().get().wait(); }, [&] { promise.set_value(large(data)); }) == says);
  CHECK(error_of([&] { CHECK(data.to_vector<float>()[7] == 1); }, [] {}) == "nothing was thrown");
  CHECK(large(data).item<float>() == expected);
}
