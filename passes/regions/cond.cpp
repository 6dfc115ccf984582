// cond: what one branch has (a tangent, a cotangent, a batch dim), all have; the others make zeros or copies of it.
// Before and after of partial evaluation:
//   %y, %ty = cond %i, %x, %tx      %y, %r = cond %i, %x       (known: each branch returns its residuals, zeros for
//   others')
//                                   %ty    = cond %i, %r, %tx  (unknown)
#include <algorithm>

#include "ir/manual.h"
#include "ir/ops/attrs.h"
#include "ir/ops/rules.h"
#include "passes/loops.h"
#include "passes/regions/arrange.h"
#include "passes/regions/call.h"
#include "passes/regions/guard.h"

namespace sheaf::passes {

using namespace ir;

namespace {

std::vector<Type> types_of(const Values& values) {
  std::vector<Type> types;
  for (Value v : values) types.push_back(v.type());
  return types;
}

Values branch_operands(const Values& operands) { return slice(operands, 1, operands.size() - 1); }

Dual jvp_cond(Builder& b, const Eqn& e, const Values& operands, const Values& tangents) {
  const Mask nonzero = present(branch_operands(tangents));
  Mask out(e.num_out());
  for (const FunctionRef& branch : e.regions) out = out | jvp(branch, nonzero).out;
  std::vector<FunctionRef> branches;
  for (const FunctionRef& branch : e.regions) branches.push_back(jvp(branch, nonzero, out).function);
  const Values outs =
      b.emit_all(e.op, operands + where(branch_operands(tangents), nonzero), nullptr, std::move(branches));
  Dual dual{slice(outs, 0, e.num_out()), Values(e.num_out())};
  for (int j = 0, next = e.num_out(); j < e.num_out(); ++j)
    if (out[j]) dual.tangents[j] = outs[next++];
  return dual;
}

// Splits a cond whose index is known. Residuals of the branches share slots by type, so that there are as many as the
// neediest branch has.
class SplitCond {
 public:
  SplitCond(Halves& halves, const Eqn& e, const Mask& known)
      : halves_(halves), e_(e), known_(slice(known, 1, known.size() - 1)), unknown_out_(e.num_out()) {
    for (const FunctionRef& branch : e.regions) unknown_out_ = unknown_out_ | !partial_eval(branch, known_).known_out;
    for (const FunctionRef& branch : e.regions) branches_.push_back(partial_eval(branch, known_, unknown_out_));
    for (const PartialEval& branch : branches_) assign_slots(branch);
  }

  void run() {
    emit_known();
    emit_unknown();
  }

 private:
  // Where the unknown cond finds residual r of a branch: among its shared operands, in a slot, or nowhere: where
  // devices choose different branches, a slot differs, and what is the same on all was made of nothing they got, so
  // that it is made again.
  enum class From { shared, slot, again };
  struct Place {
    From from;
    int index = -1;
  };

  void assign_slots(const PartialEval& branch) {
    std::vector<bool> taken(slots_.size());
    std::vector<Place> places;
    for (const Residual& r : branch.residuals) {
      if (r.is_input) {
        const auto at = std::find(shared_.begin(), shared_.end(), r.index);
        places.push_back({From::shared, static_cast<int>(at - shared_.begin())});
        if (at == shared_.end()) shared_.push_back(r.index);
        continue;
      }
      const Type type = branch.known->results()[r.index].type();
      if (!without(e_.in(0).type().varying(), type.varying()).empty()) {
        places.push_back({From::again, r.index});
        continue;
      }
      std::size_t slot = 0;
      while (slot < slots_.size() && (taken[slot] || slots_[slot] != type)) ++slot;
      if (slot == slots_.size()) slots_.push_back(type);
      taken.resize(slots_.size());
      taken[slot] = true;
      places.push_back({From::slot, static_cast<int>(slot)});
    }
    places_.push_back(std::move(places));
  }

  FunctionRef known_branch(std::size_t i) const {
    const PartialEval& branch = branches_[i];
    Builder b(branch.known->name());
    const Values outs =
        inline_into(b, *branch.known, clone_params(b, *branch.known, Mask(branch.known->params().size(), true)));
    Values slots(slots_.size());
    for (std::size_t r = 0; r < branch.residuals.size(); ++r)
      if (places_[i][r].from == From::slot) slots[places_[i][r].index] = outs[branch.residuals[r].index];
    for (std::size_t s = 0; s < slots.size(); ++s)
      if (!slots[s]) slots[s] = b.zeros(slots_[s]);
    return b.finish(slice(outs, 0, count(!unknown_out_)) + slots);
  }

