// Results searched for NaN and infinity after every run: the report, which runs are searched, and what is left alone.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "sheaf/sheaf.h"
#include "tests/message.h"

using namespace sheaf;
using sheaf::tests::message_of;

namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

struct Watching {
  explicit Watching(bool nans = true, bool infs = false) {
    set_debug_nans(nans);
    set_debug_infs(infs);
  }
  ~Watching() {
    set_debug_nans(false);
    set_debug_infs(false);
  }
};

}  // namespace

TEST_CASE("a NaN in a result names the equation, its operands' ranges, the loop and the step") {
  const Watching on;
  const auto f = jit(
      [](Array x) { return scan([](Array c, Array) { return std::pair{sqrt(c) - 1.0f, none}; }, x, arange(3)).first; },
      {.name = "shrink"});
  CHECK(f(Array(50.0f)).item<float>() > 0);
  const auto call = [&] { f(Array(2.0f)); };
  CHECK(message_of(call) ==
        "debug_nans_test.cpp:36: shrink: result 0 is NaN at []\n"
        "  debug_nans_test.cpp:33: sqrt gives NaN at [] in step 2 of the scan at debug_nans_test.cpp:33\n"
        "  operand 0: f32[] in [-0.356406, -0.356406]");
}

TEST_CASE("eager operations, gradients and compiled programs are searched too, each on its own line") {
  const auto compiled = jit([](Array x) { return log(x); }).trace(abstract({2})).lower().compile();
  const Array x = array({1.0f, -1.0f});
  CHECK(std::isnan(log(x).to_vector<float>()[1]));
  const Watching on;
  const auto eager = [&] { log(x); };
  CHECK(message_of(eager) ==
        "debug_nans_test.cpp:48: log: result 0 is NaN at [1]\n"
        "  debug_nans_test.cpp:48: log gives NaN at [1]\n  operand 0: f32[2] in [-1, 1]");
  const auto ahead = [&] { compiled(x); };
  CHECK(message_of(ahead).starts_with("debug_nans_test.cpp:52: "));
  const auto root = [](Array v) { return sum(0.0 * sqrt(v)); };
  const auto gradient = [&] { grad(root)(zeros({2})); };
  CHECK(message_of(gradient) ==
        "debug_nans_test.cpp:55: grad.grad: result 1 is NaN at [0]\n"
        "  debug_nans_test.cpp:54: mul gives NaN at [0]\n"
        "  operand 0: f32[2] in [0, 0]\n  operand 1: f32[2] in [inf, inf]");
}

TEST_CASE("a NaN that was given is said to be") {
  const Array x = array({1.0f, std::nanf("")});
  const auto f = jit([](Array v) { return v + 1.0f; }, {.name = "next", .args = {"state"}});
  const Watching on;
  const auto call = [&] { f(x); };
  CHECK(message_of(call) ==
        "debug_nans_test.cpp:66: next: result 0 is NaN at [1]\n  it was given: state is NaN at [1]");
}

TEST_CASE("a NaN that no result depends on is no error, nor is an infinity unless asked for") {
  const Watching on;
  const auto f = jit([](Array x) { return where(x > 0, log(x), 0.0); });
  CHECK(f(array({-1.0f, 1.0f})).to_vector<float>() == std::vector<float>{0, 0});
  const auto inverse = jit([](Array x) { return 1.0f / x; }, {.name = "inverse"});
  CHECK(inverse(zeros({1})).to_vector<float>() == std::vector<float>{kInf});
  const Watching both(true, true);
  const auto call = [&] { inverse(zeros({1})); };
  CHECK(
      message_of(call).starts_with("debug_nans_test.cpp:78: inverse: result 0 is infinity at [0]\n"
                                   "  debug_nans_test.cpp:75: div gives infinity at [0]\n"));
}

TEST_CASE("B17: normalising by cond has gradient zero at zero with NaN checking on, under vmap too") {
  const Watching on;
  const auto normalised = [](Array x) {
    return sum(
        cond(all(x == 0), [](Array v) { return zeros_like(v); }, [](Array v) { return v / sqrt(sum(v * v)); }, x));
  };
  CHECK(grad(normalised)(zeros({3})).to_vector<float>() == std::vector<float>(3, 0));
  CHECK(jit(vmap(grad(normalised)))(zeros({4, 3})).to_vector<float>() == std::vector<float>(12, 0));
}

TEST_CASE("nothing is donated while results are searched") {
  const auto f = jit([](Array x) { return x + 1.0f; }, {.donate = {0}});
  const Array x = ones({64});
  {
    const Watching on;
    f(x);
  }
  CHECK(x.to_vector<float>()[0] == 1);
  f(x);
  CHECK_THROWS_AS(x.to_vector<float>(), RuntimeError);
}

TEST_CASE("an input without a name is named by its number, and what only the whole program gives is said to be") {
  const Array bad = array({1.0f, std::nanf("")});
  const Array large = array({3e38f, 3e38f, -3e38f}), ones3 = ones({3});
  const auto next = jit([&](Array v) { return v + bad; }, {.name = "next"});
  const auto product = jit([](Array x, Array y) { return dot(x, y); }, {.name = "product"});
  const Watching on(true, true);
  const auto captured = [&] { next(ones({2})); };
  CHECK(message_of(captured) ==
        "debug_nans_test.cpp:112: next: result 0 is NaN at [1]\n  it was given: input 1 is NaN at [1]");
  // In f64, as single equations are computed, the partial sums are finite.
  const auto overflows = [&] { product(large, ones3); };
  CHECK(message_of(overflows) ==
        "debug_nans_test.cpp:116: product: result 0 is infinity at []\n"
        "  run equation by equation, the program gives none");
}
