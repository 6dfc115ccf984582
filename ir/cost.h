// What a program costs: read off types, lowerings and scalar DAGs, so an op says something of its own only where its
// lowering does not tell (OpDef::cost). Invariant: a program's cost is the sum over its equations, and that of an
// equation with regions is theirs, as often as they run.
#pragma once

#include "ir/graph.h"

namespace sheaf::ir {

/// Operations on elements (a fused multiply-add is two), bytes read and written, and calls of the functions of
/// ir/scalar_functions.cpp (exp, tanh, pow, ..), whose insides are not counted as operations.
struct Work {
  double flops = 0;
  double bytes = 0;
  double transcendentals = 0;
};

/// Of one run: a scan counts its length, a while its max_trips, or one trip if it has none, a cond its dearest branch.
Work work_of(const Function& f);
Work work_of(const Eqn& e);

}  // namespace sheaf::ir
