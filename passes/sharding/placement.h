// The part of two shardings in which they differ, in small numbers: units, runs of atoms that move as one, and where
// each is. What both agree on up to a unit is left out. Invariant: a placement names each unit once.
#pragma once

#include <cstdint>
#include <vector>

#include "ir/sharding.h"

namespace sheaf::passes {

/// Units per dim, major to minor, and those unreduced, ascending. Units that are in neither split nothing.
struct Placement {
  std::vector<std::vector<int>> dims;
  std::vector<int> unreduced;
  bool operator==(const Placement&) const = default;
};

struct Difference {
  Difference(const Shape& dims, const ir::MeshAtoms& atoms, const ir::Sharding& from, const ir::Sharding& to);

  int count() const { return static_cast<int>(units.size()); }
  ir::Sharding sharding(const Placement& placement) const;
  bool divides(const Placement& placement) const;
  std::int64_t size(const std::vector<int>& of) const;
  /// In how many parts the placement splits.
  std::int64_t ways(const Placement& placement) const;
  std::int64_t extent(int dim) const { return dims[dim]; }

  Shape dims;                // of what is left to be split
  std::vector<ir::Atoms> units;  // the atoms of each
  std::vector<std::int64_t> sizes;
  ir::Sharding common;  // what both begin with
  std::int64_t common_ways = 1;
  Placement from, to;
};

}  // namespace sheaf::passes
