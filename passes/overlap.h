// The order of a plan's steps, such that other work is done while collectives are under way. Invariant: the order is a
// function of the plan, its mesh and the profile alone, the same on every device; without collectives it is kept.
#pragma once

#include "ir/graph.h"
#include "passes/sharding/profile.h"

namespace sheaf::passes {

/// f, a plan on a mesh, in an order in which collectives start early and are awaited late (passes/flights.h), as far as
/// that hides the time they take and the arena stays within the devices' memory. Its kernels are then `in_order`.
ir::FunctionRef overlap(const ir::FunctionRef& f, const Profile& profile);
/// With the profile chosen for the target.
ir::FunctionRef overlap(const ir::FunctionRef& f, const ir::Target& target);

}  // namespace sheaf::passes
