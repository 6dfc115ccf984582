// Dead code: backwards over the equations, through calls. Equations the results do not need are never listed by a
// Function, so what is left to do here is to shrink callees whose results nobody reads, and to report unread parameters.
// Returns the same function when nothing changes, so that memo keys by identity keep hitting.
#include "ir/builder.h"
#include "ir/op.h"
#include "passes/emit.h"
#include "passes/memo.h"

namespace sheaf::passes {

using namespace ir;

namespace {

// Which values are read, and which results of each call; callees shrunk accordingly.
class Liveness {
 public:
  explicit Liveness(const Function& f, const Mask& used) : live_(f) {
    for (std::size_t j = 0; j < used.size(); ++j)
      if (used[j]) live_[f.results()[j]] = true;
    for (std::size_t i = f.eqns().size(); i-- > 0;) equation(*f.eqns()[i]);
  }
  bool operator[](Value v) const { return live_[v]; }
  bool changed() const { return changed_; }
  const Dce* callee(const Eqn& e) const {
    auto it = callees_.find(&e);
    return it == callees_.end() ? nullptr : &it->second;
  }

 private:
  void equation(const Eqn& e) {
    Mask used;
    for (Value v : e.outs()) used.push_back(live_[v]);
    if (count(used) == 0 && e.effects == Effects::none) {
      changed_ = true;
      return;
    }
    if (!e.op->callee_by_name) {
      for (Value v : e.operands) live_[v] = true;
      return;
    }
    const Dce callee = dce(e.regions[0], used);
    if (callee.function != e.regions[0]) changed_ = true;
    for (int k = 0; k < e.num_in(); ++k)
      if (callee.kept[k]) live_[e.in(k)] = true;
    callees_.emplace(&e, callee);
  }

  ValueTable<char> live_;
  absl::flat_hash_map<const Eqn*, Dce> callees_;
  bool changed_ = false;
};

Dce sweep(const FunctionRef& f, const Mask& used) {
  const Liveness live(*f, used);
  Dce d;
  for (Value p : f->params()) d.kept.push_back(live[p]);
  if (!live.changed() && count(used) == static_cast<int>(used.size()) && count(d.kept) == static_cast<int>(d.kept.size()))
    return {f, d.kept};
  Builder b(f->name());
  ValueTable<Value> map(*f);
  const Values params = clone_params(b, *f, d.kept);
  for (std::size_t i = 0; i < params.size(); ++i) map[f->params()[i]] = params[i];
  for (const Eqn* e : f->eqns()) {
    bool wanted = e->effects != Effects::none;
    Mask outs_used;
    for (Value v : e->outs()) {
      outs_used.push_back(live[v]);
      wanted |= live[v];
    }
    if (!wanted) continue;
    const Dce* callee = live.callee(*e);
    const Mask keep = callee ? callee->kept : Mask(e->operands.size(), true);
    Values operands;
    for (Value v : where(e->operands, keep)) operands.push_back(map[v]);
    b.set_loc(e->loc, e->how);
    const Values outs = callee ? call(b, callee->function, std::move(operands)) : b.clone(*e, std::move(operands));
    int next = 0;
    for (int j = 0; j < e->num_out(); ++j)
      if (!callee || outs_used[j]) map[e->out(j)] = outs[next++];
  }
  Values results;
  for (Value r : where(f->results(), used)) results.push_back(map[r]);
  d.function = b.finish(std::move(results));
  return d;
}

}  // namespace

Dce dce(const FunctionRef& f, const Mask& used) {
  return memoized(&Memo::dce, {f, used}, [&] { return sweep(f, used); });
}

}  // namespace sheaf::passes
