// Plan -> Program: every kernel equation becomes one or a few kernels of KIR, every value a place in memory. Nothing is
// re-planned here: the order of steps and the arena are the plan's; only temporaries inside a step are added above it.
#pragma once

#include "codegen/program.h"
#include "passes/plan.h"

namespace sheaf::codegen {

Program lower(const passes::Plan& plan);

}  // namespace sheaf::codegen
