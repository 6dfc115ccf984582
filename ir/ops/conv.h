// What a convolution's sheet and its form as a dot product share.
#pragma once

#include "ir/ops/slide.h"

namespace sheaf::ir::ops {

/// The slides of rhs over lhs, one per spatial dim.
Slides slides_of(const Conv& attrs, Type lhs, Type rhs);

/// The lists by spatial dim, left empty where they say nothing.
void set_slides(Conv& attrs, const Slides& slides);

/// Dim d as [parts, n / parts].
Value split(Value x, std::int64_t d, std::int64_t parts);

/// True for a convolution of an lhs with zeros between its elements that is better done as several without.
bool is_spread(const Eqn& e);
Value expand_spread(Builder& b, const Eqn& e, Value lhs, Value rhs);

/// The convolution `e` of other operands, as a dot product of every window of the padded lhs with rhs.
Values expand_conv(Builder& b, const Eqn& e, const Values& operands);

}  // namespace sheaf::ir::ops
