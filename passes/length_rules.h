// What each op does with a dim of which the end is padding, so that what is within the length comes out as without it.
#pragma once

#include "absl/status/statusor.h"
#include "ir/builder.h"
#include "passes/lengths.h"

namespace sheaf::passes {

/// Equation k of the function of the marks, without regions, for operands in b that may hold anything beyond the
/// lengths, of which there is one i32[] each; so may the results. InvalidArgument says why there is no rule.
absl::StatusOr<ir::Values> padded_equation(ir::Builder& b, const ir::Eqn& e, const LengthMarks& m, std::size_t k,
                                           ir::Values operands, const ir::Values& lengths);

}  // namespace sheaf::passes
