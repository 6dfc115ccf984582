// Program transforms: Function -> Function, each in a file of its own. Zeros are absence: a mask says which tangents
// and cotangents exist, and integers and bools never have one. Algorithms through regions: docs/design-notes.md.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ir/graph.h"
#include "ir/target.h"

namespace sheaf::passes {

using Mask = std::vector<bool>;

/// Forward derivative. Parameters: primals, then the tangents of parameters with `nonzero`. Results: primals, then the
/// tangents of results with `out`; `instantiate` forces those (differentiable) results to have one.
struct Jvp {
  ir::FunctionRef function;
  Mask out;
};
Jvp jvp(const ir::FunctionRef& f, const Mask& nonzero, const Mask& instantiate = {});

/// Primal and linear halves. primal: parameters -> results, then residuals. linear: residuals, then tangents of the
/// parameters in `wrt` -> tangents of the results in `out` (every differentiable result; zeros are instantiated).
struct Linearized {
  ir::FunctionRef primal, linear;
  Mask out;
  int num_residuals = 0;
};
Linearized linearize(const ir::FunctionRef& f, const Mask& wrt);

/// Transpose of f in the parameters in `linear`. Parameters: the others, then cotangents of results with `ct`.
/// Results: cotangents of the linear parameters with `out`; `instantiate` forces all.
struct Transposed {
  ir::FunctionRef function;
  Mask out;
};
Transposed transpose(const ir::FunctionRef& f, const Mask& linear, const Mask& ct, bool instantiate = false);

/// Whether every equation of f is linear in what depends on the parameters in `linear`; regions are believed to be.
bool is_linear(const ir::FunctionRef& f, const Mask& linear);

/// Reverse derivative in two halves. forward: parameters -> results, then residuals. backward: residuals, then
/// cotangents of the results in `out` -> cotangents of the parameters in `wrt` (all instantiated).
struct Vjp {
  ir::FunctionRef forward, backward;
  Mask out;
  int num_residuals = 0;
};
Vjp vjp(const ir::FunctionRef& f, const Mask& wrt);

/// Parameters -> all results, then the gradient of result 0 (a float scalar) with respect to each parameter in `wrt`.
ir::FunctionRef value_and_grad(const ir::FunctionRef& f, const Mask& wrt);

/// The axis that a function is vectorised over, by the name its collectives call it; empty: none. A shard_map spreads
/// the examples over the mesh axis `spread`, if there is one; in its region what is batched differs along `varying`.
struct MappedAxis {
  MappedAxis(std::int64_t n, std::string called = "", ir::Axes over = {})
      : size(n), name(std::move(called)), spread(std::move(over)) {}  // NOLINT: most have no name
  std::int64_t size;
  std::string name;
  ir::Axes spread, varying = {};
  bool operator==(const MappedAxis&) const = default;
  template <typename H>
  friend H AbslHashValue(H h, const MappedAxis& a) {
    return H::combine(std::move(h), a.size, a.name, a.spread, a.varying);
  }
};

/// Vectorises over a new axis of `size`: in_dims[k] is its position in parameter k, -1 when shared. The results carry
/// it at out_dims[j], or -1 where none of its inputs is batched.
struct Batch {
  ir::FunctionRef function;
  std::vector<int> out_dims;
};
Batch batch(const ir::FunctionRef& f, const std::vector<int>& in_dims, const MappedAxis& axis);
/// As `batch`, with the axis at out_dims[j] of result j (moved or broadcast there); -1 requires an unbatched result.
ir::FunctionRef vmap(const ir::FunctionRef& f, const std::vector<int>& in_dims, const std::vector<int>& out_dims,
                     const MappedAxis& axis);

/// Whether a collective of f goes over the named axis.
bool goes_over(const ir::Function& f, std::string_view axis);

/// Only the results in `used` are wanted; equations and parameters they do not need go (parameters kept: `kept`).
struct Dce {
  ir::FunctionRef function;
  Mask kept;
};
Dce dce(const ir::FunctionRef& f, const Mask& used);

/// Calls, checkpoints and custom rules replaced by the regions that compute their values, kernels of a plan by theirs.
ir::FunctionRef inline_calls(const ir::FunctionRef& f);
/// That, and ops that stand for others replaced by the equations they stand for.
ir::FunctionRef expand_ops(const ir::FunctionRef& f);
/// Of them only those that the target has no kernel for.
ir::FunctionRef expand_ops_for(const ir::FunctionRef& f, const ir::Target& target);

}  // namespace sheaf::passes
