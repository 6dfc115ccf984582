// Loops and branches, made smaller: what need not be decided or done at each step is done once.
#pragma once

#include "ir/graph.h"

namespace sheaf::passes {

ir::FunctionRef loops(const ir::FunctionRef& f);

}  // namespace sheaf::passes
