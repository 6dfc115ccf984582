// What a call costs once its program is compiled: nothing is asked of the system, neither memory nor a page.
#include <doctest/doctest.h>

#include <vector>

#include "runtime/allocator.h"
#include "runtime/counters.h"
#include "sheaf/sheaf.h"
#include "tests/allocations.h"

using namespace sheaf;

namespace {

/// Of 100 calls in steady state.
template <class Call>
std::int64_t allocations_of(Call call) {
  for (int i = 0; i < 20; ++i) call();
  const std::int64_t before = tests::allocations().count;
  for (int i = 0; i < 100; ++i) call();
  return tests::allocations().count - before;
}

/// f, compiled for these arguments.
template <class F, class... A>
const F& compiled(const F& f, const A&... args) {
  (void)f.trace(args...).lower().compile();
  return f;
}

struct Layer {
  Array W, b;
};

}  // namespace

TEST_CASE("a hot call asks for no memory") {
  const auto f = jit([](Array a, Array b) { return a * 0.5 + b; });
  const Array b = ones({8});
  Array y = ones({8});
  compiled(f, y, b);
  CHECK(allocations_of([&] { y = f(y, b); }) == 0);
  CHECK(allocations_of([&] { f(y, b).wait(); }) == 0);
}

TEST_CASE("nor do calls of several shapes that take turns") {
  const auto f = jit([](Array a) { return a * 0.25; });
  const Array x = ones({8}), y = ones({2, 4}), z = ones({8}, f64);
  for (const Array& a : {x, y, z}) compiled(f, a);
  CHECK(allocations_of([&] { f(x), f(y), f(z); }) == 0);
}

TEST_CASE("nor does one of trees, several results, numbers, donated buffers or intermediate results") {
  const auto step = jit([](Layer l, Array lr) { return Layer{l.W - lr * l.b, l.b * 0.5}; });
  Layer l{ones({4}), ones({4})};
  compiled(step, l, Array(0.5f));
  CHECK(allocations_of([&] { l = step(l, 0.5f); }) == 0);

  const auto donating = jit([](Array x) { return x + 1.0f; }, {.name = "a_step_with_a_long_name", .donate = {0}});
  Array x = ones({64});
  compiled(donating, x);
  CHECK(allocations_of([&] { x = donating(x); }) == 0);

  const auto sorted = jit([](Array v) { return cumsum(sort(v)); });
  const Array v = ones({16});
  compiled(sorted, v);
  CHECK(sorted.trace(v).lower().memory().temporaries > 0);
  CHECK(allocations_of([&] { sorted(v); }) == 0);
}

TEST_CASE("a training step touches no fresh page once it has run") {
  const auto loss = [](Layer l, Array x) { return mean(tanh(matmul(x, l.W) + l.b)); };
  const auto step = jit([loss](Layer l, Array x) {
    const Layer g = grad(loss)(l, x);
    return Layer{l.W - g.W * 0.1, l.b - g.b * 0.1};
  });
  Layer l{ones({256, 256}), ones({256})};
  const Array x = ones({512, 256});
  const auto fresh = [] { return runtime::Allocator::host().stats().fresh_bytes; };
  for (int i = 0; i < 3; ++i) (l = step(l, x)).W.wait();
  const std::int64_t before = fresh();
  for (int i = 0; i < 20; ++i) (l = step(l, x)).W.wait();
  // But for the scratch of threads that had no part in it before: which ones have is chance.
  constexpr std::int64_t scratch = 1 << 18;
  CHECK(fresh() - before <= 2 * scratch);  // what the steps make is ten times as much
}

TEST_CASE(
    "the first call after warm does what every later one does: nothing is made, loaded or left to the interpreter") {
  const auto f = jit([](Array x, Layer l) { return tanh(matmul(tanh(matmul(x, l.W)), l.b)) * 2.0; });
  const Array x = ones({512, 768});
  const Layer w{ones({768, 768}), ones({768, 768})};
  warm(f, x, w);
  CHECK(f.trace(x, w).lower().memory().temporaries > 1 << 20);
  const runtime::Counters& c = runtime::counters();
  const auto counted = [&] {
    return std::vector<std::int64_t>{c.kernels_compiled, c.kernels_loaded, c.interpreted_launches, stats().traces};
  };
  const auto fresh = [] { return runtime::Allocator::host().stats().fresh_bytes; };
  synchronize();  // what made x and w
  const std::vector<std::int64_t> before = counted();
  const std::int64_t fresh_before = fresh(), launches_before = c.launches;
  f(x, w).wait();
  CHECK(counted() == before);
  CHECK(fresh() - fresh_before <= x.size() * 4 + (1 << 18));  // the result, and a page of small blocks
  const std::int64_t launches = c.launches - launches_before;
  f(x, w).wait();
  CHECK(c.launches - launches_before == 2 * launches);
}
