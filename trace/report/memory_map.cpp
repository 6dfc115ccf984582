// A value lives from the step that makes it to the last that reads it, or that awaits the collective which does, or to
// the one before that which writes over it.
#include "trace/report/memory_map.h"

#include <algorithm>
#include <functional>
#include <iterator>

#include "ir/op.h"
#include "ir/ops/attrs.h"
#include "ir/schedule.h"
#include "passes/flights.h"
#include "passes/sharding/reasons.h"

namespace sheaf {
namespace {

bool is_of_derivative(const ir::Eqn& e) {
  if (passes::is_of_derivative(e.how)) return true;
  return std::ranges::any_of(e.regions, [](const ir::FunctionRef& region) {
    return std::ranges::any_of(region->eqns(), [](const ir::Eqn* inner) { return is_of_derivative(*inner); });
  });
}

/// The arena that the steps of a region need: where the last of what they make ends.
std::int64_t arena_of(const ir::Function& region) {
  std::int64_t end = 0;
  for (const ir::Eqn* e : region.eqns()) {
    if (e->op != &ir::ops::kernel) continue;
    const auto& kernel = e->attrs<ir::ops::Kernel>();
    for (int j = 0; j < e->num_out() && j < std::ssize(kernel.offsets); ++j)
      if (kernel.offsets[j] >= 0) end = std::max(end, kernel.offsets[j] + e->out(j).type().bytes());
    if (kernel.frame < 0) continue;
    for (const ir::FunctionRef& inner : ir::host_step(*e->regions[0]).regions)
      end = std::max(end, kernel.frame + arena_of(*inner));
  }
  return end;
}

class Map {
 public:
  explicit Map(const passes::Plan& plan)
      : f_(*plan.function), last_(f_, -1), is_read_backwards_(f_, 0), steps_(static_cast<int>(f_.eqns().size())) {
    map_.arena_bytes = plan.arena_bytes;
    find_ends();
  }

  MemoryMap run() {
    for (int k = 0; k < steps_; ++k)
      if (f_.eqns()[k]->op == &ir::ops::kernel) add_step(*f_.eqns()[k], k);
    map_.live.assign(static_cast<std::size_t>(steps_), 0);
    for (const MemoryMap::Value& v : map_.values)
      for (int k = v.first; k <= v.last; ++k) map_.live[k] += v.bytes;
    return std::move(map_);
  }

 private:
  void find_ends() {
    const std::vector<passes::Flight> flights = passes::flights(f_);
    for (int k = 0; k < steps_; ++k) {
      const ir::Eqn& e = *f_.eqns()[k];
      for (const ir::Value v : e.outs()) last_[v] = std::max(last_[v], k);
      const bool is_backward = is_of_derivative(e);
      for (const ir::Value v : e.operands) {
        last_[v] = std::max({last_[v], k, std::min(flights[k].done, steps_) - 1});
        is_read_backwards_[v] |= is_backward;
      }
    }
    // What is written over is the new value from then on.
    for (int k = 0; k < steps_; ++k) {
      const ir::Eqn& e = *f_.eqns()[k];
      if (e.op != &ir::ops::kernel) continue;
      for (const std::int64_t operand : e.attrs<ir::ops::Kernel>().in_place)
        if (operand >= 0) last_[e.in(static_cast<int>(operand))] = k - 1;
    }
  }

  void add_step(const ir::Eqn& e, int k) {
    const auto& kernel = e.attrs<ir::ops::Kernel>();
    for (int j = 0; j < e.num_out(); ++j) {
      if (kernel.offsets[j] < 0) continue;
      const ir::Value v = e.out(j);
      map_.values.push_back({.type = ir::to_string(v.type()),
                             .made_by = kernel.name,
                             .loc = e.loc,
                             .first = k,
                             .last = std::max(last_[v], k),
                             .offset = kernel.offsets[j],
                             .bytes = v.type().bytes(),
                             .is_kept_for_backward = !is_of_derivative(e) && is_read_backwards_[v]});
    }
    if (kernel.frame < 0) return;
    std::int64_t frame = 0;
    for (const ir::FunctionRef& region : ir::host_step(*e.regions[0]).regions)
      frame = std::max(frame, arena_of(*region));
    if (frame > 0)
      map_.values.push_back({.type = "the arena of " + kernel.name,
                             .made_by = kernel.name,
                             .loc = e.loc,
                             .first = k,
                             .last = k,
                             .offset = kernel.frame,
                             .bytes = frame});
  }

  const ir::Function& f_;
  ir::ValueTable<int> last_;
  ir::ValueTable<char> is_read_backwards_;  // by a step of a derivative
  const int steps_;
  MemoryMap map_;
};

}  // namespace

int MemoryMap::peak() const { return static_cast<int>(std::ranges::max_element(live) - live.begin()); }

std::vector<MemoryMap::Value> MemoryMap::alive_at(int step) const {
  std::vector<Value> alive;
  std::ranges::copy_if(values, std::back_inserter(alive),
                       [&](const Value& v) { return v.first <= step && step <= v.last; });
  std::ranges::stable_sort(alive, std::greater(), &Value::bytes);
  return alive;
}

MemoryMap memory_map(const passes::Plan& plan) { return Map(plan).run(); }

}  // namespace sheaf
