// Paths from one placement to another, move by move.
#pragma once

#include <optional>
#include <vector>

#include "passes/sharding/placement.h"
#include "passes/sharding/reshard.h"

namespace sheaf::passes {

struct Step {
  ReshardMove::Kind kind;
  Placement after;
};

struct Found {
  std::optional<std::vector<Step>> path;
  std::int64_t placements = 0;  // looked at
};

/// The cheapest path, and of equally cheap ones the one with the fewest collectives; `bytes` is what a device holds
/// while no unit splits it. None if there are more than some ten thousand placements to look at.
Found shortest_path(const Difference& difference, const ir::MeshAtoms& atoms, double bytes, const Profile& profile);

/// A path that takes what helps at once: one permutation where that is all, else sums, slices and all-to-alls to where
/// units end up, and gathers of what is in the way.
std::vector<Step> greedy_path(const Difference& difference);

}  // namespace sheaf::passes
