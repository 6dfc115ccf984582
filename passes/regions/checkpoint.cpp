// checkpoint: what its policy saves crosses from the known half to the unknown one; the rest is computed again there,
// by a copy of the body that starts from what was saved:
//   %y, %ty = checkpoint %x, %tx       %y, %saved = call @body %x
//                                      %ty = checkpoint %x, %saved, %tx {recomputes=true}
#include <algorithm>

#include "ir/ops/attrs.h"
#include "passes/regions/arrange.h"
#include "passes/regions/call.h"

namespace sheaf::passes {

using namespace ir;

namespace {

bool is_saved(const ops::Checkpoint& policy, const Eqn& e) {
  if (e.op == &ops::checkpoint_name) {
    const bool listed =
        std::find(policy.names.begin(), policy.names.end(), e.attrs<ops::CheckpointName>().name) != policy.names.end();
    return (policy.policy == Policy::names && listed) || (policy.policy == Policy::except_names && !listed);
  }
  if (policy.policy != Policy::dots && policy.policy != Policy::dots_without_batch) return false;
  // Products are told by their ops: lowering is for what is left after the transforms.
  if (e.op == &ops::dot) return policy.policy == Policy::dots || e.attrs<ops::Dot>().lhs_batch.empty();
  return policy.policy == Policy::dots && e.op == &ops::conv;
}

// The named values that hold for whoever reads the same thing under the name: a saved name saves what it names.
Values saved_values(const ops::Checkpoint& policy, const Function& f) {
  Values saved;
  for (const Eqn* e : f.eqns())
    if (is_saved(policy, *e)) saved.push_back(e->out());
  return saved;
}

// f without equations that only have an effect, in regions too: the known half has had them.
FunctionRef without_effects(const FunctionRef& f) {
  if (f->effects() == Effects::none) return f;
  Builder b(f->name());
  ValueTable<Value> map(*f);
  const Values params = clone_params(b, *f, Mask(f->params().size(), true));
  for (std::size_t i = 0; i < params.size(); ++i) map[f->params()[i]] = params[i];
  for (const Eqn* e : f->eqns()) {
    if (e->effects != Effects::none && e->regions.empty() && e->out().dtype() == DType::token) continue;
    Values operands;
    for (Value v : e->operands) operands.push_back(map[v]);
    std::vector<FunctionRef> regions;
    for (const FunctionRef& r : e->regions) regions.push_back(without_effects(r));
    b.set_loc(e->loc, e->how);
    const Values outs = b.emit_all(e->op, std::move(operands), e->attributes, std::move(regions));
    for (int j = 0; j < e->num_out(); ++j) map[e->out(j)] = outs[j];
  }
  Values results;
  for (Value r : f->results()) results.push_back(map[r]);
  return b.finish(std::move(results));
}

// Parameters: f's known ones, the saved values, f's unknown ones. Results: the unknown ones.
FunctionRef recomputing(const Function& f, const Mask& known, const Values& saved, const Mask& wanted) {
  Builder b(f.name() + ".again");
  ValueTable<Value> map(f);
  const Values known_params = clone_params(b, f, known);
  for (Value v : saved) map[v] = b.param(v.type());
  const Values unknown_params = clone_params(b, f, !known);
  for (std::size_t i = 0; i < known.size(); ++i) map[f.params()[i]] = known[i] ? known_params[i] : unknown_params[i];
  for (const Eqn* e : f.eqns()) {
    if (e->num_out() == 1 && map[e->out()]) continue;  // saved
    Values operands;
    for (Value v : e->operands) operands.push_back(map[v]);
    b.set_loc(e->loc, e->how);
    const Values outs = b.clone(*e, std::move(operands));
    for (int j = 0; j < e->num_out(); ++j) map[e->out(j)] = outs[j];
  }
  Values results;
  for (Value r : where(f.results(), wanted)) results.push_back(map[r]);
  return without_effects(b.finish(std::move(results)));
}

void split_checkpoint(Halves& halves, const Eqn& e, const Mask& known) {
  const auto& policy = e.attrs<ops::Checkpoint>();
  if (policy.policy == Policy::everything) return split_call(halves, e.regions[0], e.operands, e.outs(), known);
  // Names and dots inside calls count: the callees are opened.
  const FunctionRef f = policy.policy == Policy::nothing ? e.regions[0] : expand_ops(e.regions[0]);
  const Values candidates = saved_values(policy, *f);
  const PartialEval p = partial_eval(f->with_results(f->results() + candidates), known);
  const std::size_t num_results = f->results().size();
  const Mask known_out = slice(p.known_out, 0, num_results);
  const Values saved = where(candidates, slice(p.known_out, num_results, candidates.size()));

  // One slice of the body gives both the known results and what is saved; residuals are not asked for.
  const int num_known = count(known_out), num_kept = num_known + static_cast<int>(saved.size());
  Values known_outs;
  if (num_kept > 0 || p.known->effects() != Effects::none) {
    Values args;
    for (Value v : where(e.operands, known)) args.push_back(halves.known(v));
    known_outs = call(halves.known_half(), p.known->with_results(slice(p.known->results(), 0, num_kept)), args);
  }
  for (int j = 0, next = 0; j < e.num_out(); ++j)
    if (known_out[j]) halves.set_known(e.out(j), known_outs[next++]);
  if (count(!known_out) == 0) return;

  Values args;
  for (Value v : where(e.operands, known)) args.push_back(halves.unknown(v));
  for (int s = num_known; s < num_kept; ++s) args.push_back(halves.residual(known_outs[s]));
  for (Value v : where(e.operands, !known)) args.push_back(halves.unknown(v));
  ops::Checkpoint attrs = policy;
  attrs.recomputes = true;
  const Values outs = halves.unknown_half().emit_all(&ops::checkpoint, std::move(args),
                                                     std::make_shared<const ops::Checkpoint>(std::move(attrs)),
                                                     {recomputing(*f, known, saved, !known_out)});
  for (int j = 0, next = 0; j < e.num_out(); ++j)
    if (!known_out[j]) halves.set_unknown(e.out(j), outs[next++]);
}

// Stays a checkpoint, so that a further derivative computes again too.
Values transpose_checkpoint(Builder& b, const Eqn& e, const Values& operands, const Values& cts) {
  ops::Checkpoint attrs = e.attrs<ops::Checkpoint>();
  attrs.recomputes = true;
  return transpose_region(b, e, operands, cts, std::make_shared<const ops::Checkpoint>(std::move(attrs)));
}

// The barrier keeps the copy from becoming one with what it repeats.
Values expand(Builder& b, const Eqn& e, const Values& operands) {
  const bool recomputes = e.attrs<ops::Checkpoint>().recomputes && !operands.empty();
  return inline_into(b, *e.regions[0], recomputes ? b.emit_all(&ops::barrier, operands) : operands);
}

}  // namespace

const RegionRules checkpoint_rules = {
    .op = &ops::checkpoint,
    .jvp = jvp_of_region,
    .partial_eval = split_checkpoint,
    .transpose = transpose_checkpoint,
    .batch = batch_region,
    .shrink = shrink_region,
    .expand = expand,
};

}  // namespace sheaf::passes
