// Where a plan's intermediate results lie, and from which step to which: what memory is spent on, and when.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "passes/plan.h"
#include "sheaf/source.h"

namespace sheaf {

struct MemoryMap {
  struct Value {
    std::string type;  // "f32[64, 512]"; "the arena of scan" of what a loop's own steps have
    std::string made_by;  // the kernel's name
    Loc loc;
    int first = 0, last = 0;  // steps
    std::int64_t offset = 0, bytes = 0;
    bool is_kept_for_backward = false;  // made by the forward pass, read by that of a derivative
  };
  std::vector<Value> values;       // in the order they are made
  std::vector<std::int64_t> live;  // bytes per step
  std::int64_t arena_bytes = 0;

  /// The first step at which most is alive; 0 of a plan without steps.
  int peak() const;
  /// Those alive at a step, the largest first.
  std::vector<Value> alive_at(int step) const;
};

MemoryMap memory_map(const passes::Plan& plan);

}  // namespace sheaf
