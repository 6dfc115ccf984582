// Loops and branches, made smaller: what need not be decided or done at each step is done once.
#pragma once

#include "ir/builder.h"

namespace sheaf::passes {

ir::FunctionRef loops(const ir::FunctionRef& f);

/// RegionRules::improve of the ops they name.
ir::Values improve_scan(ir::Builder& b, const ir::Eqn& e, std::vector<ir::FunctionRef> regions, ir::Values operands);
ir::Values improve_while(ir::Builder& b, const ir::Eqn& e, std::vector<ir::FunctionRef> regions, ir::Values operands);
ir::Values improve_cond(ir::Builder& b, const ir::Eqn& e, std::vector<ir::FunctionRef> regions, ir::Values operands);

}  // namespace sheaf::passes
