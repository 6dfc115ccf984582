// Short rows made again: what is made of a few neighbours each is seldom worth storing where many rows lie side by
// side.
#pragma once

#include <absl/functional/function_ref.h>

#include "ir/graph.h"

namespace sheaf::passes {

/// Whether a group whose reductions are of a few elements each may be made again by e, at every element that e reads:
///   first = min(where(x == max, order, 4)) over 4; y = where(order == first, dy, 0)     f32[.., 32, 4]
///   e = transpose(y) + z     f32[.., 4, .., 32]
/// As e goes along its last dim, y would be stored and read four apart, by vectors of four; but x, where e reads it,
/// lies side by side. So that is asked for, that each element of e has a row of its own, and that rows are cheap.
/// `is_made`: what is computed in e's place, of its operands.
bool may_make_rows_again(const ir::Eqn& e, absl::FunctionRef<bool(ir::Value)> is_made);

}  // namespace sheaf::passes
