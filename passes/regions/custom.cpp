// Custom derivatives: the rule the user gave takes the place of the derivative of what he wrote. custom_vjp becomes its
// forward function and a linear map known only by its transpose; that map is transposed where its own value is needed.
//   %y = custom_vjp %x     %y, %res = call @fwd %x;  %ty = custom_linear %res, %tx {residuals}(bwd)
#include <fmt/format.h>

#include <algorithm>

#include "ir/manual.h"
#include "ir/ops/attrs.h"
#include "ir/ops/regions.h"
#include "passes/regions/arrange.h"
#include "passes/regions/call.h"
#include "sheaf/error.h"

namespace sheaf::passes {

using namespace ir;

namespace {

Mask floats(const std::vector<Type>& types) {
  Mask m;
  for (Type t : types) m.push_back(is_differentiable(t.dtype()));
  return m;
}

std::vector<int> zero_or_none(std::span<const Batched> in) {
  std::vector<int> dims;
  for (const Batched& x : in) dims.push_back(x.dim < 0 ? -1 : 0);
  return dims;
}

// The operands with their batch dims in front; none where `dims` says so.
Values placed(Builder& b, std::span<const Batched> in, const std::vector<int>& dims, const MappedAxis& axis) {
  Values values;
  for (std::size_t k = 0; k < in.size(); ++k)
    values.push_back(dims[k] < 0 ? in[k].value : place_dim(b, in[k], 0, axis));
  return values;
}

std::vector<Batched> all_in_front(const Values& outs) {
  std::vector<Batched> out;
  for (Value v : outs) out.push_back({v, 0});
  return out;
}

// Throws the user's error at e's line, in the name of what he called to give the rule.
[[noreturn]] void refuse_rule(const Eqn& e, const std::string& why) {
  const bool has_both = e.op == &ops::custom_vjp && e.regions.size() == 4;
  const std::string_view who = has_both                      ? "custom_rule"
                               : e.op == &ops::custom_linear ? ops::custom_vjp.name
                                                             : e.op->name;
  throw TypeError(e.loc, fmt::format("{}: {}", who, why));
}

// Tangents of the float operands past `consts`, zeros made; a tangent of a capture has no rule.
Values tangents_of_args(Builder& b, const Eqn& e, const Values& tangents, int consts) {
  Values t;
  for (int k = 0; k < e.num_in(); ++k) {
    if (k < consts) {
      if (tangents[k])
        refuse_rule(
            e,
            "the function captures a value that the derivative is taken with respect to; the rule says nothing of it: "
            "pass it as an argument");
    } else if (is_differentiable(e.in(k).dtype())) {
      t.push_back(tangents[k] ? tangents[k] : b.zeros(e.in(k).type()));
    }
  }
  return t;
}

Dual with_float_tangents(const Eqn& e, const Values& primals, const Values& tangents) {
  Dual dual{primals, Values(e.num_out())};
  for (int j = 0, next = 0; j < e.num_out(); ++j)
    if (is_differentiable(e.out(j).dtype())) dual.tangents[j] = tangents[next++];
  return dual;
}

// custom_jvp

Dual jvp_custom_jvp(Builder& b, const Eqn& e, const Values& operands, const Values& tangents) {
  const Values t = tangents_of_args(b, e, tangents, e.attrs<ops::CustomJvp>().consts);
  const Values outs = call(b, e.regions[1], operands + t);
  return with_float_tangents(e, slice(outs, 0, e.num_out()), slice(outs, e.num_out(), outs.size() - e.num_out()));
}

// A function used linearly is transposed as what it computes.
Values transpose_value(Builder& b, const Eqn& e, const Values& operands, const Values& cts) {
  const Eqn as_call{.op = &ops::call, .operands = e.operands, .results = e.results, .regions = {e.regions[0]}};
  return transpose_region(b, as_call, operands, cts, nullptr);
}

std::vector<Batched> batch_custom_jvp(Builder& b, const Eqn& e, std::span<const Batched> in, const MappedAxis& axis) {
  const int consts = e.attrs<ops::CustomJvp>().consts;
  const std::vector<int> dims = zero_or_none(in);
  const std::vector<Type> types = e.in_types();
  const Mask float_args = floats(slice(types, consts, types.size() - consts));
  const std::vector<int> rule_dims = ops::joined(dims, where(slice(dims, consts, dims.size() - consts), float_args));
  std::vector<int> out = batch(e.regions[0], dims, axis).out_dims;
  const std::vector<int> rule_out = batch(e.regions[1], rule_dims, axis).out_dims;
  const Mask float_out = floats(e.regions[0]->result_types());
  for (int j = 0, t = e.num_out(); j < e.num_out(); ++j) {
    const bool tangent_is_batched = float_out[j] && rule_out[t++] >= 0;
    out[j] = out[j] >= 0 || rule_out[j] >= 0 || tangent_is_batched ? 0 : -1;
  }
  const FunctionRef f = vmap(e.regions[0], dims, out, axis);
  const FunctionRef rule = vmap(e.regions[1], rule_dims, ops::joined(out, where(out, float_out)), axis);
  const Values outs = b.emit_all(e.op, placed(b, in, dims, axis), e.attributes, {f, rule});
  std::vector<Batched> results;
  for (int j = 0; j < e.num_out(); ++j) results.push_back({outs[j], out[j]});
  return results;
}

Values expand_first(Builder& b, const Eqn& e, const Values& operands) {
  return inline_into(b, *e.regions[0], operands);
}

// custom_vjp

// f of the parameters in `kept`, as a function of values of `types`; its first `dropped` results go.
FunctionRef widened(const FunctionRef& f, const std::vector<Type>& types, const Mask& kept, std::size_t dropped) {
  Builder b(f->name());
  Values params;
  for (Type t : types) params.push_back(b.param(t));
  const Values results = call(b, f, where(params, kept));
  return b.finish(slice(results, dropped, results.size() - dropped));
}

// The two halves of custom_linear for a function with rules both ways: backward reads captures, residuals and
// cotangents, the rule captures, arguments and tangents; both are given captures, residuals and arguments.
std::vector<FunctionRef> both_maps(const Eqn& e, const Values& residuals, const Values& args) {
  const int consts = e.attrs<ops::CustomVjp>().consts;
  const FunctionRef &backward = e.regions[2], &rule = e.regions[3];
  std::vector<Type> given;
  for (Value v : residuals + args) given.push_back(v.type());
  const auto appended = [](std::vector<Type> types, const FunctionRef& f, std::size_t from) {
    for (std::size_t i = from; i < f->params().size(); ++i) types.push_back(f->params()[i].type());
    return types;
  };
  const std::size_t cotangents = backward->params().size() - residuals.size();
  const std::size_t tangents = rule->params().size() - e.operands.size();
  const Mask reads_residuals = join(Mask(residuals.size(), true), Mask(args.size(), false), Mask(cotangents, true));
  const Mask reads_args = join(join(Mask(consts, true), Mask(residuals.size() - consts, false)),
                               Mask(args.size(), true), Mask(tangents, true));
  return {widened(backward, appended(given, backward, residuals.size()), reads_residuals, 0),
          widened(rule, appended(given, rule, e.operands.size()), reads_args, e.num_out())};
}

Dual jvp_custom_vjp(Builder& b, const Eqn& e, const Values& operands, const Values& tangents) {
  const int consts = e.attrs<ops::CustomVjp>().consts;
  const Values t = tangents_of_args(b, e, tangents, consts);
  const Values outs = call(b, e.regions[1], operands);
  const Values residuals = slice(operands, 0, consts) + slice(outs, e.num_out(), outs.size() - e.num_out());
  const bool has_rule = e.regions.size() == 4;
  const Values args = has_rule ? slice(operands, consts, operands.size() - consts) : Values{};
  const ops::CustomLinear attrs{.residuals = static_cast<int>(residuals.size() + args.size())};
  const Values tangent_outs =
      b.emit_all(&ops::custom_linear, residuals + args + t, std::make_shared<const ops::CustomLinear>(attrs),
                 has_rule ? both_maps(e, residuals, args) : std::vector{e.regions[2]});
  return with_float_tangents(e, slice(outs, 0, e.num_out()), tangent_outs);
}

// All parameters past the first, whose dims are given, and all results are batched in front.
FunctionRef batched_past(const FunctionRef& f, std::vector<int> first, const MappedAxis& axis) {
  first.resize(f->params().size(), 0);
  return vmap(f, first, std::vector<int>(f->results().size(), 0), axis);
}

// Arguments, residuals and cotangents are all batched, so that a cotangent is an example's own; captures may be shared.
std::vector<Batched> batch_custom_vjp(Builder& b, const Eqn& e, std::span<const Batched> in, const MappedAxis& axis) {
  const int consts = e.attrs<ops::CustomVjp>().consts;
  std::vector<int> dims = zero_or_none(in);
  std::fill(dims.begin() + consts, dims.end(), 0);
  std::vector<FunctionRef> regions;
  for (const FunctionRef& f : e.regions) regions.push_back(batched_past(f, slice(dims, 0, consts), axis));
  return all_in_front(b.emit_all(e.op, placed(b, in, dims, axis), e.attributes, std::move(regions)));
}

// custom_linear

// Residuals, tangents -> tangents of the results: what the user gave, or the transpose of what he gave.
FunctionRef forward_map(const Eqn& e) {
  if (e.regions.size() == 2) return e.regions[1];
  const FunctionRef& backward = e.regions[0];
  Mask linear(backward->params().size(), true);
  std::fill_n(linear.begin(), e.attrs<ops::CustomLinear>().residuals, false);
  if (!is_linear(backward, linear))
    refuse_rule(e,
                "the forward derivative is the transpose of the backward function, which is not linear in the "
                "cotangents");
  return transpose(backward, linear, Mask(backward->results().size(), true), true).function;
}

Dual jvp_custom_linear(Builder& b, const Eqn& e, const Values& operands, const Values& tangents) {
  const Mask nonzero = present(tangents);
  const Jvp f = jvp(forward_map(e), nonzero);
  const Values outs = call(b, f.function, operands + where(tangents, nonzero));
  Dual dual{slice(outs, 0, e.num_out()), Values(e.num_out())};
  for (int j = 0, next = e.num_out(); j < e.num_out(); ++j)
    if (f.out[j]) dual.tangents[j] = outs[next++];
  return dual;
}

Values transpose_custom_linear(Builder& b, const Eqn& e, const Values& operands, const Values& cts) {
  const int residuals = e.attrs<ops::CustomLinear>().residuals;
  Values args = slice(operands, 0, residuals);
  for (int j = 0; j < e.num_out(); ++j) args.push_back(cts[j] ? cts[j] : b.zeros(cotangent_type(e.out(j).type())));
  const Values outs = call(b, e.regions[0], std::move(args));
  return Values(residuals) + outs;
}

std::vector<Batched> batch_custom_linear(Builder& b, const Eqn& e, std::span<const Batched> in,
                                         const MappedAxis& axis) {
  const int residuals = e.attrs<ops::CustomLinear>().residuals;
  std::vector<int> dims = zero_or_none(in);
  std::fill(dims.begin() + residuals, dims.end(), 0);
  std::vector<FunctionRef> regions;
  for (const FunctionRef& f : e.regions) regions.push_back(batched_past(f, slice(dims, 0, residuals), axis));
  return all_in_front(b.emit_all(e.op, placed(b, in, dims, axis), e.attributes, std::move(regions)));
}

Values expand_custom_linear(Builder& b, const Eqn& e, const Values& operands) {
  return inline_into(b, *forward_map(e), operands);
}

// custom_linear_solve: x = solve(b) where matvec(x) = b, so matvec(tx) = tb - tmatvec(x).

Dual jvp_solve(Builder& b, const Eqn& e, const Values& operands, const Values& tangents) {
  const int consts = e.attrs<ops::CustomLinearSolve>().consts, n = e.num_out();
  const Values captured = slice(operands, 0, consts);
  const Values x = b.clone(e, operands);
  Values rhs = slice(tangents, consts, n);
  Mask nonzero = present(slice(tangents, 0, consts));
  if (count(nonzero) > 0) {
    Mask with_x = nonzero;
    with_x.resize(consts + n, false);
    const Jvp matvec = jvp(e.regions[0], with_x);
    const Values outs = call(b, matvec.function, captured + x + where(slice(tangents, 0, consts), nonzero));
    for (int j = 0, next = n; j < n; ++j) {
      if (!matvec.out[j]) continue;
      const Value moved = outs[next++];
      rhs[j] = rhs[j] ? rhs[j] - moved : -moved;
    }
  }
  if (count(present(rhs)) == 0) return {x, Values(n)};
  for (int j = 0; j < n; ++j)
    if (!rhs[j]) rhs[j] = b.zeros(e.out(j).type());
  return {x, b.clone(e, captured + rhs)};
}

Values transpose_solve(Builder& b, const Eqn& e, const Values& operands, const Values& cts) {
  const int consts = e.attrs<ops::CustomLinearSolve>().consts;
  if (e.regions.size() < 3)
    refuse(e, "the reverse derivative needs the solve of the transposed map, which was not given");
  Mask linear(e.regions[0]->params().size(), true);
  std::fill_n(linear.begin(), consts, false);
  const FunctionRef transposed = transpose(e.regions[0], linear, Mask(e.num_out(), true), true).function;
  Values args = slice(operands, 0, consts);
  for (int j = 0; j < e.num_out(); ++j) args.push_back(cts[j] ? cts[j] : b.zeros(cotangent_type(e.out(j).type())));
  const Values outs = b.emit_all(e.op, std::move(args), e.attributes, {transposed, e.regions[2], e.regions[1]});
  return Values(consts) + outs;
}

std::vector<Batched> batch_solve(Builder& b, const Eqn& e, std::span<const Batched> in, const MappedAxis& axis) {
  const int consts = e.attrs<ops::CustomLinearSolve>().consts;
  std::vector<int> dims = zero_or_none(in);
  std::fill(dims.begin() + consts, dims.end(), 0);
  std::vector<FunctionRef> regions;
  for (const FunctionRef& f : e.regions) regions.push_back(vmap(f, dims, std::vector<int>(e.num_out(), 0), axis));
  return all_in_front(b.emit_all(e.op, placed(b, in, dims, axis), e.attributes, std::move(regions)));
}

Values expand_solve(Builder& b, const Eqn& e, const Values& operands) {
  return inline_into(b, *e.regions[1], operands);
}

}  // namespace

const RegionRules custom_jvp_rules = {
    .op = &ops::custom_jvp,
    .jvp = jvp_custom_jvp,
    .partial_eval = all_unknown,
    .transpose = transpose_value,
    .batch = batch_custom_jvp,
    .expand = expand_first,
};

const RegionRules custom_vjp_rules = {
    .op = &ops::custom_vjp,
    .jvp = jvp_custom_vjp,
    .partial_eval = all_unknown,
    .transpose = transpose_value,
    .batch = batch_custom_vjp,
    .expand = expand_first,
};

const RegionRules custom_linear_rules = {
    .op = &ops::custom_linear,
    .jvp = jvp_custom_linear,
    .partial_eval = all_unknown,
    .transpose = transpose_custom_linear,
    .batch = batch_custom_linear,
    .expand = expand_custom_linear,
};

const RegionRules custom_linear_solve_rules = {
    .op = &ops::custom_linear_solve,
    .jvp = jvp_solve,
    .partial_eval = all_unknown,
    .transpose = transpose_solve,
    .batch = batch_solve,
    .expand = expand_solve,
};

}  // namespace sheaf::passes
