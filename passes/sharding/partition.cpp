// Emission in the order of the program: an operand is brought into the layout decided for it from the nearest one that
// exists, once per layout; then the equation runs on parts.
#include "passes/sharding/partition.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "ir/check.h"
#include "ir/log.h"
#include "ir/ops/attrs.h"
#include "passes/sharding/decide.h"
#include "passes/sharding/host_calls.h"
#include "passes/sharding/local.h"
#include "passes/sharding/partition_regions.h"
#include "passes/sharding/reasons.h"
#include "passes/sharding/report.h"
#include "passes/sharding/reshard.h"

namespace sheaf::passes {

using namespace ir;

namespace {

using Layouts = std::vector<Sharding>;

bool holds(const Atoms& atoms, int a) { return std::find(atoms.begin(), atoms.end(), a) != atoms.end(); }

/// A value in one layout.
struct Form {
  Sharding layout;
  Value local;
  bool is_backward = false;  // gathered for a derivative
};

class Pieces {
 public:
  Pieces(Localizer& localizer, ReshardPlanner& planner, const Prices& prices, const Function& f,
         const Decisions& decisions, Builder& b)
      : localizer_(localizer),
        mesh_(localizer.mesh()),
        planner_(planner),
        prices_(prices),
        f_(f),
        decisions_(decisions),
        b_(b),
        forms_(f) {}

  Values run(const Values& params, const Layouts& results) {
    for (std::size_t i = 0; i < params.size(); ++i) hold(f_.params()[i], params[i]);
    for (const Eqn* e : f_.eqns()) {
      const Values outs = emit(*e);
      for (int j = 0; j < e->num_out(); ++j) hold(e->out(j), outs[j]);
      if (e->op == &ops::with_sharding) share(*e);
    }
    Values out;
    for (std::size_t j = 0; j < results.size(); ++j)
      out.push_back(get(f_.results()[j], results[j], nullptr, static_cast<int>(j)));
    return out;
  }

 private:
  // A constraint gives the value it is put on, wherever that is already.
  void share(const Eqn& constraint) {
    for (const Form& form : forms_[constraint.in(0)])
      if (form.layout.unreduced.empty() && form.layout != decisions_.made(constraint.out()))
        forms_[constraint.out()].push_back(form);
  }
  void hold(Value v, Value local) { forms_[v].push_back({.layout = decisions_.made(v), .local = local}); }

  Values emit(const Eqn& e) {
    const Decision& d = decisions_.of(e);
    Values operands;
    for (int k = 0; k < e.num_in(); ++k) operands.push_back(get(e.in(k), d.in[k], &e, k));
    b_.set_loc(e.loc, e.how);
    if (d.choice.is_greedy)
      log(LogTopic::passes, "{}: {} is split as its largest operands are: {}", to_string(e.loc), e.op->name,
          kNotSearched);
    if (!e.regions.empty()) return emit_region(localizer_, b_, e, d, std::move(operands));
    if (is_edge(e) && e.op != &ops::barrier) return operands;
    if (e.op == &ops::axis_index)
      return {b_.emit(ops::axis_index, {}, ops::AxisIndex{.axes = e.attrs<ops::AxisIndex>().axes})};
    if (e.op == &ops::callback) return emit_callback(b_, e, mesh_, localizer_.apart(), std::move(operands));
    if (!e.op->factors) return b_.clone(e, std::move(operands));
    return emit_local(b_, e, *e.op->factors(e), d.choice, mesh_, std::move(operands));
  }

  // `user`: the equation that takes v as its operand k; null: the function returns it as result k.
  Value get(Value v, const Sharding& to, const Eqn* user, int k) {
    const bool is_backward = user && decisions_.of(*user).is_backward;
    if (forms_[v].size() == 1) settle(v, is_backward);
    if (const Form* form = find(v, to, is_backward)) return form->local;
    const Form& from = nearest(v, to, is_backward);
    explain(v, from.layout, to, user, k);
    const Value local = reshard(from.local, v.type(), from.layout, to);
    forms_[v].push_back({to, local, is_backward});
    return local;
  }

  // A sum that several layouts are asked of is made once, in the layout from which the others are cheapest.
  void settle(Value v, bool is_backward) {
    const Sharding& made = decisions_.made(v);
    if (made.unreduced.empty()) return;
    const Sharding* first = decisions_.settlement(v).first;
    if (!first) return;
    const Form from = forms_[v][0];
    explain(v, made, *first, nullptr, 0);
    forms_[v].push_back({*first, reshard(from.local, v.type(), made, *first), is_backward});
  }

  // What was gathered for the forward pass is not kept for the backward pass.
  bool is_usable(Value v, const Form& form, bool is_backward) const {
    return form.is_backward == is_backward || decisions_.is_made_again(v) ||
           !is_gathered(decisions_.made(v), form.layout);
  }

  const Form* find(Value v, const Sharding& to, bool is_backward) const {
    for (const Form& form : forms_[v])
      if (form.layout == to && is_usable(v, form, is_backward)) return &form;
    return nullptr;
  }

  const Form& nearest(Value v, const Sharding& to, bool is_backward) const {
    const Form* best = &forms_[v][0];
    double least = std::numeric_limits<double>::infinity();
    for (const Form& form : forms_[v]) {
      if (!is_usable(v, form, is_backward)) continue;
      const double cost = prices_.reshard(v.type(), form.layout, to);
      if (cost < least) {
        least = cost;
        best = &form;
      }
    }
    return *best;
  }

