// What exists for the transforms alone gives way to what computes its value: calls, which let equal layers be
// transformed once, checkpoints, custom rules, and ops that stand for others (OpDef::expand). It runs once, after all
// transforms, in regions too. Kernels of a plan are opened, so that the dump of any stage can go through the pipeline
// again.
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
    return [](Builder& b, const Eqn& kernel, const Values& operands) {
      return inline_into(b, *kernel.regions[0], operands);
    };
  if (e.op->expand) return e.op->expand;
  const RegionRules* rules = region_rules(e.op);
  return rules ? rules->expand : nullptr;
}

// One level: what an expansion contains is expanded by the next round.
FunctionRef expand_once(const FunctionRef& f, bool& changed) {
  return remade(*f, [&](Builder& b, const Eqn& e, Values operands) {
    const Expand expand = expansion_of(e);
    if (!expand) return b.emit_all(e.op, std::move(operands), e.attributes, in_regions(e, inline_calls));
    changed = true;
    return expand(b, e, operands);
  });
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
