// call: every transform of the equation is a call of the transformed callee.
//   %y = call @f %x          %y, %ty = call @f.jvp %x, %tx
#include "passes/regions/call.h"

#include "ir/ops/attrs.h"

namespace sheaf::passes {

using namespace ir;

Dual jvp_of_region(Builder& b, const Eqn& e, const Values& operands, const Values& tangents) {
  const Mask nonzero = present(tangents);
  const Jvp callee = jvp(e.regions[0], nonzero);
  const Values outs = b.emit_all(e.op, operands + where(tangents, nonzero), e.attributes, {callee.function});
  Dual dual{slice(outs, 0, e.num_out()), Values(e.num_out())};
  for (int j = 0, next = e.num_out(); j < e.num_out(); ++j)
    if (callee.out[j]) dual.tangents[j] = outs[next++];
  return dual;
}

Values transpose_region(Builder& b, const Eqn& e, const Values& operands, const Values& cts,
                        std::shared_ptr<const void> attributes) {
  const Mask nonlinear = present(operands), ct = present(cts);
  const Transposed t = transpose(e.regions[0], !nonlinear, ct);
  Values in(e.num_in());
  if (t.function->results().empty()) return in;
  const Values outs =
      b.emit_all(e.op, where(operands, nonlinear) + where(cts, ct), std::move(attributes), {t.function});
  int of_linear = 0, next = 0;
  for (int k = 0; k < e.num_in(); ++k)
    if (!nonlinear[k] && t.out[of_linear++]) in[k] = outs[next++];
  return in;
}

std::vector<Batched> batch_region(Builder& b, const Eqn& e, std::span<const Batched> in, const MappedAxis& axis) {
  std::vector<int> dims;
  Values operands;
  for (const Batched& x : in) {
    dims.push_back(x.dim);
    operands.push_back(x.value);
  }
  const Batch callee = batch(e.regions[0], dims, axis);
  const Values outs = b.emit_all(e.op, std::move(operands), e.attributes, {callee.function});
  std::vector<Batched> out;
  for (std::size_t j = 0; j < outs.size(); ++j) out.push_back({outs[j], callee.out_dims[j]});
  return out;
}

Shrunk shrink_region(const Eqn& e, const Mask& used) {
  const Dce callee = dce(e.regions[0], used);
  return {.operands = callee.kept, .results = used, .attributes = e.attributes, .regions = {callee.function}};
}

// The known half returns the callee's residuals, which become ours.
void split_call(Halves& halves, const FunctionRef& f, const Values& operands, const Values& results,
                const Mask& known) {
  const PartialEval p = partial_eval(f, known);
  Values known_args, known_outs, args;
  for (Value v : where(operands, known)) known_args.push_back(halves.known(v));
  if (!p.known->results().empty()) known_outs = call(halves.known_half(), p.known, known_args);
  int next = 0;
  for (std::size_t j = 0; j < results.size(); ++j)
    if (p.known_out[j]) halves.set_known(results[j], known_outs[next++]);
  if (p.unknown->results().empty() && p.unknown->effects() == Effects::none) return;
  for (const Residual& r : p.residuals)
    args.push_back(r.is_input ? halves.unknown(operands[r.index]) : halves.residual(known_outs[r.index]));
  for (Value v : where(operands, !known)) args.push_back(halves.unknown(v));
  const Values outs = call(halves.unknown_half(), p.unknown, std::move(args));
  next = 0;
  for (std::size_t j = 0; j < results.size(); ++j)
    if (!p.known_out[j]) halves.set_unknown(results[j], outs[next++]);
}

void all_unknown(Halves& halves, const Eqn& e, const Mask&) {
  Values operands;
  for (Value v : e.operands) operands.push_back(halves.unknown(v));
  const Values outs = halves.unknown_half().clone(e, std::move(operands));
  for (int j = 0; j < e.num_out(); ++j) halves.set_unknown(e.out(j), outs[j]);
}

namespace {

void split(Halves& halves, const Eqn& e, const Mask& known) {
  split_call(halves, e.regions[0], e.operands, e.outs(), known);
}

Values transpose_call(Builder& b, const Eqn& e, const Values& operands, const Values& cts) {
  return transpose_region(b, e, operands, cts, e.attributes);
}

Values expand(Builder& b, const Eqn& e, const Values& operands) { return inline_into(b, *e.regions[0], operands); }

}  // namespace

const RegionRules call_rules = {
    .op = &ops::call,
    .jvp = jvp_of_region,
    .partial_eval = split,
    .transpose = transpose_call,
    .batch = batch_region,
    .shrink = shrink_region,
    .expand = expand,
};

}  // namespace sheaf::passes
