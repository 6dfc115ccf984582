// Cloning, calling and adding: what every transform does to the equations of a function.
#include "passes/emit.h"

#include "ir/work.h"

namespace sheaf::passes {

using namespace ir;

Values emit_each(Builder& b, const Function& f, const Values& args, Step step) {
  ValueTable<Value> map(f);
  for (std::size_t i = 0; i < args.size(); ++i) map[f.params()[i]] = args[i];
  count_work(std::ssize(f.eqns()));
  for (const Eqn* e : f.eqns()) {
    Values operands;
    for (Value v : e->operands) operands.push_back(map[v]);
    b.set_loc(e->loc, e->how);
    const Values outs = step(b, *e, std::move(operands));
    for (int j = 0; j < e->num_out(); ++j) map[e->out(j)] = outs[j];
  }
  Values results;
  for (Value r : f.results()) results.push_back(map[r]);
  return results;
}

FunctionRef remade(const Function& f, Step step) {
  Builder b(f.name());
  const Values params = clone_params(b, f, Mask(f.params().size(), true));
  const FunctionRef out = b.finish(emit_each(b, f, params, step));
  return f.mesh() ? out->on_mesh(f.mesh()) : out;
}

Values inline_into(Builder& b, const Function& f, const Values& args) {
  return emit_each(b, f, args,
                   [](Builder& to, const Eqn& e, Values operands) { return to.clone(e, std::move(operands)); });
}

FunctionRef with_kernels(const Function& plan, const std::function<PlannedKernel(const Eqn&)>& change) {
  return remade(plan, [&](Builder& b, const Eqn& e, Values operands) {
    if (e.op != &ops::kernel) return b.clone(e, std::move(operands));
    PlannedKernel kernel = change(e);
    return b.emit_all(e.op, std::move(operands), std::make_shared<const ops::Kernel>(std::move(kernel.attributes)),
                      {kernel.region});
  });
}

FunctionRef with_regions(const Function& body, std::vector<FunctionRef> regions) {
  const Eqn& step = host_step(body);
  Builder b(body.name());
  ValueTable<Value> map(body);
  const Values params = clone_params(b, body, Mask(body.params().size(), true));
  for (std::size_t i = 0; i < params.size(); ++i) map[body.params()[i]] = params[i];
  Values operands;
  for (Value v : step.operands) operands.push_back(map[v]);
  b.set_loc(step.loc, step.how);
  return b.finish(b.emit_all(step.op, std::move(operands), step.attributes, std::move(regions)));
}

Values call(Builder& b, const FunctionRef& f, Values args) {
  return b.emit_all(&ops::call, std::move(args), nullptr, {f});
}

bool is_small_update(const Eqn& e) {
  return e.op == &ops::dynamic_update_slice && 2 * e.in(1).type().num_elements() <= e.in(0).type().num_elements();
}

Value add_any(Value a, Value b) { return !a ? b : !b ? a : a + b; }

Values clone_params(Builder& b, const Function& f, const Mask& keep, const char* suffix) {
  Values params;
  for (std::size_t i = 0; i < f.params().size(); ++i) {
    const Value p = f.params()[i];
    params.push_back(keep[i] ? b.param(p.type(), p.name().empty() ? "" : p.name() + suffix) : Value());
  }
  return params;
}

Mask operator!(Mask m) {
  m.flip();
  return m;
}

int count(const Mask& m) {
  int n = 0;
  for (bool x : m) n += x;
  return n;
}

bool is_constant_like(Value v) {
  for (const Eqn* e = v.eqn(); e; e = e->in(0).eqn()) {
    if (e->op == &ops::constant || e->op == &ops::iota) return true;
    if (e->op != &ops::broadcast && e->op != &ops::convert && e->op != &ops::reshape && e->op != &ops::pcast)
      return false;
  }
  return false;
}

Value rebuild_constant(Builder& b, Value v) {
  const Eqn& e = *v.eqn();
  Values operands;
  for (Value in : e.operands) operands.push_back(rebuild_constant(b, in));
  b.set_loc(e.loc, e.how);
  return b.clone(e, std::move(operands))[0];
}

Value move_dim(Builder& b, Value x, int from, int to) {
  if (from == to) return x;
  ops::Transpose t;
  for (int d = 0; d < x.rank(); ++d)
    if (d != from) t.perm.push_back(d);
  t.perm.insert(t.perm.begin() + to, from);
  return b.emit(ops::transpose, {x}, std::move(t));
}

Value insert_dim(Builder& b, Value x, int at, std::int64_t size) {
  ops::Broadcast c;
  c.shape = x.dims();
  c.shape.insert(c.shape.begin() + at, size);
  for (int d = 0; d < x.rank(); ++d) c.dims.push_back(d + (d >= at));
  return b.emit(ops::broadcast, {x}, std::move(c));
}

std::vector<FunctionRef> in_regions(const Eqn& e, absl::FunctionRef<FunctionRef(const FunctionRef&)> pass) {
  std::vector<FunctionRef> regions;
  for (const FunctionRef& r : e.regions) regions.push_back(pass(r));
  return regions;
}

}  // namespace sheaf::passes