  // The line and the reason of the collectives that come next.
  void explain(Value v, const Sharding& from, const Sharding& to, const Eqn* user, int k) {
    Atoms summed = from.unreduced;
    std::erase_if(summed, [&](int a) { return holds(to.unreduced, a); });
    const Eqn* e = !summed.empty() && v.eqn() ? v.eqn() : user;
    if (!e) e = v.eqn();
    std::string reason;
    if (!summed.empty())
      reason = fmt::format("{}{} reduces a dim split on {}", kReason, v.eqn() ? v.eqn()->op->name : "a parameter",
                           fmt::join(mesh_.names(summed), ", "));
    else if (user)
      reason = fmt::format("{}operand {} of {} wanted as {}, is {}{}", kReason, k, user->op->name, to_string(to, mesh_),
                           to_string(from, mesh_), indivisible(*user, k, from, to));
    else
      reason = fmt::format("{}result {} wanted as {}, is {}", kReason, k, to_string(to, mesh_), to_string(from, mesh_));
    if (e && decisions_.of(*e).choice.is_greedy) reason += fmt::format(", {}", kNotSearched);
    b_.set_loc(e ? e->loc : Loc{}, extend_how(user ? user->how : "", reason.c_str()));
  }

  // Of a dim that is gathered although the equation could take it in parts: which of its sizes those do not divide.
  std::string indivisible(const Eqn& user, int k, const Sharding& from, const Sharding& to) const {
    if (!user.op->factors) return "";
    const Factors f = *user.op->factors(user);
    for (std::size_t d = 0; d < to.dims.size(); ++d) {
      const std::int64_t ways = mesh_.size(from.dims[d]);
      if (ways == 1 || !to.dims[d].empty() || f.in[k][d].size() != 1) continue;
      std::vector<int> alike = f.in[k][d];
      for (std::size_t i = 0; i < alike.size(); ++i)
        for (const auto& [x, y] : f.neighbours) {
          const int other = x == alike[i] ? y : y == alike[i] ? x : alike[i];
          if (std::find(alike.begin(), alike.end(), other) == alike.end()) alike.push_back(other);
        }
      for (const int i : alike)
        if (f.factors[i].size % ways != 0)
          return fmt::format(": its {} does not divide by {}", f.factors[i].size, ways);
    }
    return "";
  }

  Value reshard(Value local, Type whole, const Sharding& from, const Sharding& to) {
    return emit_reshard(b_, local, planner_.plan(whole.dims(), whole.dtype(), from, to), mesh_);
  }

  Localizer& localizer_;
  const MeshAtoms& mesh_;
  ReshardPlanner& planner_;
  const Prices& prices_;
  const Function& f_;
  const Decisions& decisions_;
  Builder& b_;
  ValueTable<std::vector<Form>> forms_;
};

double seconds_of(const Function& local, const Profile& profile) {
  double seconds = 0;
  for (const CollectiveEntry& e : report_collectives(local, profile).entries) seconds += e.seconds;
  return seconds;
}

// All functions of one program: they share prices and answers.
class Program final : public Localizer {
 public:
  Program(const Function& f, const Profile& profile)
      : mesh_(f.mesh()),
        planner_(mesh_, profile),
        prices_{.reshard = [this](Type t, const Sharding& from, const Sharding& to) { return price(t, from, to); },
                .compute = [&profile](const Work& w, DType dtype) { return seconds_of(w, dtype, profile); },
                .communicate = [&profile](const Function& local) { return seconds_of(local, profile); }},
        chooser_(mesh_, prices_, Weights(f)) {}

  const MeshAtoms& mesh() const override { return mesh_; }
  PartitionWork work() const {
    return {.equations = equations_, .assignments = chooser_.assignments(), .placements = planner_.placements()};
  }

  const Axes& apart() const override { return apart_; }

  FunctionRef localized(const FunctionRef& f, const Layouts& params, const Layouts& results,
                        const Axes& chosen_along) override {
    const Axes outer = std::exchange(apart_, joined(apart_, chosen_along));
    Builder b(f->name());
    Values args;
    for (std::size_t i = 0; i < params.size(); ++i) {
      const Value p = f->params()[i];
      args.push_back(b.param(local(p.type(), params[i]), p.name()));
    }
    FunctionRef made = b.finish(inlined(b, f, params, results, args));
    apart_ = outer;
    return made;
  }

  Values inlined(Builder& b, const FunctionRef& f, const Layouts& params, const Layouts& results,
                 Values args) override {
    equations_ += std::ssize(f->eqns());
    const Decisions decisions(*f, params, results, mesh_, chooser_);
    return Pieces(*this, planner_, prices_, *f, decisions, b).run(args, results);
  }

 private:
  Type local(Type whole, const Sharding& layout) const { return local_type(whole, mesh_, layout).with_manual({}); }

  double price(Type t, const Sharding& from, const Sharding& to) {
    double seconds = 0;
    for (const ReshardMove& move : planner_.plan(t.dims(), t.dtype(), from, to).moves)
      if (move.is_collective()) seconds += move.cost.seconds;
    return seconds;
  }

  MeshAtoms mesh_;
  ReshardPlanner planner_;
  Prices prices_;
  Chooser chooser_;
  Axes apart_;
  std::int64_t equations_ = 0;
};

}  // namespace

FunctionRef partition(const FunctionRef& f, const PartitionOptions& options) {
  SHEAF_CHECK(f->mesh(), "a function without a mesh");
  Program program(*f, options.profile ? *options.profile : chosen_profile({}));
  Layouts params, results;
  for (const Value p : f->params()) params.push_back(sharding_of(p.type(), program.mesh()));
  for (const Value r : f->results()) results.push_back(wanted_layout(r, program.mesh()));
  FunctionRef local = program.localized(f, params, results, {})->on_mesh(f->mesh());
  if (options.work) *options.work = program.work();
  return local;
}

}  // namespace sheaf::passes
