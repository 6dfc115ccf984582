// Splitting a function into what some parameters determine and the rest: the engine of linearize and of transposition.
#pragma once

#include "passes/transforms.h"

namespace sheaf::passes {

/// Where the unknown half finds a known value: a known parameter of the function, or a result of the known half.
struct Residual {
  bool is_input = false;
  int index = 0;
};

/// known: known parameters -> known results (those with known_out), then the residuals that are not inputs.
/// unknown: residuals, then unknown parameters -> the other results.
struct PartialEval {
  ir::FunctionRef known, unknown;
  Mask known_out;
  std::vector<Residual> residuals;
};

/// `known` per parameter; results in `force_unknown` come from the unknown half even where known.
PartialEval partial_eval(const ir::FunctionRef& f, const Mask& known, const Mask& force_unknown = {});

}  // namespace sheaf::passes
