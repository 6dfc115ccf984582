// What with_sharding says, before propagation: wanted results become constraints, and a value that a chain of
// constraints was put on is read at the chain's end.
#pragma once

#include <optional>
#include <vector>

#include "ir/graph.h"
#include "ir/sharding.h"

namespace sheaf::passes {

/// The equation with operands and regions in b, and results of these types.
ir::Values emit_typed(ir::Builder& b, const ir::Eqn& e, ir::Values operands, std::vector<ir::FunctionRef> regions,
                      const std::vector<ir::Type>& types);

/// v as a with_sharding of the mesh's axes says.
ir::Value constrained(ir::Builder& b, ir::Value v, ir::Mesh mesh, const ir::Spec& spec, ir::Type type);

/// f with a constraint on each result that must lie somewhere; those that are none, or beyond the list, lie as it
/// comes.
ir::FunctionRef with_wanted(const ir::FunctionRef& f, const std::vector<std::optional<ir::Spec>>& wanted);

/// x -> a -> b, each read by the next constraint alone: equations after b that read x read b, the last word on it.
ir::FunctionRef with_chains_read_at_end(const ir::FunctionRef& f);

}  // namespace sheaf::passes
