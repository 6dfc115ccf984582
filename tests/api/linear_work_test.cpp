// Work that must not grow: compiling layers written one after the other is linear in their number, compiling a scan of
// them does not depend on it, and running a scan takes no more memory or calls of the host for more steps. All is
// counted, and nothing timed.
#include <doctest/doctest.h>

#include <map>

#include "codegen/lower.h"
#include "ir/text.h"
#include "ir/work.h"
#include "passes/pipeline.h"
#include "runtime/allocator.h"
#include "runtime/counters.h"
#include "sheaf/sheaf.h"
#include "tests/allocations.h"

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

// What tracing, each pass and code generation ask of the heap and of what was kept of it, in which nothing is rounded
// up but by containers that grow; and the steps that are counted where a search asks for nothing (ir/work.h).
struct Effort {
  std::int64_t bytes = 0, steps = 0;
};
using Efforts = std::map<std::string, Effort>;
template <class F, class... A>
Efforts efforts_of(const F& f, const A&... args) {
  Efforts efforts;
  const auto now = [] { return Effort{tests::allocations().bytes + ir::recycled_bytes(), ir::work_done()}; };
  Effort before = now();
  const auto lap = [&](const std::string& what) {
    const Effort after = now();
    efforts[what] = {after.bytes - before.bytes, after.steps - before.steps};
    before = now();
  };
  const std::string program = jit(f).text(args...);
  lap("trace and print");
  const auto module = ir::parse(program);
  REQUIRE(module.ok());
  lap("parse");
  const passes::Plan plan = passes::run_pipeline(
      module->functions.back(), {.observe = [&](int, std::string_view pass, const auto&) { lap(std::string(pass)); }});
  before = now();
  codegen::lower(plan);
  lap("lower");
  return efforts;
}

// Each twice as large as the one before it: what is added to the work is at most 2.3 times what was added before.
void check_linear(const std::vector<Efforts>& of) {
  const auto check = [&](const std::string& what, auto count, std::int64_t slack) {
    const std::int64_t whole = count(of[2].at(what)), half = count(of[1].at(what)), quarter = count(of[0].at(what));
    INFO(what, ": ", quarter, ", ", half, " and ", whole, " for twice the program each");
    CHECK(static_cast<double>(whole - half) <= 2.3 * static_cast<double>(half - quarter) + static_cast<double>(slack));
  };
  std::int64_t steps = 0;
  for (const auto& [what, effort] : of[2]) {
    check(what, [](const Effort& e) { return e.bytes; }, 65536);
    check(what, [](const Effort& e) { return e.steps; }, 256);
    steps += effort.steps;
  }
  CHECK(steps > 1000);
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

TEST_CASE("what compiling asks of the heap, and the steps it takes, are linear in a chain of operations") {
  std::vector<Efforts> of;
  for (const int n : {250, 500, 1000})
    of.push_back(efforts_of(
        [n](Array x) {
          for (int i = 0; i < n; i += 2) x = sin(x) * (1.0 + i);
          return x;
        },
        abstract({64})));
  check_linear(of);
}

TEST_CASE("they are linear in layers and their gradients") {
  std::vector<Efforts> of;
  for (const std::size_t n : {10, 20, 40}) {
    const auto loss = [](std::vector<Array> weights, Array x) {
      for (const Array& w : weights) x = layer(x, w);
      return sum(x * x);
    };
    of.push_back(efforts_of(grad(loss), std::vector<Array>(n, abstract({kWidth, kWidth})), abstract({4, kWidth})));
  }
  check_linear(of);
}

TEST_CASE("they are linear in parameters that are updated side by side, and in sums of one value") {
  std::vector<Efforts> updates, sums;
  for (const int n : {50, 100, 200}) {
    updates.push_back(efforts_of(
        [](std::vector<Array> w, std::vector<Array> g) {
          for (std::size_t i = 0; i < w.size(); ++i) w[i] = w[i] - g[i] * 0.1;
          return w;
        },
        std::vector<Array>(n, abstract({16})), std::vector<Array>(n, abstract({16}))));
    sums.push_back(efforts_of(
        [n](Array x) {
          std::vector<Array> all;
          for (int i = 0; i < n; ++i) all.push_back(sum(x * (1.0 + i)) + max(x));
          return all;
        },
        abstract({64})));
  }
  check_linear(updates);
  check_linear(sums);
}

TEST_CASE("they are linear in what is moved about again and again, however many ways lead from the last to the first") {
  std::vector<Efforts> rolled, scaled;
  for (const int n : {20, 40, 80}) {
    rolled.push_back(efforts_of(
        [n](Array x) {
          for (int i = 0; i < n; ++i) x = roll(x, 2);
          return x * 2;
        },
        abstract({8})));
    scaled.push_back(efforts_of(
        [n](Array x) {
          for (int i = 0; i < n; ++i) x = roll(x, 1) * 0.5 + x;
          return x;
        },
        abstract({64})));
  }
  check_linear(rolled);
  check_linear(scaled);
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
