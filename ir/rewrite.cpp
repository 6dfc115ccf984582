// Matching and instantiating patterns.
#include "ir/rewrite.h"

#include "ir/ops/attrs.h"

namespace sheaf::ir {
namespace {

using Bindings = std::vector<Value>;

bool matches(const Pattern& p, Value v, Bindings& bound) {
  switch (p.kind) {
    case Pattern::Kind::variable:
      if (static_cast<int>(bound.size()) <= p.variable) bound.resize(p.variable + 1);
      if (bound[p.variable]) return bound[p.variable] == v;
      bound[p.variable] = v;
      return true;
    case Pattern::Kind::number: {
      const auto c = constant_value(v);
      return c && c->bits(0) == to_bits(v.dtype(), p.number);
    }
    case Pattern::Kind::op: {
      const Eqn* e = v.eqn();
      if (!e || e->op != p.op || e->operands.size() != p.operands.size()) return false;
      for (std::size_t k = 0; k < p.operands.size(); ++k)
        if (!matches(p.operands[k], e->operands[k], bound)) return false;
      return true;
    }
  }
  return false;
}

// Rank-0 operands stand for full ones; only the outermost value must have the full type.
Value instantiate(Builder& b, const Pattern& p, const Bindings& bound, DType dtype) {
  switch (p.kind) {
    case Pattern::Kind::variable: return bound[p.variable];
    case Pattern::Kind::number: return b.constant(dtype, p.number);
    case Pattern::Kind::op: break;
  }
  Values operands;
  for (const Pattern& o : p.operands) operands.push_back(instantiate(b, o, bound, dtype));
  return b.emit_all(p.op, std::move(operands))[0];
}

}  // namespace

std::optional<Literal> constant_value(Value v) {
  const Eqn* e = v.eqn();
  while (e && (e->op == &ops::broadcast || e->op == &ops::pcast)) e = e->in(0).eqn();
  if (!e || e->op != &ops::constant || e->out().rank() != 0) return std::nullopt;
  return literal_of(*e);
}

std::optional<Value> apply(Builder& b, const Rule& rule, const Eqn& e) {
  if (rule.root != e.op || (rule.when && !rule.when(e))) return std::nullopt;
  if (rule.rewrite) return rule.rewrite(b, e);
  Bindings bound;
  if (!matches(rule.lhs, e.out(), bound)) return std::nullopt;
  Value v = instantiate(b, rule.rhs, bound, e.out().dtype());
  if (v.rank() == 0 && e.out().rank() != 0)
    v = b.emit(ops::broadcast, {v}, ops::Broadcast{.shape = e.out().dims(), .dims = {}});
  if (v.type() != e.out().type()) return std::nullopt;
  return v;
}

}  // namespace sheaf::ir
