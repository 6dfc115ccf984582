// The program transforms as passes, with the choices a command line does not make: all differentiable parameters, a new
// leading axis of size 3.
#include "passes/pass.h"

#include <algorithm>

#include "ir/op.h"
#include "ir/ops/attrs.h"
#include "passes/memory.h"
#include "passes/transforms.h"

namespace sheaf::passes {

using namespace ir;

namespace {

Mask differentiable(const std::vector<Type>& types) {
  Mask m;
  for (Type t : types) m.push_back(is_differentiable(t.dtype()));
  return m;
}

FunctionRef run_jvp(const FunctionRef& f) { return jvp(f, differentiable(f->param_types())).function; }
FunctionRef run_primal(const FunctionRef& f) { return linearize(f, differentiable(f->param_types())).primal; }
FunctionRef run_linear(const FunctionRef& f) { return linearize(f, differentiable(f->param_types())).linear; }
FunctionRef run_backward(const FunctionRef& f) { return vjp(f, differentiable(f->param_types())).backward; }
FunctionRef run_grad(const FunctionRef& f) { return value_and_grad(f, differentiable(f->param_types())); }
FunctionRef run_transpose(const FunctionRef& f) {
  return transpose(f, differentiable(f->param_types()), differentiable(f->result_types())).function;
}
FunctionRef run_batch(const FunctionRef& f) { return batch(f, std::vector<int>(f->params().size(), 0), 3).function; }
FunctionRef run_memory(const FunctionRef& f) { return assign_memory(f, {}).function; }

constexpr Pass kTransforms[] = {
    {"jvp", "forward derivative in every differentiable parameter", run_jvp},
    {"linearize", "primal half of linearisation: results and residuals", run_primal},
    {"linear", "linear half of linearisation: residuals and tangents to tangents", run_linear},
    {"transpose", "transpose of a function linear in every differentiable parameter", run_transpose,
     Takes::linear_equations},
    {"backward", "reverse derivative: residuals and cotangents to cotangents", run_backward},
    {"grad", "value and gradient of a scalar function", run_grad, Takes::scalar_equations},
    {"batch", "a new leading axis of size 3 on every parameter", run_batch},
    {"memory", "arena offsets of a scheduled function", run_memory, Takes::scheduled_kernels},
};

bool is_kernel(const Eqn* e) { return e->op == &ops::kernel; }
bool is_scheduled(const Eqn* e) { return is_kernel(e) && e->attrs<ops::Kernel>().schedule != Schedule::none; }
bool is_constant(const Eqn* e) { return e->op == &ops::constant; }

template <class Claim>
bool all_but_constants(const Function& f, Claim claim) {
  return std::all_of(f.eqns().begin(), f.eqns().end(), [&](const Eqn* e) { return is_constant(e) || claim(e); });
}

bool is_scalar_float(const Function& f) {
  return f.results().size() == 1 && f.results()[0].rank() == 0 && is_float(f.results()[0].dtype());
}

}  // namespace

std::string why_not(const Pass& pass, const FunctionRef& f) {
  if (pass.takes == Takes::kernels) return all_but_constants(*f, is_kernel) ? "" : "it takes what fuse makes";
  if (pass.takes == Takes::scheduled_kernels)
    return all_but_constants(*f, is_scheduled) ? "" : "it takes what schedule makes";
  if (std::any_of(f->eqns().begin(), f->eqns().end(), is_kernel)) return "it takes programs that are not fused yet";
  if (pass.takes == Takes::scalar_equations && !is_scalar_float(*f)) return "the result must be one float scalar";
  if (pass.takes == Takes::linear_equations && !is_linear(f, differentiable(f->param_types())))
    return "the function is not linear in its differentiable parameters";
  return "";
}

std::span<const Pass> transform_passes() { return kTransforms; }

const Pass* find_pass(std::string_view name) {
  for (const std::span<const Pass> list : {pipeline_passes(), transform_passes()})
    for (const Pass& p : list)
      if (p.name == name) return &p;
  return nullptr;
}

}  // namespace sheaf::passes
