// Buffers: where the results of a plan's kernels live.
#pragma once

#include <vector>

#include "ir/graph.h"
#include "ir/ops/attrs.h"
#include "passes/plan.h"

namespace sheaf::passes {

/// Assigns arena offsets to kernel results that stay inside, and finds what may be overwritten in place.
struct Memory {
  ir::FunctionRef function;
  std::int64_t arena_bytes = 0;
  std::vector<int> alias;
  std::vector<NotTaken> not_taken = {};  // of the donated
};
Memory assign_memory(const ir::FunctionRef& plan, const std::vector<bool>& donated);

/// True if a kernel may write result j over parameter i of its body: the result is the parameter but for an update or a
/// scatter, or has as many bytes and reads each element only where its own element at that position is computed.
bool may_overwrite(const ir::Function& body, ir::Schedule schedule, int i, int j);

}  // namespace sheaf::passes
