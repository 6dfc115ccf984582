// Small pieces all transforms share.
#pragma once

#include <absl/functional/function_ref.h>

#include <functional>
#include <optional>

#include "ir/builder.h"
#include "ir/ops/attrs.h"
#include "passes/transforms.h"

namespace sheaf::passes {

/// What is emitted for an equation, given its operands in b: a value for each of its results.
using Step = absl::FunctionRef<ir::Values(ir::Builder& b, const ir::Eqn& e, ir::Values operands)>;
/// The equations of f, each as `step` emits it in b at the equation's line, with `args` for f's parameters; gives f's
/// results.
ir::Values emit_each(ir::Builder& b, const ir::Function& f, const ir::Values& args, Step step);
/// f made again with each equation as `step` emits it.
ir::FunctionRef remade(const ir::Function& f, Step step);

/// The equations of f, emitted in b with `args` for its parameters; gives f's results. Calls stay calls.
ir::Values inline_into(ir::Builder& b, const ir::Function& f, const ir::Values& args);

/// `call f(args)`.
ir::Values call(ir::Builder& b, const ir::FunctionRef& f, ir::Values args);

/// A plan with new attributes for every kernel; `change` is called in order.
struct PlannedKernel {
  ir::ops::Kernel attributes;
  ir::FunctionRef region;
};
ir::FunctionRef with_kernels(const ir::Function& plan, const std::function<PlannedKernel(const ir::Eqn&)>& change);
/// The body of a host step, with other regions.
ir::FunctionRef with_regions(const ir::Function& body, std::vector<ir::FunctionRef> regions);

/// True for an update of at most half of its operand: better done in place than by computing the whole again.
bool is_small_update(const ir::Eqn& e);

/// a + b, where either may be absent.
ir::Value add_any(ir::Value a, ir::Value b);

/// A fresh builder with f's parameters (names included) for which `keep` holds.
ir::Values clone_params(ir::Builder& b, const ir::Function& f, const Mask& keep, const char* suffix = "");

inline ir::Values operator+(ir::Values a, const ir::Values& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}
Mask operator!(Mask m);
int count(const Mask& m);
/// The entries of v where m holds.
template <class List>
List where(const List& v, const Mask& m) {
  List out;
  for (std::size_t i = 0; i < v.size(); ++i)
    if (m[i]) out.push_back(v[i]);
  return out;
}

/// A constant, or shape and dtype changes of constants: cheap to make again wherever it is needed.
bool is_constant_like(ir::Value v);
/// Makes a constant-like value again in b.
ir::Value rebuild_constant(ir::Builder& b, ir::Value v);

/// The regions of e after a pass.
std::vector<ir::FunctionRef> in_regions(const ir::Eqn& e,
                                        absl::FunctionRef<ir::FunctionRef(const ir::FunctionRef&)> pass);

/// Dim `from` of x at `to`, the others in order.
ir::Value move_dim(ir::Builder& b, ir::Value x, int from, int to);
/// x repeated along a new dim.
ir::Value insert_dim(ir::Builder& b, ir::Value x, int at, std::int64_t size);

}  // namespace sheaf::passes
