// Reductions down columns: over the first dims of an operand, but not over all.
#pragma once

#include <cstdint>
#include <vector>

namespace sheaf::ir {

/// Whether dims `reduced`, ascending, of `rank` dims are the first ones and not all.
inline bool are_leading(const std::vector<std::int64_t>& reduced, std::size_t rank) {
  for (std::size_t i = 0; i < reduced.size(); ++i)
    if (reduced[i] != static_cast<std::int64_t>(i)) return false;
  return !reduced.empty() && reduced.size() < rank;
}

}  // namespace sheaf::ir
