// while: forward derivatives and batching are those of a scan without stacks; backwards it must have a bound, and is a
// scan of that many steps, each of which runs the body only while the condition holds:
//   %k' = while %k {max_trips=n} (cond){..} (body){..}
//   %live', %k' = scan true, %k {length=n} { %l = cond(%live){cond}{false};  %k = cond(%l){body}{identity} }
#include "ir/ops/attrs.h"
#include "ir/ops/regions.h"
#include "ir/ops/rules.h"
#include "passes/loops.h"
#include "passes/regions/arrange.h"
#include "passes/regions/call.h"
#include "passes/regions/guard.h"

namespace sheaf::passes {

using namespace ir;

namespace {

struct Roles {
  explicit Roles(const Eqn& e)
      : attrs(e.attrs<ops::While>()),
        cond_consts(attrs.cond_consts),
        body_consts(attrs.body_consts),
        carry(e.num_in() - cond_consts - body_consts) {}
  ops::While attrs;
  int cond_consts, body_consts, carry;

  template <class List>
  List of_cond(const List& v) const {
    return slice(v, 0, cond_consts);
  }
  template <class List>
  List of_body(const List& v) const {
    return slice(v, cond_consts, body_consts);
  }
  template <class List>
  List of_carry(const List& v) const {
    return slice(v, cond_consts + body_consts, carry);
  }
};

Values emit_while(Builder& b, Values operands, ops::While attrs, FunctionRef cond, FunctionRef body) {
  return b.emit_all(&ops::while_, std::move(operands), std::make_shared<const ops::While>(attrs),
                    {std::move(cond), std::move(body)});
}

// f with parameters of `extra` types at the end, which nobody reads.
FunctionRef with_dead_params(const FunctionRef& f, const std::vector<Type>& extra) {
  if (extra.empty()) return f;
  Builder b(f->name());
  const Values params = clone_params(b, *f, Mask(f->params().size(), true));
  for (Type t : extra) b.param(t);
  return b.finish(inline_into(b, *f, params));
}

Dual jvp_while(Builder& b, const Eqn& e, const Values& operands, const Values& tangents) {
  const Roles r(e);
  const Mask given = present(tangents);
  Mask carry = r.of_carry(given);
  Jvp body;
  for (bool stable = false; !stable;) {
    body = jvp(e.regions[1], join(r.of_body(given), carry), carry);
    const Mask next = carry | body.out;
    stable = next == carry;
    carry = next;
  }
  Values carry_tangents;
  std::vector<Type> carry_types;
  for (int k = 0; k < r.carry; ++k) {
    if (!carry[k]) continue;
    const Value t = r.of_carry(tangents)[k];
    carry_tangents.push_back(t ? t : b.zeros(e.out(k).type()));
    carry_types.push_back(e.out(k).type());
  }
  Order results;
  for (int j = 0; j < r.carry + count(carry); ++j) results.push_back(j);
  const FunctionRef body_function =
      arranged(body.function, beside({r.body_consts, r.carry}, join(r.of_body(given), carry)), results);
  ops::While attrs = r.attrs;
  attrs.body_consts += count(r.of_body(given));
  const Values all = r.of_cond(operands) + r.of_body(operands) + where(r.of_body(tangents), r.of_body(given)) +
                     r.of_carry(operands) + carry_tangents;
  const Values outs = emit_while(b, all, attrs, with_dead_params(e.regions[0], carry_types), body_function);
  Dual dual{slice(outs, 0, r.carry), Values(r.carry)};
  for (int k = 0, next = r.carry; k < r.carry; ++k)
    if (carry[k]) dual.tangents[k] = outs[next++];
  return dual;
}

// As long as the condition `f` it takes the place of says of other steps.
FunctionRef constant_false(const Function& f) {
  Builder b("done");
  for (const Value p : f.params()) b.param(p.type());
  return b.finish({b.zeros(f.results()[0].type())});
}

FunctionRef identity(const std::vector<Type>& params, std::size_t from) {
  Builder b("keep");
  for (Type t : params) b.param(t);
  return b.finish(slice(b.params(), from, params.size() - from));
}

// One step of the scan. Parameters: consts of both, then live, carry; results: live, carry. A cond per step and not a
// select, so that steps past the end cost next to nothing and compute nothing that could be infinite.
FunctionRef step_of(const Eqn& e, const Roles& r) {
  const Function &cond = *e.regions[0], &body = *e.regions[1];
  Builder b(body.name() + ".step");
  b.set_loc(e.loc, e.how);
  const auto params = [&](const Values& like) {
    Values made;
    for (Value v : like) made.push_back(b.param(v.type(), v.name()));
    return made;
  };
  const Values cond_consts = params(slice(cond.params(), 0, r.cond_consts));
  const Values body_consts = params(slice(body.params(), 0, r.body_consts));
  const Value live = b.param(cond.results()[0].type());
  const Values carry = params(slice(body.params(), r.body_consts, r.carry));
  const auto choose = [&](Value pred, const Values& operands, FunctionRef otherwise, FunctionRef then) {
    const Value index = b.emit(ops::convert, {pred}, ops::Convert{.to = DType::i32});
    return b.emit_all(&ops::cond, Values{index} + operands, nullptr, {std::move(otherwise), std::move(then)});
  };
  const Value goes_on = choose(live, cond_consts + carry, constant_false(cond), e.regions[0])[0];
  const Values next = choose(goes_on, body_consts + carry, identity(body.param_types(), r.body_consts), e.regions[1]);
  return b.finish(Values{goes_on} + next);
}

FunctionRef as_scan(const Eqn& e) {
  const Roles r(e);
  Builder b("bounded");
  b.set_loc(e.loc, e.how);
  Values params;
  for (Value v : e.operands) params.push_back(b.param(v.type()));
  const Values operands =
      slice(params, 0, r.cond_consts + r.body_consts) + Values{b.constant(DType::bool_, 1)} + r.of_carry(params);
  const Values outs =
      b.emit_all(&ops::scan, operands,
                 std::make_shared<const ops::Scan>(ops::Scan{
                     .consts = r.cond_consts + r.body_consts, .carry = r.carry + 1, .length = r.attrs.max_trips}),
                 {step_of(e, r)});
  return b.finish(slice(outs, 1, r.carry));
}

void split_while(Halves& halves, const Eqn& e, const Mask& known) {
  if (e.attrs<ops::While>().max_trips < 0)
    refuse(e,
           "the reverse derivative needs a bound on the number of steps: give while_loop max_trips, or use scan or "
           "fori_loop with a fixed number of steps");
  split_call(halves, as_scan(e), e.operands, e.outs(), known);
}

Values transpose_while(Builder&, const Eqn& e, const Values&, const Values&) {
  refuse(e, "a loop without a fixed number of steps cannot be transposed");
}

// The loop goes on while any example does.
FunctionRef while_any(const FunctionRef& cond) {
  Builder b(cond->name() + ".any");
  const Values params = clone_params(b, *cond, Mask(cond->params().size(), true));
  return b.finish({ops::reduce_dims(inline_into(b, *cond, params)[0], ReduceKind::or_, {0})});
}

// Parameters: consts of the condition, consts of the body, carry. Examples that are done keep their carry.
FunctionRef frozen_when_done(const FunctionRef& cond, const FunctionRef& body, const Roles& r) {
  Builder b(body->name() + ".frozen");
  Mask of_cond(cond->params().size(), false);
  for (int k = 0; k < r.cond_consts; ++k) of_cond[k] = true;
  const Values cond_consts = where(clone_params(b, *cond, of_cond), of_cond);
  const Values params = clone_params(b, *body, Mask(body->params().size(), true));
  const Values carry = slice(params, r.body_consts, r.carry);
  const Value live = inline_into(b, *cond, cond_consts + carry)[0];  // [size]
  Values guarded_carry;
  for (Value v : carry) guarded_carry.push_back(guarded(b, live, v));
  const Values next = inline_into(b, *body, slice(params, 0, r.body_consts) + guarded_carry);
  Values kept;
  for (int k = 0; k < r.carry; ++k)
    kept.push_back(b.emit(ops::select, {ops::broadcast_to(live, carry[k].dims(), {0}), next[k], carry[k]}));
  return b.finish(std::move(kept));
}

std::vector<Batched> batch_while(Builder& b, const Eqn& e, std::span<const Batched> in, const MappedAxis& axis) {
  const Roles r(e);
  std::vector<int> dims;
  for (const Batched& x : in) dims.push_back(x.dim < 0 ? -1 : 0);
  const int fixed = r.cond_consts + r.body_consts;
  bool lanes_differ = false;  // in when they stop
  for (bool stable = false; !stable;) {
    stable = true;
    const std::vector<int> carry = r.of_carry(dims);
    const auto make_batched = [&](int k) {
      if (dims[fixed + k] == 0) return;
      dims[fixed + k] = 0;
      stable = false;
    };
    lanes_differ = batch(e.regions[0], ops::joined(r.of_cond(dims), carry), axis).out_dims[0] >= 0;
    const std::vector<int> out = batch(e.regions[1], ops::joined(r.of_body(dims), carry), axis).out_dims;
    for (int k = 0; k < r.carry; ++k)
      if (lanes_differ || out[k] >= 0) make_batched(k);
  }
  Values operands;
  for (int k = 0; k < e.num_in(); ++k) operands.push_back(dims[k] < 0 ? in[k].value : place_dim(b, in[k], 0, axis));
  const std::vector<int> carry_dims = r.of_carry(dims);
  // Examples that are done still run the body.
  const std::vector<FunctionRef> regions = lanes_differ ? in_regions(e, without_watchers) : e.regions;
  FunctionRef cond = vmap(regions[0], ops::joined(r.of_cond(dims), carry_dims), {lanes_differ ? 0 : -1}, axis);
  FunctionRef body = vmap(regions[1], ops::joined(r.of_body(dims), carry_dims), carry_dims, axis);
  ops::While attrs = r.attrs;
  if (lanes_differ) {
    if (regions[0]->effects() != Effects::none || regions[1]->effects() != Effects::none)
      refuse(
          e,
          "under vmap an example that is done goes along until the last one is, so that where they stop at different "
          "steps the loop may not print, check or call back");
    body = frozen_when_done(cond, body, r);
    attrs.body_consts += r.cond_consts;
    operands = r.of_cond(operands) + r.of_cond(operands) + r.of_body(operands) + r.of_carry(operands);
    cond = while_any(cond);
  }
  const Values outs = emit_while(b, std::move(operands), attrs, cond, body);
  std::vector<Batched> results;
  for (int k = 0; k < r.carry; ++k) results.push_back({outs[k], carry_dims[k]});
  return results;
}

// A carry lives if its last value or the condition reads it, or the body for something that lives.
Shrunk shrink_while(const Eqn& e, const Mask& used) {
  const Roles r(e);
  Mask carry = used;
  const Dce cond = dce(e.regions[0], {true});
  carry = carry | slice(cond.kept, r.cond_consts, r.carry);
  Dce body;
  for (bool stable = false; !stable;) {
    body = dce(e.regions[1], carry);
    const Mask next = carry | slice(body.kept, r.body_consts, r.carry);
    stable = next == carry;
    carry = next;
  }
  const Mask cond_consts = slice(cond.kept, 0, r.cond_consts), body_consts = slice(body.kept, 0, r.body_consts);
  ops::While attrs = r.attrs;
  attrs.cond_consts = count(cond_consts);
  attrs.body_consts = count(body_consts);
  return {.operands = join(cond_consts, body_consts, carry),
          .results = carry,
          .attributes = std::make_shared<const ops::While>(attrs),
          .regions = {with_params_kept(cond, join(cond_consts, carry), e.regions[0]),
                      with_params_kept(body, join(body_consts, carry), e.regions[1])}};
}

}  // namespace

const RegionRules while_rules = {
    .op = &ops::while_,
    .jvp = jvp_while,
    .partial_eval = split_while,
    .transpose = transpose_while,
    .batch = batch_while,
    .shrink = shrink_while,
    .improve = improve_while,
};

}  // namespace sheaf::passes
