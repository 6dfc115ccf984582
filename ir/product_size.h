// From which size on NVIDIA's library does a product of matrices on a GPU: fusion leaves such a product alone, and code
// generation makes a call of it.
#pragma once

#include <algorithm>

namespace sheaf::ir {

/// Large enough that the library's kernels are faster than ours, not only harder to start. By shape alone, so that a
/// program is the same on every machine.
constexpr bool is_for_library(double batch, double rows, double columns, double terms) {
  constexpr double kLeastSide = 64, kLeastTerms = 32;
  constexpr double kLeastWork = 1 << 27;  // multiply-adds; some ten microseconds of a large GPU
  return std::min(rows, columns) >= kLeastSide && terms >= kLeastTerms && batch * rows * columns * terms >= kLeastWork;
}

}  // namespace sheaf::ir