  void emit_known() {
    bool effects = false;
    for (const PartialEval& branch : branches_) effects |= branch.known->effects() != Effects::none;
    if (slots_.empty() && count(!unknown_out_) == 0 && !effects) return;
    Values operands{halves_.known(e_.in(0))};
    for (Value v : where(branch_operands(e_.operands), known_)) operands.push_back(halves_.known(v));
    std::vector<FunctionRef> branches;
    for (std::size_t i = 0; i < branches_.size(); ++i) branches.push_back(known_branch(i));
    known_outs_ = halves_.known_half().emit_all(e_.op, std::move(operands), nullptr, std::move(branches));
    for (int j = 0, next = 0; j < e_.num_out(); ++j)
      if (!unknown_out_[j]) halves_.set_known(e_.out(j), known_outs_[next++]);
  }

  // Parameters: shared, slots, unknown operands.
  FunctionRef unknown_branch(std::size_t i) const {
    const PartialEval& branch = branches_[i];
    Builder b(branch.unknown->name());
    Values shared, slots, args;
    for (int k : shared_) shared.push_back(b.param(e_.in(k + 1).type()));
    for (Type t : slots_) slots.push_back(b.param(t));
    for (const Place& p : places_[i]) {
      if (p.from == From::shared) args.push_back(shared[p.index]);
      else if (p.from == From::slot) args.push_back(slots[p.index]);
      else args.push_back(made_again(b, *branch.known, p.index));
    }
    for (Value v : where(branch_operands(e_.operands), !known_)) args.push_back(b.param(v.type()));
    const FunctionRef f = b.finish(inline_into(b, *branch.unknown, args));
    Mask nonlinear(shared.size() + slots.size(), true);
    nonlinear.resize(f->params().size(), false);
    mark_split(f, nonlinear);
    return f;
  }

  static Value made_again(Builder& b, const Function& f, int result) {
    return slice_into(b, f, {f.results()[result]}, Values(f.params().size()))[0];
  }

  void emit_unknown() {
    bool effects = false;
    for (const PartialEval& branch : branches_) effects |= branch.unknown->effects() != Effects::none;
    if (count(unknown_out_) == 0 && !effects) return;
    Values operands{halves_.unknown(e_.in(0))};
    for (int k : shared_) operands.push_back(halves_.unknown(e_.in(k + 1)));
    for (std::size_t s = 0; s < slots_.size(); ++s)
      operands.push_back(halves_.residual(known_outs_[count(!unknown_out_) + static_cast<int>(s)]));
    for (Value v : where(branch_operands(e_.operands), !known_)) operands.push_back(halves_.unknown(v));
    std::vector<FunctionRef> branches;
    for (std::size_t i = 0; i < branches_.size(); ++i) branches.push_back(unknown_branch(i));
    const Values outs = halves_.unknown_half().emit_all(e_.op, std::move(operands), nullptr, std::move(branches));
    for (int j = 0, next = 0; j < e_.num_out(); ++j)
      if (unknown_out_[j]) halves_.set_unknown(e_.out(j), outs[next++]);
  }

