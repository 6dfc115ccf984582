// Work that must not grow: compiling layers written one after the other is linear in their number, compiling a scan of
// them does not depend on it, and running a scan takes no more memory or calls of the host for more steps. All is
// counted, and nothing timed.
#include <doctest/doctest.h>

#include <map>

#include "ir/text.h"
#include "passes/pipeline.h"
#include "runtime/allocator.h"
#include "runtime/counters.h"
#include "sheaf/sheaf.h"

using namespace sheaf;

namespace {

constexpr std::int64_t kWidth = 8;

Array layer(Array h, Array w) { return tanh(matmul(h, w)) + h; }

std::int64_t equations(const ir::Function& f) {
  std::int64_t n = 0;
  for (const ir::Eqn* e : f.eqns()) {
    ++n;
    for (const ir::FunctionRef& region : e->regions) n += equations(*region);
  }
  return n;
}

// Equations of the program that is traced, and after each pass.
using Work = std::map<std::string, std::int64_t>;
Work work_of(const std::string& program) {
  const auto module = ir::parse(program);
  REQUIRE(module.ok());
  const ir::FunctionRef traced = module->functions.back();
  Work work{{"traced", equations(*traced)}};
  passes::run_pipeline(traced, {.observe = [&](int, std::string_view pass, const ir::FunctionRef& f) {
                         work[std::string(pass)] = equations(*f);
                       }});
  return work;
}

Work unrolled(std::size_t layers) {
  const auto loss = [](std::vector<Array> weights, Array x) {
    for (const Array& w : weights) x = layer(x, w);
    return sum(x * x);
  };
  const std::vector<Array> weights(layers, abstract({kWidth, kWidth}));
  return work_of(jit(grad(loss)).text(weights, abstract({4, kWidth})));
}

Work scanned(std::int64_t layers) {
  const auto loss = [](Array weights, Array x) {
    const Array y = scan([](Array h, Array w) { return std::pair{layer(h, w), none}; }, x, weights).first;
    return sum(y * y);
  };
  return work_of(jit(grad(loss)).text(abstract({layers, kWidth, kWidth}), abstract({4, kWidth})));
}

// What one run in steady state does.
struct Run {
  std::int64_t executions, bytes_allocated, fresh_bytes, kernels;
  bool operator==(const Run&) const = default;
};
template <class F>
Run second_run(const F& f) {
  f();
  const runtime::Counters& now = runtime::counters();
  const auto counted = [&] {
    return Run{now.executions, now.bytes_allocated, runtime::Allocator::host().stats().fresh_bytes,
               now.kernels_compiled + now.kernels_loaded};
  };
  const Run before = counted();
  f();
  const Run after = counted();
  return {after.executions - before.executions, after.bytes_allocated - before.bytes_allocated,
          after.fresh_bytes - before.fresh_bytes, after.kernels - before.kernels};
}

}  // namespace

TEST_CASE("compiling the gradient of layers written one after the other is linear in their number, pass by pass") {
  Work three = unrolled(3), six = unrolled(6), twelve = unrolled(12);
  CHECK(three.size() > 5);
  CHECK(three.size() == twelve.size());
  for (const auto& [pass, n] : six) {
    INFO(pass);
    CHECK(n > three[pass]);
    CHECK(twelve[pass] - n == 2 * (n - three[pass]));
  }
}

TEST_CASE("compiling the gradient of scanned layers does not depend on their number") {
  const Work three = scanned(3);
  CHECK(three.size() > 5);
  CHECK(scanned(6) == three);
  CHECK(scanned(12) == three);
}

TEST_CASE("a scan of 1,000 steps allocates no more than one of 10, and calls the host no more often") {
  const auto f = jit([](Array x, Array steps) {
    return scan([](Array c, Array s) { return std::pair{sin(c) + s, none}; }, x, steps).first;
  });
  const Array x = ones({256});
  const auto run_of = [&](std::int64_t length) {
    const Array steps = full({length}, 0.5);
    return second_run([&] { CHECK(f(x, steps).to_vector<float>().size() == 256); });
  };
  const Run few = run_of(10), many = run_of(1000);
  CHECK(few.executions == 1);
  CHECK(few.kernels == 0);
  CHECK(few.fresh_bytes == 0);
  CHECK(many == few);
}
