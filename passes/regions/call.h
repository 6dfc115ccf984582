// Rules of an op with one region whose parameters are the operands: shared by call, checkpoint and custom rules.
#pragma once

#include "passes/regions/arrange.h"

namespace sheaf::passes {

Dual jvp_of_region(ir::Builder& b, const ir::Eqn& e, const ir::Values& operands, const ir::Values& tangents);
ir::Values transpose_region(ir::Builder& b, const ir::Eqn& e, const ir::Values& operands, const ir::Values& cts,
                            std::shared_ptr<const void> attributes);
std::vector<ir::Batched> batch_region(ir::Builder& b, const ir::Eqn& e, std::span<const ir::Batched> in,
                                      const MappedAxis& axis);
Shrunk shrink_region(const ir::Eqn& e, const Mask& used);

/// Partial evaluation of `results = f(operands)`.
void split_call(Halves& halves, const ir::FunctionRef& f, const ir::Values& operands, const ir::Values& results,
                const Mask& known);
/// Partial evaluation of an equation that is not to be split.
void all_unknown(Halves& halves, const ir::Eqn& e, const Mask& known);

}  // namespace sheaf::passes
