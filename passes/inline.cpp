// What exists for the transforms alone gives way to what computes its value: calls, which let equal layers be transformed
// once, checkpoints and custom rules. It runs once, after all transforms, in regions too. Kernels of a plan are opened,
// so that the dump of any stage can go through the pipeline again.
#include "ir/builder.h"
#include "ir/op.h"
#include "passes/emit.h"
#include "passes/regions.h"

namespace sheaf::passes {

using namespace ir;

namespace {

using Expand = Values (*)(Builder&, const Eqn&, const Values&);

Expand expansion_of(const Eqn& e) {
  if (e.op == &ops::kernel)
    return [](Builder& b, const Eqn& kernel, const Values& operands) { return inline_into(b, *kernel.regions[0], operands); };
  const RegionRules* rules = region_rules(e.op);
  return rules ? rules->expand : nullptr;
}

// One level: what an expansion contains is expanded by the next round.
FunctionRef expand_once(const FunctionRef& f, bool& changed) {
  Builder b(f->name());
  ValueTable<Value> map(*f);
  const Values params = clone_params(b, *f, Mask(f->params().size(), true));
  for (std::size_t i = 0; i < params.size(); ++i) map[f->params()[i]] = params[i];
  for (const Eqn* e : f->eqns()) {
    Values operands, outs;
    for (Value v : e->operands) operands.push_back(map[v]);
    b.set_loc(e->loc, e->how);
    if (const Expand expand = expansion_of(*e)) {
      outs = expand(b, *e, operands);
      changed = true;
    } else {
      outs = b.emit_all(e->op, std::move(operands), e->attributes, in_regions(*e, inline_calls));
    }
    for (int j = 0; j < e->num_out(); ++j) map[e->out(j)] = outs[j];
  }
  Values results;
  for (Value r : f->results()) results.push_back(map[r]);
  return b.finish(std::move(results));
}

bool has_work(const Function& f) {
  for (const Eqn* e : f.eqns()) {
    if (expansion_of(*e)) return true;
    for (const FunctionRef& r : e->regions)
      if (has_work(*r)) return true;
  }
  return false;
}

}  // namespace

FunctionRef inline_calls(const FunctionRef& f) {
  FunctionRef out = f;
  for (bool changed = has_work(*f); changed;) {
    changed = false;
    out = expand_once(out, changed);
  }
  return out;
}

}  // namespace sheaf::passes
