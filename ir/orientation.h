// Eigenvectors and singular vectors are given up to their sign. One rule chooses it, the same for every algorithm: the
// first component of at least 0.3 times the largest magnitude is positive, so that ties of magnitude do not decide.
#pragma once

#include <cmath>
#include <cstdint>

namespace sheaf::ir {

/// Whether the vector of `count` components `at(i)` has to be negated.
template <class At>
bool is_turned(std::int64_t count, At at) {
  double largest = 0;
  for (std::int64_t i = 0; i < count; ++i) largest = std::fmax(largest, std::fabs(static_cast<double>(at(i))));
  for (std::int64_t i = 0; i < count; ++i)
    if (std::fabs(static_cast<double>(at(i))) >= 0.3 * largest) return at(i) < 0;
  return false;
}

}  // namespace sheaf::ir
