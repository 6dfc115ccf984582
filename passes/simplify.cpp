// The walkers behind simplify, fold and cse: emit every equation again in a fresh builder, in order, with a chance to
// put something better in its place. Value numbering in the builder does the common-subexpression part.
#include "passes/simplify.h"

#include <absl/container/flat_hash_map.h>

#include "ir/ops/attrs.h"
#include "ir/work.h"
#include "passes/emit.h"

namespace sheaf::passes {

using namespace ir;

namespace {

// `better` sees an equation of the new function and may give another value for its (only) result.
using Better = Value (*)(Builder&, Value);
// What has become of each region: equal equations must keep sharing theirs.
using Rewritten = absl::flat_hash_map<FunctionRef, FunctionRef>;

FunctionRef rewrite(const FunctionRef& f, Better better, Rewritten& done) {
  if (const auto it = done.find(f); it != done.end()) return it->second;
  FunctionRef out = remade(*f, [&](Builder& b, const Eqn& e, Values operands) {
    std::vector<FunctionRef> regions;
    for (const FunctionRef& r : e.regions) regions.push_back(rewrite(r, better, done));
    Values outs = b.emit_all(e.op, std::move(operands), e.attributes, std::move(regions));
    if (outs.size() == 1) outs[0] = better(b, outs[0]);
    return outs;
  });
  return done.emplace(f, std::move(out)).first->second;
}

FunctionRef rewrite(const FunctionRef& f, Better better) {
  Rewritten done;
  return rewrite(f, better, done);
}

const absl::flat_hash_map<Op, std::vector<const Rule*>>& rules_by_root() {
  static const auto& table = *[] {
    auto* t = new absl::flat_hash_map<Op, std::vector<const Rule*>>;
    for (const Rule& r : simplify_rules()) (*t)[r.root].push_back(&r);
    return t;
  }();
  return table;
}

Value simplified(Builder& b, Value v) {
  for (bool changed = true; changed;) {
    changed = false;
    if (!v.eqn()) break;
    const auto rules = rules_by_root().find(v.eqn()->op);
    if (rules == rules_by_root().end()) break;
    for (const Rule* r : rules->second) {
      count_work();
      const std::optional<Value> better = apply(b, *r, *v.eqn());
      if (!better || *better == v) continue;
      v = *better;
      changed = true;
      break;
    }
  }
  return v;
}

Value folded(Builder& b, Value v) {
  const Eqn& e = *v.eqn();
  if (e.op == &ops::constant || !e.op->lower || v.rank() != 0 || e.num_in() == 0 || is_complex(v.dtype())) return v;
  std::vector<std::uint64_t> bits;
  for (Value in : e.operands) {
    const auto c = in.rank() == 0 && !is_complex(in.dtype()) ? constant_value(in) : std::nullopt;
    if (!c) return v;
    bits.push_back(c->bits(0));
  }
  const Lowering lowering = e.op->lower(e);
  const auto* map = std::get_if<lowering::Map>(&lowering);
  if (!map) return v;
  Literal value(v.type());
  value.set_bits(0, eval(map->fn, bits));
  return b.constant(value);
}

}  // namespace

FunctionRef simplify(const FunctionRef& f) { return rewrite(f, simplified); }
FunctionRef fold(const FunctionRef& f) { return rewrite(f, folded); }
FunctionRef cse(const FunctionRef& f) {
  return rewrite(f, [](Builder&, Value v) { return v; });
}

}  // namespace sheaf::passes
