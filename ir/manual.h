// The four things a value can be along a manual axis, and how values of different kinds come together: what is the same
// on all devices becomes one that differs, or one with an unreduced cotangent, by a cast that is an equation; an
// unreduced sum meets only what a sum may be computed with part by part. Invariant: the cotangent of a value is along
// each axis what `cotangent_type` says, so that every sum over devices is taken where a cast is transposed, and once.
#pragma once

#include <absl/status/statusor.h>

#include <optional>
#include <string>
#include <vector>

#include "ir/graph.h"
#include "sheaf/along.h"

namespace sheaf::ir {

/// As all values outside of maps are.
bool are_invarying(const Values& values);
Along along(const Manual& m, const std::string& axis);
/// The axes of one kind (not invarying) become `to`, or join its set.
Manual with_axes(Manual m, const Axes& axes, Along to);

/// Of a cotangent: unreduced and reduced change places.
Type cotangent_type(Type t);
std::vector<Type> cotangent_types(std::vector<Type> types);

/// What values of both can be cast to. Nothing where one is unreduced along an axis and the other is not.
std::optional<Manual> common(const Manual& a, const Manual& b);

/// What the operands are to be cast to, and then the results of an equation without regions whose op has no rule of its
/// own: a value differs where an operand does.
struct Meeting {
  std::vector<Manual> operands;
  Manual results;
};
absl::StatusOr<Meeting> meet(const Eqn& e);

/// x as such a value, as far as casts that lose nothing make it one: along an axis where it is the same it may differ
/// or be reduced, where it is reduced it may differ, and a zero may be the sum of zeros.
Value casted(Value x, const Manual& wanted);

}  // namespace sheaf::ir
