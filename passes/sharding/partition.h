// The program of one device: every value becomes this device's part of it, in a plain type, and what the parts of
// others are needed for becomes a collective, on the line of the equation that needs it. Invariant: no layout is left
// in any type, and no with_sharding, shard_map or pcast.
#pragma once

#include <cstdint>

#include "ir/graph.h"
#include "passes/sharding/profile.h"

namespace sheaf::passes {

struct PartitionWork {
  std::int64_t equations = 0;  // decided
  std::int64_t assignments = 0;  // tried, in search of the best for each
  std::int64_t placements = 0;  // looked at, in search of ways from one layout to another
};

struct PartitionOptions {
  const Profile* profile = nullptr;  // of the machine; null: the one chosen for CPUs
  PartitionWork* work = nullptr;  // filled in
};

/// f is on a mesh, and its types say where its values lie. The results lie as theirs say.
ir::FunctionRef partition(const ir::FunctionRef& f, const PartitionOptions& options = {});

}  // namespace sheaf::passes
