// From where parameters lie to where every value lies: axes spread along the factors of ops, forward and backward,
// cheap ops first. Nothing is moved or computed differently; what does not agree is left to the partitioner. Invariant:
// what was given stays, no axis is twice in a value, and every split that was added divides its dim.
#pragma once

#include <string>
#include <vector>

#include "ir/graph.h"
#include "passes/sharding/projection.h"

namespace sheaf::passes {

struct PropagateOptions {
  Strategy strategy = Strategy::aggressive;
  bool by_op = true;  // elementwise ops and reshapes first, then what ops pass through, reductions and broadcasts last
  bool explains = false;
};

struct Propagated {
  ir::FunctionRef function;
  std::int64_t visits = 0;  // of equations and edges
  std::vector<std::string> reasons = {};  // if asked for: a line for each split dim of a value, in program order
};

/// f, which is on a mesh and whose parameters' types say where they lie, with types that say it of all values, in
/// regions too. A result on a part of an axis goes through a with_sharding onto whole ones. f itself where it has no
/// mesh.
Propagated propagate(const ir::FunctionRef& f, const PropagateOptions& options);
ir::FunctionRef propagate(const ir::FunctionRef& f);

}  // namespace sheaf::passes
