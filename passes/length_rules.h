// What each op does with a dim of which the end is padding, so that what comes before it comes out as without it.
#pragma once

#include "absl/status/statusor.h"
#include "ir/builder.h"
#include "passes/lengths.h"

namespace sheaf::passes {

/// Equation k of the function of the marks, without regions, for operands in b that may hold anything beyond the
/// extents they have, of which `values` has an i32[] each; so may the results. InvalidArgument says why there is no
/// rule.
absl::StatusOr<ir::Values> padded_equation(ir::Builder& b, const ir::Eqn& e, const LengthMarks& m, std::size_t k,
                                           ir::Values operands, const std::vector<Extent>& extents,
                                           const ir::Values& values);

}  // namespace sheaf::passes
