// Constraints put on and followed to their last word, by making the program again.
#include "passes/sharding/constraints.h"

#include "ir/builder.h"
#include "ir/op.h"
#include "ir/ops/attrs.h"
#include "passes/emit.h"

namespace sheaf::passes {

using namespace ir;

namespace {

bool is_constraint(const Eqn* e) { return e && e->op == &ops::with_sharding; }

std::vector<Type> types_of(const Eqn& e) {
  std::vector<Type> types;
  for (const Value v : e.outs()) types.push_back(v.type());
  return types;
}

// Ends of chains of two constraints or more, each with the value the chain begins at.
class Chains {
 public:
  explicit Chains(const Function& f) : constraints_(f, 0), uses_(f, 0) {
    for (const Eqn* e : f.eqns())
      for (const Value v : e->operands) {
        ++uses_[v];
        constraints_[v] += is_constraint(e);
      }
    for (const Value v : f.results()) ++uses_[v];
  }
  /// Where the chain that ends in e begins; null: none ends there.
  Value begin(const Eqn& e) const {
    if (!is_constraint(&e) || constraints_[e.out()] > 0 || !is_constraint(e.in(0).eqn())) return Value();
    Value v = e.in(0);
    while (is_constraint(v.eqn()) && uses_[v] == 1) v = v.eqn()->in(0);
    return is_constraint(v.eqn()) || constraints_[v] > 1 ? Value() : v;
  }

 private:
  ValueTable<int> constraints_, uses_;
};

bool has_chain(const Function& f) {
  const Chains chains(f);
  for (const Eqn* e : f.eqns()) {
    if (chains.begin(*e)) return true;
    for (const FunctionRef& r : e->regions)
      if (has_chain(*r)) return true;
  }
  return false;
}

FunctionRef read_at_end(const FunctionRef& f) {
  const Chains chains(*f);
  Builder b(f->name());
  ValueTable<Value> map(*f);
  const Values params = clone_params(b, *f, Mask(f->params().size(), true));
  for (std::size_t i = 0; i < params.size(); ++i) map[f->params()[i]] = params[i];
  for (const Eqn* e : f->eqns()) {
    Values operands;
    for (const Value v : e->operands) operands.push_back(map[v]);
    const Values outs = emit_typed(b, *e, std::move(operands), in_regions(*e, read_at_end), types_of(*e));
    for (int j = 0; j < e->num_out(); ++j) map[e->out(j)] = outs[j];
    if (const Value begin = chains.begin(*e)) map[begin] = outs[0];
  }
  Values results;
  for (const Value r : f->results()) results.push_back(map[r]);
  return b.finish(std::move(results))->on_mesh(f->mesh());
}

}  // namespace

Values emit_typed(Builder& b, const Eqn& e, Values operands, std::vector<FunctionRef> regions,
                  const std::vector<Type>& types) {
  b.set_loc(e.loc, e.how);
  absl::StatusOr<Values> made = b.try_emit_typed(e.op, std::move(operands), e.attributes, std::move(regions), types);
  SHEAF_CHECK(made.ok(), std::string(e.op->name) + ": " + std::string(made.status().message()));
  return *std::move(made);
}

Value constrained(Builder& b, Value v, Mesh mesh, const Spec& spec, Type type) {
  ops::WithSharding attributes{.mesh = to_string(mesh), .spec = to_text(spec)};
  const Eqn constraint{.op = &ops::with_sharding,
                       .attributes = std::make_shared<const ops::WithSharding>(std::move(attributes)),
                       .loc = v.is_param() ? Loc() : v.eqn()->loc,
                       .how = v.is_param() ? "" : v.eqn()->how};
  return emit_typed(b, constraint, {v}, {}, {type})[0];
}

FunctionRef with_wanted(const FunctionRef& f, const std::vector<std::optional<Spec>>& wanted) {
  if (std::none_of(wanted.begin(), wanted.end(), [](const auto& w) { return w.has_value(); })) return f;
  SHEAF_CHECK(wanted.size() <= f->results().size(), "more wanted than there is");
  Builder b(f->name());
  const Values params = clone_params(b, *f, Mask(f->params().size(), true));
  Values results = emit_each(b, *f, params, [](Builder& to, const Eqn& e, Values operands) {
    return emit_typed(to, e, std::move(operands), e.regions, types_of(e));
  });
  for (std::size_t j = 0; j < wanted.size(); ++j)
    if (wanted[j]) results[j] = constrained(b, results[j], f->mesh(), *wanted[j], without_sharding(results[j].type()));
  return b.finish(std::move(results))->on_mesh(f->mesh());
}

FunctionRef with_chains_read_at_end(const FunctionRef& f) { return has_chain(*f) ? read_at_end(f) : f; }

}  // namespace sheaf::passes
