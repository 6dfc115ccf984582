// Calls of the host in a program that runs on every device of a mesh.
#pragma once

#include "ir/builder.h"
#include "ir/sharding.h"

namespace sheaf::passes {

/// The callback `e` on whole operands, called on one device, as often as the user wrote; all devices get its
/// results. Inside a shard_map that is one for each value that its operands may have along the axes they differ along,
/// and one for each device along `apart`, the axes along which not all may get to it. One that is pure runs on each. A
/// callback without results gives nothing: its token is null.
ir::Values emit_callback(ir::Builder& b, const ir::Eqn& e, const ir::MeshAtoms& mesh, const ir::Axes& apart,
                         ir::Values operands);

}  // namespace sheaf::passes
