// Linearisation and what follows from it. linearize = jvp, then partial evaluation with the primals known; vjp =
// linearize, then transpose; the gradient seeds vjp with one.
#include "ir/builder.h"
#include "ir/manual.h"
#include "ir/op.h"
#include "passes/emit.h"
#include "passes/memo.h"
#include "passes/partial_eval.h"
#include "passes/transforms.h"

namespace sheaf::passes {

using namespace ir;

namespace {

Mask differentiable(const std::vector<Type>& types) {
  Mask m;
  for (Type t : types) m.push_back(is_differentiable(t.dtype()));
  return m;
}

}  // namespace

Linearized linearize(const FunctionRef& f, const Mask& wrt) {
  const Memo::Scope scope;
  const Mask out = differentiable(f->result_types());
  const Jvp forward = jvp(f, wrt, out);
  const std::size_t num_results = f->results().size(), num_params = f->params().size();
  Mask known(num_params, true), tangent_results(num_results, false);
  known.resize(forward.function->params().size(), false);
  tangent_results.resize(forward.function->results().size(), true);
  const PartialEval p = partial_eval(forward.function, known, tangent_results);
  for (std::size_t j = 0; j < num_results; ++j) SHEAF_CHECK(p.known_out[j], "a primal result depends on a tangent");

  // The primal half returns every residual, inputs too, so that callers need not look where one comes from.
  Builder b(f->name() + ".primal");
  const Values params = clone_params(b, *f, Mask(num_params, true));
  const Values outs = inline_into(b, *p.known, params);
  Values results(outs.begin(), outs.begin() + static_cast<std::ptrdiff_t>(num_results));
  for (const Residual& r : p.residuals) results.push_back(r.is_input ? params[r.index] : outs[r.index]);
  return {.primal = b.finish(std::move(results)),
          .linear = p.unknown,
          .out = out,
          .num_residuals = static_cast<int>(p.residuals.size())};
}

namespace {

// The transposed linear half: residuals, then cotangents of the results in `ct` -> cotangents of the tangents.
FunctionRef backward(const Linearized& l, const Mask& ct) {
  Mask linear(l.num_residuals, false);
  linear.resize(l.linear->params().size(), true);
  return transpose(l.linear, linear, ct, true).function;
}

}  // namespace

Vjp vjp(const FunctionRef& f, const Mask& wrt) {
  const Memo::Scope scope;
  const Linearized l = linearize(f, wrt);
  return {.forward = l.primal,
          .backward = backward(l, Mask(l.linear->results().size(), true)),
          .out = l.out,
          .num_residuals = l.num_residuals};
}

FunctionRef value_and_grad(const FunctionRef& f, const Mask& wrt) {
  const Memo::Scope scope;
  const Linearized l = linearize(f, wrt);
  Mask ct(l.linear->results().size(), false);
  ct[0] = true;
  Builder b(f->name() + ".grad");
  const Values params = clone_params(b, *f, Mask(f->params().size(), true));
  const Values outs = inline_into(b, *l.primal, params);
  const auto split = outs.begin() + static_cast<std::ptrdiff_t>(f->results().size());
  b.set_loc(f->results()[0].eqn() ? f->results()[0].eqn()->loc : Loc{}, "transpose");
  const Value seed = b.full(cotangent_type(f->results()[0].type()), 1);
  const Values gradients = inline_into(b, *backward(l, ct), Values(split, outs.end()) + Values{seed});
  return b.finish(Values(outs.begin(), split) + gradients);
}

}  // namespace sheaf::passes
