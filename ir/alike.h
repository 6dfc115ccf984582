// Functions that compute the same by the same equations, whatever they are named and wherever they were written. What
// one of them was made into does for the other.
#pragma once

#include <cstddef>

#include "ir/graph.h"

namespace sheaf::ir {

/// Of functions that are alike, the same.
std::size_t hash_of(const Function& f);
/// Parameters of the same types, the same equations in the same order, the same results; regions as well.
bool are_alike(const Function& a, const Function& b);

}  // namespace sheaf::ir
