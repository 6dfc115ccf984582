// The reference interpreter: slow, obvious, the oracle for everything else.
#pragma once

#include <span>

#include "ir/graph.h"
#include "ir/literal.h"

namespace sheaf::ir {

/// Runs f on `inputs` (one literal per parameter, of its type).
Literals eval(const Function& f, std::span<const Literal> inputs);
/// Runs one equation.
Literals eval(const Eqn& e, std::span<const Literal> inputs);

}  // namespace sheaf::ir
