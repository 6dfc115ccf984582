// Schedules: which template builds each kernel of a plan, and with which parameters. Code generation obeys.
#pragma once

#include "ir/graph.h"

namespace sheaf::passes {

/// f, a function in the plan dialect, with the schedule of every kernel chosen; what it held before is forgotten.
ir::FunctionRef schedule(const ir::FunctionRef& f);

}  // namespace sheaf::passes
