// Fusion: equations into groups, each of which becomes one kernel.
#pragma once

#include <string>
#include <vector>

#include "ir/graph.h"

namespace sheaf::passes {

/// f in the plan dialect, without buffers: `kernel` equations (and dense constants) only. Every result of the function
/// is the result of its own kernel result, never a parameter or a constant.
ir::FunctionRef fuse(const ir::FunctionRef& f);

/// Assigns arena offsets to kernel results that stay inside, and finds what may be overwritten in place.
struct Memory {
  ir::FunctionRef function;
  std::int64_t arena_bytes = 0;
  std::vector<int> alias;
};
Memory assign_memory(const ir::FunctionRef& plan, const std::vector<bool>& donated);

/// True if a kernel body may write result j over parameter i: same bytes, and every element of the parameter is read
/// only where the result's element at the same position is computed.
bool may_overwrite(const ir::Function& body, const std::string& schedule, int i, int j);

}  // namespace sheaf::passes
