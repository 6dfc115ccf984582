// Collectives over a named axis of vmap: what one example of a batch can know of the others.
//   vmap([](Array x) { return x - pmean(x, "batch"); }, {.axis_name = "batch"})
// All of them throw TypeError where no enclosing vmap has that axis. Names are found innermost first.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "sheaf/ops.h"

namespace sheaf {

/// Sum, mean, largest and smallest over all examples; the same for each. x: T[..] -> T[..]. The cotangent of psum is
/// the sum of all examples' cotangents; extremes share it among those that attain them.
Array psum(Operand x, const std::string& axis);
Array pmean(Operand x, const std::string& axis);
Array pmax(Operand x, const std::string& axis);
Array pmin(Operand x, const std::string& axis);
/// All examples' values stacked along a new dim. x: T[..] -> T[.., size, ..].
Array all_gather(Operand x, const std::string& axis, int dim = 0);
/// Example `second` gets the value of example `first`; zeros where nobody sends. Throws ShapeError where an index is
/// out of range or a target appears twice.
Array ppermute(Operand x, const std::string& axis, const std::vector<std::pair<std::int64_t, std::int64_t>>& pairs);
/// Row i along dim `split`, whose size must be the axis's, goes to example i; what each gets is stacked along `concat`.
Array all_to_all(Operand x, const std::string& axis, int split, int concat);
/// The example's position along the axis: i32[].
Array axis_index(const std::string& axis, Loc loc = Loc::current());
/// How many examples there are.
std::int64_t axis_size(const std::string& axis, Loc loc = Loc::current());

}  // namespace sheaf
