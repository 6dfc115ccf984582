// Which equations share a kernel: the decision half of fusion. passes/fuse.cpp writes it down as a plan.
#pragma once

#include <absl/container/flat_hash_set.h>

#include <vector>

#include "ir/graph.h"
#include "ir/target.h"

namespace sheaf::passes {

/// Equations that are computed together, in the order of the program; none, if the group went into a later one.
struct Group {
  std::vector<const ir::Eqn*> members;
  const ir::Eqn* hero = nullptr;  // whose line the kernel carries
  ir::Values stored;              // what other groups read, or the program returns
};

struct Grouping {
  std::vector<Group> groups;   // each reads earlier groups only
  ir::ValueTable<int> group;   // of each value; -1: made again by whoever reads it
  absl::flat_hash_set<ir::Value> made_again = {};  // by other groups than theirs, too
};

Grouping group_equations(const ir::Function& f, const ir::Target& target);

}  // namespace sheaf::passes
