// What a loop need not do again at each step is done once, outside; what a branch does not choose at run time is chosen
// now. Bits do not change: equal operations on equal operands.
//   a carry the body passes on as it is          becomes a const
//   work on consts alone                         is done before the loop:  scan { sin %w; .. } -> sin %w; scan { .. }
//   scan of 0 steps, of 1, or unroll=n           no loop, the body, n bodies a step
//   cond on a constant                           the branch
#include "passes/loops.h"

#include <algorithm>
#include <numeric>

#include "ir/builder.h"
#include "ir/op.h"
#include "ir/ops/attrs.h"
#include "ir/ops/rules.h"
#include "ir/rewrite.h"
#include "passes/memo.h"
#include "passes/regions/arrange.h"

namespace sheaf::passes {

using namespace ir;

namespace {

Order range(int from, int to) {
  Order order(to - from);
  std::iota(order.begin(), order.end(), from);
  return order;
}
using sheaf::passes::operator+;  // of values
Order operator+(Order a, const Order& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// Carries that body results pass on: their positions.
Order unchanged_carries(const Function& body, int consts, int carry) {
  Order unchanged;
  for (int k = 0; k < carry; ++k)
    if (body.results()[k] == body.params()[consts + k]) unchanged.push_back(k);
  return unchanged;
}

Order others(int size, const Order& without) {
  Order rest;
  for (int k = 0; k < size; ++k)
    if (std::find(without.begin(), without.end(), k) == without.end()) rest.push_back(k);
  return rest;
}

Order shifted(Order order, int by) {
  for (int& i : order) i += by;
  return order;
}

// --- scan
// -------------------------------------------------------------------------------------------------------------

struct Loop {
  ops::Scan attrs;
  FunctionRef body;
  Values operands;
};

Values emit(Builder& b, const Loop& loop) {
  return b.emit_all(&ops::scan, loop.operands, std::make_shared<const ops::Scan>(loop.attrs), {loop.body});
}

// Moves unchanged carries to the consts; `final` gets the value each result of the original then has, null where it is
// still the loop's.
Loop without_unchanged(Loop loop, Values& final) {
  const int consts = loop.attrs.consts, carry = loop.attrs.carry;
  final.assign(loop.body->results().size(), Value());
  const Order fixed = unchanged_carries(*loop.body, consts, carry);
  if (fixed.empty()) return loop;
  for (int k : fixed) final[k] = loop.operands[consts + k];
  const Order moving = others(carry, fixed);
  const int n = static_cast<int>(loop.operands.size());
  const Order params = range(0, consts) + shifted(fixed, consts) + shifted(moving, consts) + range(consts + carry, n);
  loop.body = arranged(loop.body, params, moving + range(carry, static_cast<int>(loop.body->results().size())));
  loop.operands = pick(loop.operands, params);
  loop.attrs.consts += static_cast<int>(fixed.size());
  loop.attrs.carry -= static_cast<int>(fixed.size());
  return loop;
}

bool is_view(const Eqn& e) {
  const Lowering l = e.op->lower(e);
  return std::holds_alternative<lowering::View>(l) || std::holds_alternative<lowering::Reshape>(l) ||
         std::holds_alternative<lowering::Iota>(l) || e.op == &ops::constant;
}

bool is_larger_than_operands(const Eqn& e) {
  std::int64_t in = 0, out = 0;
  for (Value v : e.operands) in = std::max(in, v.type().num_elements());
  for (Value v : e.outs()) out = std::max(out, v.type().num_elements());
  return out > in;
}

// Values of the body computed from its first `consts` parameters alone that others read: worth keeping from step to
// step. Views are made where they are read, and what is larger than all it is made of is cheaper to make than to read.
Values invariants(const Function& body, int consts) {
  ValueTable<char> invariant(body, 0), hoisted(body, 0), wanted(body, 0);
  for (int k = 0; k < consts; ++k) invariant[body.params()[k]] = 1;
  for (const Eqn* e : body.eqns()) {
    bool all = e->effects == Effects::none, all_hoisted = true;
    for (Value v : e->operands) {
      all = all && invariant[v];
      all_hoisted = all_hoisted && (v.is_param() || hoisted[v] || is_view(*v.eqn()));
    }
    const bool hoist = all && all_hoisted && e->num_in() > 0 && !is_view(*e) && !is_larger_than_operands(*e);
    for (Value v : e->outs()) {
      invariant[v] = all;
      hoisted[v] = hoist;
    }
  }
  const auto want = [&](Value v) {
    if (hoisted[v]) wanted[v] = 1;
  };
  for (const Eqn* e : body.eqns())
    if (e->num_out() == 0 || !hoisted[e->out()])
      for (Value v : e->operands) want(v);
  for (Value r : body.results()) want(r);
  Values values;
  for (const Eqn* e : body.eqns())
    for (Value v : e->outs())
      if (wanted[v]) values.push_back(v);
  return values;
}

// The body with `values` as further parameters after the first `consts`.
FunctionRef with_given(const Function& body, int consts, const Values& values) {
  Builder b(body.name());
  ValueTable<Value> map(body);
  const auto param = [&](std::size_t i) {
    map[body.params()[i]] = b.param(body.params()[i].type(), body.params()[i].name());
  };
  for (int i = 0; i < consts; ++i) param(i);
  for (Value v : values) map[v] = b.param(v.type());
  for (std::size_t i = consts; i < body.params().size(); ++i) param(i);
  for (const Eqn* e : body.eqns()) {
    Values operands;
    for (Value v : e->operands) operands.push_back(map[v]);
    b.set_loc(e->loc, e->how);
    const Values outs = b.clone(*e, std::move(operands));
    for (int j = 0; j < e->num_out(); ++j)
      if (!map[e->out(j)]) map[e->out(j)] = outs[j];
  }
  Values results;
  for (Value r : body.results()) results.push_back(map[r]);
  return b.finish(std::move(results));
}

// Emits the work on consts in b; the values, in the order of `invariants`.
Values hoist(Builder& b, const FunctionRef& body, int consts, const Values& values, const Values& operands) {
  return slice_into(b, *body, values, slice(operands, 0, consts));
}

Loop hoisted(Builder& b, Loop loop) {
  const int consts = loop.attrs.consts;
  const Values values = invariants(*loop.body, consts);
  if (values.empty()) return loop;
  const Values outside = hoist(b, loop.body, consts, values, loop.operands);
  loop.body = with_given(*loop.body, consts, values);
  loop.operands.insert(loop.operands.begin() + consts, outside.begin(), outside.end());
  loop.attrs.consts += static_cast<int>(values.size());
  return loop;
}

Value slice_rows(Value x, std::int64_t from, std::int64_t to) { return ops::slice_dim(x, 0, from, to); }

Value row_of(Value stack, std::int64_t t) {
  return ops::reshape_to(slice_rows(stack, t, t + 1), Shape(stack.dims().begin() + 1, stack.dims().end()));
}

Value stack_rows(Builder& b, const Values& rows) {
  Values as_stacks;
  for (Value r : rows) {
    Shape dims = r.dims();
    dims.insert(dims.begin(), 1);
    as_stacks.push_back(ops::reshape_to(r, dims));
  }
  return as_stacks.size() == 1 ? as_stacks[0] : b.emit(ops::concatenate, as_stacks, ops::Concatenate{.dim = {0}});
}

// `length` steps, one body after the other. carry, ys.
Values unrolled(Builder& b, const Loop& loop, std::int64_t length) {
  const int consts = loop.attrs.consts, carry = loop.attrs.carry;
  const Values fixed = slice(loop.operands, 0, consts);
  const Values xs = slice(loop.operands, consts + carry, loop.operands.size() - consts - carry);
  Values now = slice(loop.operands, consts, carry);
  std::vector<Values> rows(loop.body->results().size() - carry, Values(length));
  for (std::int64_t i = 0; i < length; ++i) {
    const std::int64_t t = loop.attrs.reverse ? length - 1 - i : i;
    Values args = fixed + now;
    for (Value x : xs) args.push_back(row_of(x, t));
    const Values outs = inline_into(b, *loop.body, args);
    now = slice(outs, 0, carry);
    for (std::size_t j = 0; j < rows.size(); ++j) rows[j][t] = outs[carry + j];
  }
  for (std::size_t j = 0; j < rows.size(); ++j) now.push_back(length == 0 ? Value() : stack_rows(b, rows[j]));
  return now;
}

Value regroup(Value stack, std::int64_t groups, std::int64_t of) {
  Shape dims = stack.dims();
  dims[0] = of;
  dims.insert(dims.begin(), groups);
  return ops::reshape_to(stack, dims);
}

Value ungroup(Value stack) {
  Shape dims(stack.dims().begin() + 1, stack.dims().end());
  dims[0] *= stack.dims()[0];
  return ops::reshape_to(stack, dims);
}

// A body of `by` steps: rows of xs and ys are stacks of that many.
FunctionRef body_of(const Loop& loop, std::int64_t by) {
  Builder b(loop.body->name());
  Values args;
  for (std::size_t i = 0; i < loop.body->params().size(); ++i) {
    const Value p = loop.body->params()[i];
    Shape dims = p.dims();
    if (i >= static_cast<std::size_t>(loop.attrs.consts + loop.attrs.carry)) dims.insert(dims.begin(), by);
    args.push_back(b.param(Type(p.dtype(), dims), p.name()));
  }
  return b.finish(unrolled(b, Loop{loop.attrs, loop.body, args}, by));
}

// The scan with `unroll` steps in one; the steps that are left over at its end come after.
Values unroll(Builder& b, const Loop& loop) {
  const std::int64_t by = loop.attrs.unroll, length = loop.attrs.length, groups = length / by,
                     rest = length - groups * by;
  const int consts = loop.attrs.consts, carry = loop.attrs.carry;
  const bool reverse = loop.attrs.reverse;
  const auto part = [&](std::int64_t from, std::int64_t to) {
    Values operands = loop.operands;
    for (std::size_t k = consts + carry; k < operands.size(); ++k) operands[k] = slice_rows(operands[k], from, to);
    return operands;
  };
  // A reverse scan leaves over its first rows, a forward one its last.
  Loop main{loop.attrs, body_of(loop, by), part(reverse ? rest : 0, reverse ? length : groups * by)};
  for (std::size_t k = consts + carry; k < main.operands.size(); ++k)
    main.operands[k] = regroup(main.operands[k], groups, by);
  main.attrs.length = groups;
  main.attrs.unroll = 1;
  Values outs = emit(b, main);
  for (std::size_t j = carry; j < outs.size(); ++j) outs[j] = ungroup(outs[j]);
  if (rest == 0) return outs;
  Loop tail{loop.attrs, loop.body, part(reverse ? 0 : groups * by, reverse ? rest : length)};
  for (int k = 0; k < carry; ++k) tail.operands[consts + k] = outs[k];
  const Values last = unrolled(b, tail, rest);
  for (int k = 0; k < carry; ++k) outs[k] = last[k];
  for (std::size_t j = carry; j < outs.size(); ++j)
    outs[j] = b.emit(ops::concatenate, reverse ? Values{last[j], outs[j]} : Values{outs[j], last[j]},
                     ops::Concatenate{.dim = {0}});
  return outs;
}

}  // namespace

Values improve_scan(Builder& b, const Eqn& e, std::vector<FunctionRef> regions, Values operands) {
  const FunctionRef& body = regions[0];
  Values final;
  Loop loop = without_unchanged({e.attrs<ops::Scan>(), body, operands}, final);
  loop = hoisted(b, std::move(loop));
  Values outs;
  if (loop.attrs.length <= 1 && body->effects() == Effects::none) outs = unrolled(b, loop, loop.attrs.length);
  else if (loop.attrs.unroll >= loop.attrs.length) outs = unrolled(b, loop, loop.attrs.length);
  else if (loop.attrs.unroll > 1) outs = unroll(b, loop);
  else outs = emit(b, loop);
  for (std::size_t j = 0, next = 0; j < final.size(); ++j) {
    if (final[j]) continue;
    final[j] = outs[next++];
    if (!final[j]) final[j] = b.zeros(e.out(static_cast<int>(j)).type());  // an empty stack
  }
  return final;
}

// --- while and cond
// ---------------------------------------------------------------------------------------------------

Values improve_while(Builder& b, const Eqn& e, std::vector<FunctionRef> regions, Values operands) {
  ops::While attrs = e.attrs<ops::While>();
  const int of_cond = attrs.cond_consts, of_body = attrs.body_consts, carry = e.num_out();
  const Order fixed = unchanged_carries(*regions[1], of_body, carry);
  Values final(carry);
  if (!fixed.empty()) {
    const Order moving = others(carry, fixed);
    const int first = of_cond + of_body;
    for (int k : fixed) final[k] = operands[first + k];
    regions[0] = arranged(regions[0], range(0, of_cond) + shifted(fixed, of_cond) + shifted(moving, of_cond), {0});
    regions[1] = arranged(regions[1], range(0, of_body) + shifted(fixed, of_body) + shifted(moving, of_body), moving);
    operands = pick(operands, range(0, of_cond) + shifted(fixed, first) + range(of_cond, first) +
                                  shifted(fixed, first) + shifted(moving, first));
    attrs.cond_consts += static_cast<int>(fixed.size());
    attrs.body_consts += static_cast<int>(fixed.size());
  }
  if (const Values values = invariants(*regions[1], attrs.body_consts); !values.empty()) {
    const Values consts = slice(operands, attrs.cond_consts, attrs.body_consts);
    const Values outside = hoist(b, regions[1], attrs.body_consts, values, consts);
    regions[1] = with_given(*regions[1], attrs.body_consts, values);
    operands.insert(operands.begin() + attrs.cond_consts + attrs.body_consts, outside.begin(), outside.end());
    attrs.body_consts += static_cast<int>(values.size());
  }
  const Values outs =
      b.emit_all(&ops::while_, std::move(operands), std::make_shared<const ops::While>(attrs), std::move(regions));
  for (int j = 0, next = 0; j < carry; ++j)
    if (!final[j]) final[j] = outs[next++];
  return final;
}

Values improve_cond(Builder& b, const Eqn& e, std::vector<FunctionRef> regions, Values operands) {
  const auto index = constant_value(operands[0]);
  if (!index && regions.size() > 1) return b.emit_all(e.op, operands, nullptr, std::move(regions));
  const std::int64_t last = std::ssize(regions) - 1;
  const std::int64_t chosen = index ? std::clamp<std::int64_t>(index->get_int(0), 0, last) : 0;
  return inline_into(b, *regions[chosen], slice(operands, 1, operands.size() - 1));
}

FunctionRef loops(const FunctionRef& f) {
  const auto is_region = [](const Eqn* e) { return !e->regions.empty(); };
  if (std::none_of(f->eqns().begin(), f->eqns().end(), is_region)) return f;
  const Memo::Scope scope;
  return remade(*f, [](Builder& b, const Eqn& e, Values operands) {
    std::vector<FunctionRef> regions = in_regions(e, loops);
    const RegionRules* rules = region_rules(e.op);
    if (rules && rules->improve) return rules->improve(b, e, std::move(regions), std::move(operands));
    return b.emit_all(e.op, std::move(operands), e.attributes, std::move(regions));
  });
}

}  // namespace sheaf::passes
