// Where sums over devices are made at least cost. A sum may wait while what reads it is linear in it; every way on
// which it comes to somebody who needs it whole has to pass a place where it is made. That is a minimum cut (L. R. Ford
// and D. R. Fulkerson, Maximal Flow Through a Network, 1956).
#pragma once

#include <cstdint>
#include <vector>

namespace sheaf::passes {

/// A value that is a sum of what devices hold.
struct UnmadeSum {
  std::int64_t cost = 0;  // of making it here, in picoseconds
  bool begins = false;  // it holds terms that none of its operands does
  bool is_taken_whole = false;  // by somebody
  std::vector<int> flows_to = {};  // values that are sums of it
};

/// Per value, whether it is to be made there. Of equally cheap ways the one that makes them first.
std::vector<bool> cheapest_cut(const std::vector<UnmadeSum>& sums);

}  // namespace sheaf::passes
