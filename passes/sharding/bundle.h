// Several collectives as one: the rows that a device sends to the others, or to all of them, lie side by side with
// those of the other members. Invariant: a member gets what it would have got alone, to the bit.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ir/builder.h"
#include "passes/sharding/profile.h"

namespace sheaf::passes {

/// Of a collective that takes a value: none of any other equation.
std::optional<CollectiveKind> collective_kind(const ir::Eqn& e);

/// Equal for collectives that can be one: of one op, dtype, set of axes, and reduction or pairs of devices. Gathers of
/// the backward pass are none of the forward pass.
std::string bundle_key(const ir::Eqn& e);

/// The results of the members, of one key, with these operands in b.
ir::Values emit_bundle(ir::Builder& b, const std::vector<const ir::Eqn*>& members, const ir::Values& operands);

}  // namespace sheaf::passes
