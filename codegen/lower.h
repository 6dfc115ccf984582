// Plan -> Program: every kernel equation becomes one kernel for the target, every value a place in memory. Nothing is
// re-planned here: templates, the order of steps and the arena are the plan's; only temporaries inside a step are added
// above it.
#pragma once

#include "codegen/program.h"
#include "passes/plan.h"

namespace sheaf::codegen {

Program lower(const passes::Plan& plan, const Target& target = {});

}  // namespace sheaf::codegen
