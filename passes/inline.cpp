// Inlining of calls. It runs once, after all transforms: calls are what makes equal layers be transformed once. Kernels of
// a plan are opened too, so that the dump of any stage can go through the pipeline again.
#include "ir/builder.h"
#include "ir/ops/attrs.h"
#include "ir/op.h"
#include "passes/emit.h"

namespace sheaf::passes {

using namespace ir;

namespace {

bool is_opened(const Eqn& e) { return e.op->callee_by_name || e.op == &ops::kernel; }

Values expand(Builder& b, const Function& f, const Values& args) {
  ValueTable<Value> map(f);
  for (std::size_t i = 0; i < args.size(); ++i) map[f.params()[i]] = args[i];
  for (const Eqn* e : f.eqns()) {
    Values operands;
    for (Value v : e->operands) operands.push_back(map[v]);
    b.set_loc(e->loc, e->how);
    const Values outs = is_opened(*e) ? expand(b, *e->regions[0], operands) : b.clone(*e, std::move(operands));
    for (int j = 0; j < e->num_out(); ++j) map[e->out(j)] = outs[j];
  }
  Values results;
  for (Value r : f.results()) results.push_back(map[r]);
  return results;
}

}  // namespace

FunctionRef inline_calls(const FunctionRef& f) {
  bool any = false;
  for (const Eqn* e : f->eqns()) any |= is_opened(*e);
  if (!any) return f;
  Builder b(f->name());
  const Values params = clone_params(b, *f, Mask(f->params().size(), true));
  return b.finish(expand(b, *f, params));
}

}  // namespace sheaf::passes
