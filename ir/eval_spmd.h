// The reference for programs on several devices: all devices of a mesh in lockstep, each equation by the interpreter,
// each collective across the devices in the order of their group. Slow, obvious, and free of threads and memory plans.
#pragma once

#include <absl/status/statusor.h>

#include <span>
#include <vector>

#include "ir/graph.h"
#include "ir/literal.h"
#include "ir/sharding.h"

namespace sheaf::ir {

/// Runs the program that every device of `local->mesh()` runs; one list of inputs and of results per device. Devices
/// that meet in a collective without each other, one having left a loop or taken another branch, are our bug.
std::vector<Literals> eval_spmd(const FunctionRef& local, std::span<const Literals> inputs);

/// What each device holds of a value. Of an unreduced one the first device of each group holds it all and the others
/// what changes nothing; of an extreme, or a logical kind, all hold it.
Literals shard(const Literal& global, const MeshAtoms& atoms, const Sharding& sharding);
/// The value of which the devices hold `parts`; InvalidArgument where two that should hold the same do not.
absl::StatusOr<Literal> unshard(std::span<const Literal> parts, Type global, const MeshAtoms& atoms,
                                const Sharding& sharding);

}  // namespace sheaf::ir
