// Local rewriting by the equations of simplify_rules.cpp.
#pragma once

#include <span>

#include "ir/rewrite.h"

namespace sheaf::passes {

/// All rules, in the order they are tried.
std::span<const ir::Rule> simplify_rules();

/// Rewrites every equation until no rule applies; one walk, since operands are rewritten before their users.
ir::FunctionRef simplify(const ir::FunctionRef& f);

/// Elementwise equations over rank-0 constants become constants, by the same scalar DAG the kernels run.
ir::FunctionRef fold(const ir::FunctionRef& f);

/// Emits every equation again: equal ones become one.
ir::FunctionRef cse(const ir::FunctionRef& f);

}  // namespace sheaf::passes
