// Which layouts a contraction can give its result in as fast as in its own, and what its operands are like.
#pragma once

#include <absl/functional/function_ref.h>

#include "ir/graph.h"

namespace sheaf::passes {

/// True if `dot` may as well write its result as `transpose`, an equation that reads it, has it: rows and columns stay
/// runs of dims, and the columns, along which vectors run, stay innermost. A dot without columns may instead have the
/// innermost dim of its batch there, where both operands have it. `is_stored`: whether a value lies in memory by
/// itself, and not as a view.
bool keeps_columns(const ir::Eqn& dot, const ir::Eqn& transpose, absl::FunctionRef<bool(ir::Value)> is_stored);

/// Windows of fewer elements than there are windows: those that meet a kernel, not those that make its gradient.
bool has_short_windows(ir::Value v);

}  // namespace sheaf::passes
