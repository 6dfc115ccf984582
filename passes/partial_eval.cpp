// Partial evaluation: walk the equations once; those whose operands are all known go to the known half, the others to
// the unknown half, which receives the known values it reads as residual parameters.
// Constants are made again in the unknown half, never residuals: a loop would stack them.
#include "passes/partial_eval.h"

#include <absl/container/flat_hash_map.h>

#include "ir/builder.h"
#include "passes/emit.h"
#include "passes/memo.h"
#include "passes/regions/arrange.h"

namespace sheaf::passes {

using namespace ir;

namespace {

class Split final : public Halves {
 public:
  Split(const FunctionRef& f, const Mask& known)
      : f_(*f), known_(f->name() + ".known"), unknown_(f->name() + ".linear"), in_known_(*f), in_unknown_(*f) {
    const Values k = clone_params(known_, f_, known), u = clone_params(unknown_, f_, !known);
    for (std::size_t i = 0; i < k.size(); ++i) {
      in_known_[f_.params()[i]] = k[i];
      in_unknown_[f_.params()[i]] = u[i];
    }
    num_unknown_params_ = count(!known);
    for (std::size_t i = 0; i < k.size(); ++i)
      if (k[i]) input_of_.emplace(k[i], static_cast<int>(i));
  }

  PartialEval run(const Mask& force_unknown) {
    for (const Eqn* e : f_.eqns()) equation(*e);
    PartialEval p;
    Values known_results, unknown_results;
    for (std::size_t j = 0; j < f_.results().size(); ++j) {
      const Value r = f_.results()[j];
      const bool is_known = in_known_[r] && !(!force_unknown.empty() && force_unknown[j]);
      p.known_out.push_back(is_known);
      if (is_known) known_results.push_back(in_known_[r]);
      else unknown_results.push_back(unknown(r));
    }
    p.unknown = finish_unknown(std::move(unknown_results));
    p.known = finish_known(p, std::move(known_results));
    return p;
  }

 private:
  void equation(const Eqn& e) {
    Mask known;
    for (Value v : e.operands) known.push_back(static_cast<bool>(in_known_[v]));
    if (count(known) == e.num_in()) return copy(known_, in_known_, e);
    if (const RegionRules* regions = region_rules(e.op)) {
      known_.set_loc(e.loc, e.how);
      unknown_.set_loc(e.loc, e.how);
      return regions->partial_eval(*this, e, known);
    }
    Values operands;
    for (Value v : e.operands) operands.push_back(unknown(v));
    unknown_.set_loc(e.loc, e.how);
    assign(in_unknown_, e, unknown_.clone(e, std::move(operands)));
  }

  void copy(Builder& b, ValueTable<Value>& table, const Eqn& e) {
    Values operands;
    for (Value v : e.operands) operands.push_back(table[v]);
    b.set_loc(e.loc, e.how);
    assign(table, e, b.clone(e, std::move(operands)));
  }

  static void assign(ValueTable<Value>& table, const Eqn& e, const Values& outs) {
    for (int j = 0; j < e.num_out(); ++j) table[e.out(j)] = outs[j];
  }

  Builder& known_half() override { return known_; }
  Builder& unknown_half() override { return unknown_; }
  Value known(Value v) const override { return in_known_[v]; }
  void set_known(Value v, Value in_known_half) override { in_known_[v] = in_known_half; }
  void set_unknown(Value v, Value in_unknown_half) override { in_unknown_[v] = in_unknown_half; }

  Value unknown(Value v) override {
    Value& u = in_unknown_[v];
    if (u) return u;
    return u = is_constant_like(v) ? rebuild_constant(unknown_, v) : residual(in_known_[v]);
  }

  Value residual(Value known) override {
    auto [it, fresh] = residual_of_.try_emplace(known);
    if (fresh) {
      it->second = unknown_.param(known.type(), known.name());
      residuals_.push_back(known);
    }
    return it->second;
  }

  // Residuals first, only those still read after dead equations are gone.
  FunctionRef finish_unknown(Values results) {
    const FunctionRef all = unknown_.finish(std::move(results));
    const Dce live = dce(all, Mask(all->results().size(), true));
    Values kept;
    int next = 0;
    std::vector<int> position(all->params().size(), -1);
    for (std::size_t i = 0; i < all->params().size(); ++i) position[i] = live.kept[i] ? next++ : -1;
    // dce removes unread parameters; unread unknown ones come back, because callers pass them by position.
    Builder b(live.function->name());
    Values args(all->params().size());
    for (std::size_t r = 0; r < residuals_.size(); ++r) {
      const std::size_t i = residual_of_.at(residuals_[r]).index();
      if (position[i] < 0) continue;
      args[i] = b.param(all->params()[i].type(), all->params()[i].name());
      kept.push_back(residuals_[r]);
    }
    for (int i = 0; i < num_unknown_params_; ++i) args[i] = b.param(all->params()[i].type(), all->params()[i].name());
    Values live_args;
    for (std::size_t i = 0; i < args.size(); ++i)
      if (position[i] >= 0) live_args.push_back(args[i]);
    residuals_ = std::move(kept);
    return b.finish(inline_into(b, *live.function, live_args));
  }

  FunctionRef finish_known(PartialEval& p, Values results) {
    absl::flat_hash_map<Value, int> result_of;
    for (std::size_t j = 0; j < results.size(); ++j) result_of.try_emplace(results[j], static_cast<int>(j));
    for (Value v : residuals_) {
      if (auto input = input_of_.find(v); input != input_of_.end()) {
        p.residuals.push_back({.is_input = true, .index = input->second});
        continue;
      }
      auto [it, fresh] = result_of.try_emplace(v, static_cast<int>(results.size()));
      if (fresh) results.push_back(v);
      p.residuals.push_back({.is_input = false, .index = it->second});
    }
    const FunctionRef f = known_.finish(std::move(results));
    const Dce live = dce(f, Mask(f->results().size(), true));  // sheds what nested calls no longer need to return
    if (count(live.kept) == static_cast<int>(f->params().size())) return live.function;
    Builder b(f->name());
    const Values params = clone_params(b, *f, Mask(f->params().size(), true));
    return b.finish(inline_into(b, *live.function, where(params, live.kept)));
  }

  const Function& f_;
  Builder known_, unknown_;
  ValueTable<Value> in_known_, in_unknown_;
  int num_unknown_params_ = 0;
  absl::flat_hash_map<Value, int> input_of_;       // known parameters, by the original's position
  absl::flat_hash_map<Value, Value> residual_of_;  // known value -> parameter of the unknown half
  Values residuals_;
};

}  // namespace

PartialEval partial_eval(const FunctionRef& f, const Mask& known, const Mask& force_unknown) {
  return memoized(&Memo::partial_eval, {f, known, force_unknown}, [&] {
    PartialEval p = Split(f, known).run(force_unknown);
    Mask nonlinear(p.residuals.size(), true);
    nonlinear.resize(p.unknown->params().size(), false);
    mark_split(p.unknown, nonlinear);
    return p;
  });
}

}  // namespace sheaf::passes
