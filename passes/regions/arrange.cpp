// Views of functions with other parameter lists, remembered, so that equal ones stay one function for the memo.
#include "passes/regions/arrange.h"

#include "passes/memo.h"
#include "sheaf/error.h"

namespace sheaf::passes {

using namespace ir;

Mask present(const Values& values) {
  Mask m;
  for (Value v : values) m.push_back(static_cast<bool>(v));
  return m;
}

Order beside(const std::vector<int>& groups, const Mask& nonzero) {
  Order order;
  int primal = 0, tangent = static_cast<int>(nonzero.size());
  for (int size : groups) {
    for (int i = 0; i < size; ++i) order.push_back(primal + i);
    for (int i = 0; i < size; ++i)
      if (nonzero[primal + i]) order.push_back(tangent++);
    primal += size;
  }
  return order;
}

namespace {

bool is_identity(const Order& order, std::size_t size) {
  if (order.size() != size) return false;
  for (std::size_t i = 0; i < size; ++i)
    if (order[i] != static_cast<int>(i)) return false;
  return true;
}

}  // namespace

FunctionRef arranged(const FunctionRef& f, const Order& params, const Order& results) {
  const bool same_params = is_identity(params, f->params().size()),
             same_results = is_identity(results, f->results().size());
  if (same_params && same_results) return f;
  return memoized(&Memo::arranged, {f, params, results}, [&] {
    const FunctionRef g = same_params ? f : f->with_params(params);
    return same_results ? g : g->with_results(pick(g->results(), results));
  });
}

Values slice_into(Builder& b, const Function& f, const Values& wanted, const Values& args) {
  ValueTable<char> needed(f, 0);
  for (Value v : wanted) needed[v] = 1;
  for (std::size_t i = f.eqns().size(); i-- > 0;) {
    const Eqn& e = *f.eqns()[i];
    bool is_needed = false;
    for (Value v : e.outs()) is_needed |= needed[v] != 0;
    if (!is_needed) continue;
    for (Value v : e.outs()) needed[v] = 1;
    for (Value v : e.operands) needed[v] = 1;
  }
  ValueTable<Value> map(f);
  for (std::size_t i = 0; i < args.size(); ++i) map[f.params()[i]] = args[i];
  for (const Eqn* e : f.eqns()) {
    if (!needed[e->out()]) continue;
    Values operands;
    for (Value v : e->operands) operands.push_back(map[v]);
    b.set_loc(e->loc, e->how);
    const Values outs = b.clone(*e, std::move(operands));
    for (int j = 0; j < e->num_out(); ++j) map[e->out(j)] = outs[j];
  }
  Values values;
  for (Value v : wanted) values.push_back(map[v]);
  return values;
}

FunctionRef with_zeros(const FunctionRef& f, const Mask& have, const Mask& want, const std::vector<Type>& types) {
  if (have == want) return f;
  Builder b(f->name());
  const Values results = inline_into(b, *f, clone_params(b, *f, Mask(f->params().size(), true)));
  Values all;
  for (std::size_t j = 0, next = 0; j < want.size(); ++j) {
    if (have[j]) all.push_back(results[next++]);
    else if (want[j]) all.push_back(b.zeros(types[j]));
  }
  return b.finish(std::move(all));
}

FunctionRef with_params_kept(const Dce& shrunk, const Mask& kept, const FunctionRef& original) {
  if (kept == shrunk.kept) return shrunk.function;
  if (count(kept) == static_cast<int>(kept.size()) && shrunk.function->results() == original->results())
    return original;
  Builder b(shrunk.function->name());
  const Values params = clone_params(b, *original, kept);
  return b.finish(inline_into(b, *shrunk.function, where(params, shrunk.kept)));
}

Value place_dim(Builder& b, Batched x, int to, const MappedAxis& axis) {
  if (x.dim >= 0) return move_dim(b, x.value, x.dim, to);
  return varied(insert_dim(b, x.value, to, axis.size), axis.varying);
}

void mark_split(const FunctionRef& f, const Mask& known) { Memo::current().split.emplace(std::tuple{f, known}, true); }

void refuse(const Eqn& e, const std::string& why) { throw TypeError(e.loc, std::string(e.op->name) + ": " + why); }

}  // namespace sheaf::passes