  Halves& halves_;
  const Eqn& e_;
  Mask known_;          // of the branches' operands
  Mask unknown_out_;    // of the results: unknown in some branch
  std::vector<PartialEval> branches_;
  std::vector<int> shared_;   // known branch operands that are residuals
  std::vector<Type> slots_;
  std::vector<std::vector<Place>> places_;  // per branch, per residual
  Values known_outs_;
};

void split_cond(Halves& halves, const Eqn& e, const Mask& known) {
  if (!known[0]) return all_unknown(halves, e, known);
  SplitCond(halves, e, known).run();
}

Values transpose_cond(Builder& b, const Eqn& e, const Values& operands, const Values& cts) {
  const Values args = branch_operands(operands);
  const Mask nonlinear = present(args), ct = present(cts);
  Mask out(count(!nonlinear));
  for (const FunctionRef& branch : e.regions) out = out | transpose(branch, !nonlinear, ct).out;
  Values in(e.num_in());
  if (count(out) == 0) return in;
  const std::vector<Type> types = cotangent_types(types_of(where(branch_operands(e.operands), !nonlinear)));
  std::vector<FunctionRef> branches;
  for (const FunctionRef& branch : e.regions) {
    const Transposed t = transpose(branch, !nonlinear, ct);
    branches.push_back(with_zeros(t.function, t.out, out, types));
  }
  const Values outs =
      b.emit_all(e.op, Values{operands[0]} + where(args, nonlinear) + where(cts, ct), nullptr, std::move(branches));
  for (int k = 1, l = 0, next = 0; k < e.num_in(); ++k)
    if (!nonlinear[k - 1] && out[l++]) in[k] = outs[next++];
  return in;
}

// One index for all examples: the branches are batched.
std::vector<Batched> batch_branches(Builder& b, const Eqn& e, std::span<const Batched> in, const MappedAxis& axis) {
  std::vector<int> dims, out(e.num_out(), -1);
  Values operands;
  for (const Batched& x : in) operands.push_back(x.value);
  for (std::size_t k = 1; k < in.size(); ++k) dims.push_back(in[k].dim);
  for (const FunctionRef& branch : e.regions) {
    const Batch batched = batch(branch, dims, axis);
    for (int j = 0; j < e.num_out(); ++j)
      if (batched.out_dims[j] >= 0) out[j] = 0;
  }
  std::vector<FunctionRef> branches;
  for (const FunctionRef& branch : e.regions) branches.push_back(vmap(branch, dims, out, axis));
  const Values outs = b.emit_all(e.op, std::move(operands), nullptr, std::move(branches));
  std::vector<Batched> results;
  for (int j = 0; j < e.num_out(); ++j) results.push_back({outs[j], out[j]});
  return results;
}

// An index per example: every branch runs on all, and each example picks its own.
std::vector<Batched> batch_cond(Builder& b, const Eqn& e, std::span<const Batched> in, const MappedAxis& axis) {
  if (in[0].dim < 0) return batch_branches(b, e, in, axis);
  std::vector<FunctionRef> branches;
  for (const FunctionRef& branch : e.regions) branches.push_back(without_watchers(branch));
  for (const FunctionRef& branch : branches)
    if (branch->effects() != Effects::none)
      refuse(e, "under vmap every branch runs, so that a branch may not print, check or call back");
  const int last = static_cast<int>(e.regions.size()) - 1;
  const Value index = b.emit(ops::clamp, {b.constant(DType::i32, 0), in[0].value, b.constant(DType::i32, last)});
  std::vector<int> dims;
  for (std::size_t k = 1; k < in.size(); ++k) dims.push_back(is_guarded(in[k]) || in[k].dim >= 0 ? 0 : -1);
  Values chosen;
  for (int i = 0; i <= last; ++i) {
    const Value mine = b.emit(ops::eq, {index, b.constant(DType::i32, i)});  // [size]
    Values operands;
    for (std::size_t k = 1; k < in.size(); ++k)
      operands.push_back(dims[k - 1] < 0 ? in[k].value : guarded(b, mine, place_dim(b, in[k], 0, axis)));
    const FunctionRef branch = vmap(branches[i], dims, std::vector<int>(e.num_out(), 0), axis);
    const Values outs = inline_into(b, *branch, operands);
    for (int j = 0; j < e.num_out(); ++j) {
      if (i == 0) chosen.push_back(outs[j]);
      else chosen[j] = b.emit(ops::select, {ops::broadcast_to(mine, outs[j].dims(), {0}), outs[j], chosen[j]});
    }
  }
  std::vector<Batched> results;
  for (Value v : chosen) results.push_back({v, 0});
  return results;
}

Shrunk shrink_cond(const Eqn& e, const Mask& used) {
  Mask kept(e.num_in() - 1);
  for (const FunctionRef& branch : e.regions) kept = kept | dce(branch, used).kept;
  Shrunk s{.operands = join({true}, kept), .results = used, .attributes = nullptr, .regions = {}};
  for (const FunctionRef& branch : e.regions) s.regions.push_back(with_params_kept(dce(branch, used), kept, branch));
  return s;
}

}  // namespace

const RegionRules cond_rules = {
    .op = &ops::cond,
    .jvp = jvp_cond,
    .partial_eval = split_cond,
    .transpose = transpose_cond,
    .batch = batch_cond,
    .shrink = shrink_cond,
    .improve = improve_cond,
};

}  // namespace sheaf::passes
