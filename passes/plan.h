// `Plan`: what passes hand to codegen. A function in the plan dialect: every equation is a `kernel` (one fusion group,
// its body the region, its attributes the template that builds it and the arena offsets of its results) or a
// `constant`; each result of the function is the result of exactly one kernel. Printable, re-parsable and runnable as
// any other IR.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ir/graph.h"
#include "ir/target.h"

namespace sheaf::passes {

/// A donated parameter whose buffer no result takes.
struct NotTaken {
  enum class Why : std::uint8_t { is_empty, no_result_is_as_large, results_took_others, is_read_too_late };
  int param = 0;
  Why why = Why::is_empty;
  int result = -1;  // is_read_too_late: the one that would have taken it, but for what reads it when that is written
  Loc reader = {};
};

struct Plan {
  ir::Target target = {};
  ir::FunctionRef function;
  ir::FunctionRef optimised;  // the program before fusion made kernels of it
  std::int64_t arena_bytes = 0;
  // Of a program on a mesh: the whole parameters and results, with the axes that their parts lie on. Else empty.
  std::vector<ir::Type> in_types = {}, out_types = {};
  std::vector<int> alias;  // per result: the donated parameter whose buffer it takes, or -1
  std::vector<NotTaken> not_taken = {};
};

}  // namespace sheaf::passes
