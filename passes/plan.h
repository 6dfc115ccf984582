// `Plan`: what passes hand to codegen. A function in the plan dialect: every equation is a `kernel` (one fusion group,
// its body the region, its attributes the template that builds it and the arena offsets of its results) or a
// `constant`; each result of the function is the result of exactly one kernel. Printable, re-parsable and runnable as
// any other IR.
#pragma once

#include <string>
#include <vector>

#include "ir/graph.h"

namespace sheaf::passes {

struct Plan {
  ir::FunctionRef function;
  ir::FunctionRef optimised;  // the program before fusion made kernels of it
  std::int64_t arena_bytes = 0;
  // Of a program on a mesh: the whole parameters and results, with the axes that their parts lie on. Else empty.
  std::vector<ir::Type> in_types = {}, out_types = {};
  std::vector<int> alias;  // per result: the donated parameter whose buffer it takes, or -1
};

}  // namespace sheaf::passes
