// What a report says of memory is what the plan does: values that are alive at once never lie in the same place.
#include "trace/report/memory_map.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <functional>

#include "passes/pipeline.h"
#include "sheaf/sheaf.h"
#include "trace/trace_call.h"

using namespace sheaf;

namespace {

template <class F, class... A>
passes::Plan plan_of(F f, const A&... args) {
  const Loc loc = Loc::current();
  const detail::CallOf<F, A...> call(f, loc, args...);
  return passes::run_pipeline(trace_call(call, {.what = "f", .name = "f", .loc = loc}, leaf_types(call)).function);
}

bool lie_apart(const MemoryMap::Value& a, const MemoryMap::Value& b) {
  return a.offset + a.bytes <= b.offset || b.offset + b.bytes <= a.offset;
}

void check_map(const passes::Plan& plan) {
  const MemoryMap map = memory_map(plan);
  CHECK(!map.values.empty());
  for (std::size_t i = 0; i < map.values.size(); ++i) {
    const MemoryMap::Value& a = map.values[i];
    CAPTURE(a.type);
    CHECK(a.first <= a.last);
    CHECK(a.offset + a.bytes <= map.arena_bytes);
    for (std::size_t j = 0; j < i; ++j) {
      const MemoryMap::Value& b = map.values[j];
      const bool are_alive_at_once = a.first <= b.last && b.first <= a.last;
      CAPTURE(b.type);
      CHECK((!are_alive_at_once || lie_apart(a, b)));
    }
  }
  const auto at_peak = map.alive_at(map.peak());
  std::int64_t bytes = 0;
  for (const MemoryMap::Value& v : at_peak) bytes += v.bytes;
  CHECK(bytes == *std::ranges::max_element(map.live));
  CHECK(bytes <= map.arena_bytes);
  CHECK(std::ranges::is_sorted(at_peak, std::greater(), &MemoryMap::Value::bytes));
}

Array chain(const Array& w, Array x, int count) {
  for (int k = 0; k < count; ++k) x = tanh(dot(x, w));
  return x;
}

}  // namespace

TEST_CASE("values that are alive at once lie apart: chains, gradients, sorts, updates, loops and branches") {
  const Array w = abstract({32, 32}), x = abstract({16, 32});
  check_map(plan_of([](Array a, Array b) { return chain(a, b, 6); }, w, x));
  check_map(plan_of([](Array a, Array b) { return grad([&](Array v) { return mean(chain(v, b, 6)); })(a); }, w, x));
  check_map(plan_of([](Array b) { return sort(exp(b)) + cumsum(sort(b), {.axis = 1}) * sum(b); }, x));
  check_map(plan_of(
      [](Array a, Array b) {
        return fori_loop(0, 5, [&](Array, Array v) { return sort(dot(v, a)) + v * sum(exp(v)); }, b * 2.0) - 1.0;
      },
      w, x));
  check_map(plan_of(
      [](Array a, Array b) {
        const Array y = dot(b, a);
        return dot(cond(sum(y) > 0.0, [&] { return sort(dot(y, a)); }, [&] { return y - 1.0; }), a);
      },
      w, x));
}

TEST_CASE("what the forward pass keeps for the backward one is told apart, and is nothing where nothing is kept") {
  const auto kept = [](const passes::Plan& plan) {
    const MemoryMap map = memory_map(plan);
    return std::ranges::count(map.alive_at(map.peak()), true, &MemoryMap::Value::is_kept_for_backward);
  };
  const Array w = abstract({32, 32}), x = abstract({16, 32});
  CHECK(kept(plan_of([](Array a, Array b) { return chain(a, b, 12); }, w, x)) == 0);
  const auto gradient = [](Array a, Array b) { return grad([&](Array v) { return mean(chain(v, b, 12)); })(a); };
  CHECK(kept(plan_of(gradient, w, x)) >= 11);  // the derivative of tanh is made of its value
  const auto three = checkpoint([](Array u, Array y) { return chain(u, y, 3); });
  const auto checkpointed = [three](Array a, Array b) {
    return grad([&](Array v) { return mean(three(v, three(v, three(v, three(v, b))))); })(a);
  };
  CHECK(kept(plan_of(checkpointed, w, x)) <= 6);
}
