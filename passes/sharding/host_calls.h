// Calls of the host in a program that runs on every device of a mesh.
#pragma once

#include "ir/builder.h"
#include "ir/sharding.h"

namespace sheaf::passes {

/// The callback `e` on whole operands, called on the first device alone, as often as the user wrote; all devices get
/// its results. One that is pure runs on each. A callback without results gives nothing: its token is null.
ir::Values emit_callback(ir::Builder& b, const ir::Eqn& e, const ir::MeshAtoms& mesh, ir::Values operands);

}  // namespace sheaf::passes
