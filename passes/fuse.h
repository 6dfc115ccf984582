// Fusion: equations into groups, each of which becomes one kernel.
#pragma once

#include "ir/graph.h"
#include "ir/target.h"

namespace sheaf::passes {

/// f in the plan dialect, without schedules and buffers: `kernel` equations (and dense constants) only. Every result of
/// the function is the result of its own kernel result, never a parameter or a constant.
ir::FunctionRef fuse(const ir::FunctionRef& f, const ir::Target& target);

}  // namespace sheaf::passes
