// What is cut off and put on again, before layouts are settled: arrays of one element more or less than a mesh divides
// would have to be whole on every device, a shift of an array that keeps its size takes a few rows from a neighbour.
#pragma once

#include "ir/graph.h"

namespace sheaf::passes {

/// Slices of slices or of padding, padding of slices, and slices joined with something become paddings and croppings
/// of what they are slices of. A program on no mesh stays as it is.
ir::FunctionRef shifts(const ir::FunctionRef& f);

}  // namespace sheaf::passes
