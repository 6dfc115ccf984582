// Which steps of a plan run while a collective is under way: it starts where it stands and is waited for where its
// result is read. Invariant: memory plan and code generation go by the same answer.
#pragma once

#include <vector>

#include "ir/graph.h"

namespace sheaf::passes {

/// Per equation of a plan or of a region in it, by number: of a collective, the equation before which it must be done,
/// the first that reads its result or is the next collective over the same axes, or the number of equations if there
/// is none; of others -1.
std::vector<int> done_before(const ir::Function& f);

}  // namespace sheaf::passes
