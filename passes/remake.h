// What a group need not store, because it is made of a few operations from what lies in memory anyway: whoever reads it
// makes it again. Most of what a forward pass keeps for its derivative is of that kind.
#pragma once

#include "ir/graph.h"
#include "passes/grouping.h"

namespace sheaf::passes {

/// Takes what may be made again out of what groups store, and out of groups what nobody needs then:
///   x = dot(..), a = 0.5 * x, t = tanh(x), b = 1 + t, c = b * (1 - t)     stores x, a, b, c
///                                                                         stores x, t
/// Invariant: no group reads more bytes than before, and no value in memory is needed for longer than one it replaces.
void make_again(const ir::Function& f, Grouping& grouping);

}  // namespace sheaf::passes
