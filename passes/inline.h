// Expansion with exceptions (passes/transforms.h has the plain ones).
#pragma once

#include <span>

#include "ir/graph.h"

namespace sheaf::passes {

/// As expand_ops, but for these.
ir::FunctionRef expand_ops_but(const ir::FunctionRef& f, std::span<const ir::Op> kept);

}  // namespace sheaf::passes
