// Dead code: backwards over the equations, through regions. Equations the results do not need are never listed by a
// Function, so what is left to do here is to shrink regions whose results nobody reads, and to report unread
// parameters. Returns the same function when nothing changes, so that memo keys by identity keep hitting.
#include "ir/builder.h"
#include "ir/op.h"
#include "passes/emit.h"
#include "passes/memo.h"
#include "passes/regions.h"

namespace sheaf::passes {

using namespace ir;

namespace {

// Which values are read; equations with regions shrunk to what is read of them.
class Liveness {
 public:
  explicit Liveness(const Function& f, const Mask& used) : live_(f) {
    for (std::size_t j = 0; j < used.size(); ++j)
      if (used[j]) live_[f.results()[j]] = true;
    for (std::size_t i = f.eqns().size(); i-- > 0;) equation(*f.eqns()[i]);
  }
  bool operator[](Value v) const { return live_[v]; }
  bool changed() const { return changed_; }
  const Shrunk* shrunk(const Eqn& e) const {
    auto it = shrunk_.find(&e);
    return it == shrunk_.end() ? nullptr : &it->second;
  }

 private:
  void equation(const Eqn& e) {
    Mask used;
    for (Value v : e.outs()) used.push_back(live_[v]);
    if (count(used) == 0 && e.effects == Effects::none) {
      changed_ = true;
      return;
    }
    const RegionRules* regions = region_rules(e.op);
    if (!regions || !regions->shrink) {
      for (Value v : e.operands) live_[v] = true;
      return;
    }
    if (count(used) == 0) used[0] = true;  // it stays for its effect, and every equation has a result
    Shrunk shrunk = regions->shrink(e, used);
    if (shrunk.regions != e.regions) changed_ = true;
    for (int k = 0; k < e.num_in(); ++k)
      if (shrunk.operands[k]) live_[e.in(k)] = true;
    shrunk_.emplace(&e, std::move(shrunk));
  }

  ValueTable<char> live_;
  absl::flat_hash_map<const Eqn*, Shrunk> shrunk_;
  bool changed_ = false;
};

Dce sweep(const FunctionRef& f, const Mask& used) {
  const Liveness live(*f, used);
  Dce d;
  for (Value p : f->params()) d.kept.push_back(live[p]);
  if (!live.changed() && count(used) == static_cast<int>(used.size())) {
    // Only parameters go, if anything does: the equations are shared.
    if (count(d.kept) == static_cast<int>(d.kept.size())) return {f, d.kept};
    std::vector<int> order;
    for (std::size_t i = 0; i < d.kept.size(); ++i)
      if (d.kept[i]) order.push_back(static_cast<int>(i));
    return {f->with_params(order), d.kept};
  }
  Builder b(f->name());
  ValueTable<Value> map(*f);
  const Values params = clone_params(b, *f, d.kept);
  for (std::size_t i = 0; i < params.size(); ++i) map[f->params()[i]] = params[i];
  for (const Eqn* e : f->eqns()) {
    bool wanted = e->effects != Effects::none;
    for (Value v : e->outs()) wanted |= live[v];
    if (!wanted) continue;
    const Shrunk* shrunk = live.shrunk(*e);
    Values operands;
    for (Value v : shrunk ? where(e->operands, shrunk->operands) : e->operands) operands.push_back(map[v]);
    b.set_loc(e->loc, e->how);
    const Values outs = shrunk ? b.emit_all(e->op, std::move(operands), shrunk->attributes, shrunk->regions)
                               : b.clone(*e, std::move(operands));
    int next = 0;
    for (int j = 0; j < e->num_out(); ++j)
      if (!shrunk || shrunk->results[j]) map[e->out(j)] = outs[next++];
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
