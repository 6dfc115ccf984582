// Guards of the lanes of a batch that did not take a branch: they compute with whatever is there, and their derivative
// may be infinite; a guard keeps cotangents of such lanes (0 * inf) from reaching the operands. What watches the values
// of a program would see those of such lanes, so it is left out.
#pragma once

#include "ir/ops/rules.h"
#include "passes/emit.h"

namespace sheaf::passes {

/// Float operands are guarded: per-example ones, and shared ones of rank 0 or 1. A shared matrix is not: its guard
/// would need a copy per example (docs/regions.md).
inline bool is_guarded(const ir::Batched& x) {
  return is_differentiable(x.value.dtype()) && (x.dim >= 0 || x.value.rank() <= 1);
}

/// x [size, ...] itself, whose cotangent is zero where `mine` [size] does not hold.
inline ir::Value guarded(ir::Builder& b, ir::Value mine, ir::Value x) {
  if (!is_differentiable(x.dtype())) return x;
  const ir::Value mask = ir::ops::broadcast_to(mine, x.dims(), {0});
  return b.emit(ir::ops::select, {mask, x, b.emit(ir::ops::stop_gradient, {x})});
}

/// f without the callbacks that only watch (ir/callbacks.h), in its regions too.
ir::FunctionRef without_watchers(const ir::FunctionRef& f);

}  // namespace sheaf::passes
