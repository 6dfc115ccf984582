// What exists for the transforms alone gives way to what computes its value: calls, which let equal layers be
// transformed once, checkpoints and custom rules; and later, when layouts are settled, ops that stand for others
// (OpDef::expand). It runs after all transforms, in regions too. Kernels of a plan are opened, so that the dump of any
// stage can go through the pipeline again.
#include "passes/inline.h"

#include <algorithm>

#include "ir/builder.h"
#include "ir/op.h"
#include "passes/emit.h"
#include "passes/regions.h"

namespace sheaf::passes {

using namespace ir;

namespace {

using Expand = Values (*)(Builder&, const Eqn&, const Values&);

enum class What : std::uint8_t { calls, calls_and_ops };
/// What is to go.
struct Which {
  What what = What::calls;
  Target target = {};  // ops that it has a kernel for stay
  std::span<const Op> kept = {};  // stay too
};

bool is_to_expand(const Eqn& e, const Which& which) {
  // What is written for axes of a mesh, and is no collective, gives way before there are none.
  if (e.op->axes && !e.op->lower) return true;
  if (std::ranges::find(which.kept, e.op) != which.kept.end()) return false;
  return which.what == What::calls_and_ops && !(e.op->has_kernel && e.op->has_kernel(e, which.target));
}

Expand expansion_of(const Eqn& e, const Which& which) {
  if (e.op == &ops::kernel)
    return [](Builder& b, const Eqn& kernel, const Values& operands) {
      return inline_into(b, *kernel.regions[0], operands);
    };
  if (e.op->expand && is_to_expand(e, which)) return e.op->expand;
  const RegionRules* rules = region_rules(e.op);
  return rules ? rules->expand : nullptr;
}

bool has_work(const Function& f, const Which& which) {
  for (const Eqn* e : f.eqns()) {
    if (expansion_of(*e, which)) return true;
    for (const FunctionRef& r : e->regions)
      if (has_work(*r, which)) return true;
  }
  return false;
}

// One level at a time: what an expansion contains is expanded by the next round.
FunctionRef expanded(const FunctionRef& f, const Which& which) {
  FunctionRef out = f;
  for (bool changed = has_work(*f, which); changed;) {
    changed = false;
    out = remade(*out, [&](Builder& b, const Eqn& e, Values operands) {
      const Expand expand = expansion_of(e, which);
      if (expand) {
        changed = true;
        return expand(b, e, operands);
      }
      std::vector<FunctionRef> regions;
      for (const FunctionRef& r : e.regions) regions.push_back(expanded(r, which));
      return b.emit_all(e.op, std::move(operands), e.attributes, std::move(regions));
    });
  }
  return out;
}

}  // namespace

FunctionRef inline_calls(const FunctionRef& f) { return expanded(f, {}); }
FunctionRef expand_ops(const FunctionRef& f) { return expanded(f, {.what = What::calls_and_ops}); }
FunctionRef expand_ops_but(const FunctionRef& f, std::span<const Op> kept) {
  return expanded(f, {.what = What::calls_and_ops, .kept = kept});
}
FunctionRef expand_ops_for(const FunctionRef& f, const Target& target) {
  return expanded(f, {.what = What::calls_and_ops, .target = target});
}

}  // namespace sheaf::passes
