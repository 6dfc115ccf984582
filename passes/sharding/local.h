// One device's part of one equation, emitted: the same op on local shapes where that is right, else what the op says.
#pragma once

#include "ir/builder.h"
#include "passes/sharding/choice.h"

namespace sheaf::passes {

/// What the device of `b`'s program computes for `e` split as `choice` says. `operands` lie as operand_layout says, the
/// results as result_layout does.
ir::Values emit_local(ir::Builder& b, const ir::Eqn& e, const ir::Factors& f, const Choice& choice,
                      const ir::MeshAtoms& mesh, ir::Values operands);

/// x on the first of the devices that differ in these atoms, zeros on the others: the terms of a sum that is x.
ir::Value on_first(ir::Builder& b, ir::Value x, const ir::Atoms& atoms, const ir::MeshAtoms& mesh);

/// bool[]: whether this is the first of the devices that differ in these atoms.
ir::Value is_first(ir::Builder& b, const ir::Atoms& atoms, const ir::MeshAtoms& mesh);

}  // namespace sheaf::passes
