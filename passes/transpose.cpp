// Transposition of a function in the parameters it is linear in. The non-linear part runs forward as it is; then the
// linear equations are walked backwards, each rule turning cotangents of results into cotangents of operands:
//   %1 = mul %t, %r          %ct_t = mul %ct_1, %r
// Invariant: a rule is only asked about operands the equation is linear in, with at least one non-zero cotangent.
#include <fmt/format.h>

#include <algorithm>

#include "ir/builder.h"
#include "ir/manual.h"
#include "ir/rewrite.h"
#include "passes/emit.h"
#include "passes/memo.h"
#include "passes/partial_eval.h"
#include "passes/regions.h"
#include "passes/regions/arrange.h"

namespace sheaf::passes {

using namespace ir;

namespace {

// In a linear map it is the guard of a batched branch (passes/regions/guard.h): no cotangent goes through it.
bool is_stopped(const Eqn& e) { return e.op == &ops::stop_gradient; }

constexpr const char* kNotLinear =
    "a rule or product that must be linear computes this of its tangents or argument, which is not linear in them";

class TransposeWalk {
 public:
  TransposeWalk(const FunctionRef& f, const Mask& linear)
      : f_(*f), linear_(linear), b_(f->name() + ".transpose"), value_(*f), ct_(*f), is_linear_(*f) {
    const Values params = clone_params(b_, f_, !linear);
    for (std::size_t i = 0; i < params.size(); ++i) {
      value_[f_.params()[i]] = params[i];
      is_linear_[f_.params()[i]] = linear[i];
    }
  }

  Transposed run(const Mask& ct, bool instantiate) {
    forward();
    Values seeds;
    for (std::size_t j = 0; j < f_.results().size(); ++j)
      seeds.push_back(ct[j] ? b_.param(cotangent_type(f_.results()[j].type()), fmt::format("ct{}", j)) : Value());
    for (std::size_t j = 0; j < f_.results().size(); ++j)
      if (seeds[j]) accumulate(f_.results()[j], seeds[j]);
    for (std::size_t i = f_.eqns().size(); i-- > 0;) equation(*f_.eqns()[i]);
    Transposed t;
    Values results;
    for (std::size_t i = 0; i < f_.params().size(); ++i) {
      if (!linear_[i]) continue;
      Value c = ct_[f_.params()[i]];
      if (!c && instantiate) c = b_.zeros(cotangent_type(f_.params()[i].type()));
      t.out.push_back(static_cast<bool>(c));
      if (c) results.push_back(c);
    }
    t.function = b_.finish(std::move(results));
    return t;
  }

 private:
  void forward() {
    for (const Eqn* e : f_.eqns()) {
      bool linear = false;
      for (Value v : e->operands) linear |= is_linear_[v];
      for (Value v : e->outs()) is_linear_[v] = linear;
      if (linear) continue;
      Values operands;
      for (Value v : e->operands) operands.push_back(value_[v]);
      b_.set_loc(e->loc, e->how);
      const Values outs = b_.clone(*e, std::move(operands));
      for (int j = 0; j < e->num_out(); ++j) value_[e->out(j)] = outs[j];
    }
  }

  void accumulate(Value v, Value ct) {
    if (!is_linear_[v]) return;
    const Type wanted = cotangent_type(v.type());
    ct = casted(ct, wanted.manual());
    SHEAF_CHECK(ct.type() == wanted, fmt::format("cotangent {} for {}", to_string(ct.type()), to_string(v.type())));
    ct_[v] = add_any(ct_[v], ct);
  }

  void equation(const Eqn& e) {
    if (e.num_out() == 0 || !is_linear_[e.out(0)]) return;
    Values cts, operands;
    bool any = false;
    for (Value v : e.outs()) {
      cts.push_back(ct_[v]);
      any |= static_cast<bool>(ct_[v]);
    }
    if (!any) return;
    for (Value v : e.operands) operands.push_back(is_linear_[v] ? Value() : value_[v]);
    b_.at(e, "transpose");
    if (e.op == &ops::cond && !operands[0]) refuse(e, kNotLinear);
    const RegionRules* regions = region_rules(e.op);
    const Values in = regions ? regions->transpose(b_, e, operands, cts) : rule(e, operands, cts);
    for (int k = 0; k < e.num_in(); ++k)
      if (in[k]) accumulate(e.in(k), in[k]);
  }

  Values rule(const Eqn& e, const Values& operands, const Values& cts) {
    if (is_stopped(e)) return Values(e.num_in());
    check_linear(e, operands);
    SHEAF_CHECK(e.op->transpose, std::string(e.op->name) + " has no transpose rule");
    return e.op->transpose(b_, e, operands, cts);
  }

  // Our derivatives are linear in tangents; those that users give need not be.
  static void check_linear(const Eqn& e, const Values& operands) {
    const Linear how = linear_of(e);
    int num_linear = 0;
    for (int k = 0; k < e.num_in(); ++k) {
      if (operands[k]) continue;
      if (!is_linear_in(how, k)) refuse(e, kNotLinear);
      ++num_linear;
    }
    if (how.kind == Linear::Kind::separately && num_linear > 1) refuse(e, kNotLinear);
  }

  const Function& f_;
  const Mask& linear_;
  Builder b_;
  ValueTable<Value> value_, ct_;
  ValueTable<char> is_linear_;
};

// A region with linear and other operands may mix primal and tangent work: split first, so that every equation is
// either.
bool needs_split(const FunctionRef& f, const Mask& linear) {
  if (Memo::current().split.contains(std::tuple{f, !linear})) return false;
  for (const Eqn* e : f->eqns())
    if (region_rules(e->op)) return true;
  return false;
}

Transposed transpose_split(const FunctionRef& f, const Mask& linear, const Mask& ct, bool instantiate) {
  const PartialEval p = partial_eval(f, !linear, Mask(f->results().size(), true));
  Mask unknown(p.residuals.size(), false);
  unknown.resize(p.unknown->params().size(), true);
  const Transposed half = transpose(p.unknown, unknown, ct, instantiate);
  Builder b(f->name() + ".transpose");
  const Values nonlinear = where(clone_params(b, *f, !linear), !linear);
  Values cts;
  for (std::size_t j = 0; j < ct.size(); ++j)
    if (ct[j]) cts.push_back(b.param(cotangent_type(f->results()[j].type()), fmt::format("ct{}", j)));
  const Values known = inline_into(b, *p.known, nonlinear);
  std::vector<int> position(f->params().size(), -1);
  for (std::size_t i = 0, next = 0; i < linear.size(); ++i)
    if (!linear[i]) position[i] = static_cast<int>(next++);
  Values args;
  for (const Residual& r : p.residuals) args.push_back(r.is_input ? nonlinear[position[r.index]] : known[r.index]);
  return {b.finish(inline_into(b, *half.function, args + cts)), half.out};
}

bool is_zero(Value v) {
  const auto c = constant_value(v);
  return c && !is_complex(c->dtype()) && c->get(0) == 0;
}

// What stop_gradient gives is linear only as a guard's other case, select(m, x, stop(x)), which is x. Batching moves
// and broadcasts the two alike.
class Stopped {
 public:
  explicit Stopped(const Function& f) : f_(f), copy_of_(f) {}

  /// Whether e reads nothing stopped, or as a guard does.
  bool allows(const Eqn& e) {
    if (is_stopped(e)) {
      copy_of_[e.out()] = e.in(0);
      return true;
    }
    if (e.op == &ops::select && copy_of_[e.in(2)]) return copy_of_[e.in(2)] == e.in(1) && !copy_of_[e.in(1)];
    const bool reads =
        std::any_of(e.operands.begin(), e.operands.end(), [&](Value v) { return static_cast<bool>(copy_of_[v]); });
    if (!reads) return true;
    if (e.num_in() != 1 || e.num_out() != 1) return false;
    copy_of_[e.out()] = done_alike(e, copy_of_[e.in(0)]);
    return static_cast<bool>(copy_of_[e.out()]);
  }
  bool is_result() const {
    return std::any_of(f_.results().begin(), f_.results().end(),
                       [&](Value v) { return static_cast<bool>(copy_of_[v]); });
  }

 private:
  // The result of an equation that does to x what e does to its operand.
  Value done_alike(const Eqn& e, Value x) const {
    for (const Eqn* other : f_.eqns())
      if (other->op == e.op && other->num_in() == 1 && other->in(0) == x && e.regions.empty() &&
          (!e.attributes || e.op->attrs.equal(e.attributes.get(), other->attributes.get())))
        return other->out();
    return Value();
  }

  const Function& f_;
  ValueTable<Value> copy_of_;  // by stopped value: what it is a copy of
};

// The regions of ops that pass on their operands as they are.
bool regions_are_linear(const Eqn& e, const Mask& depends) {
  if (e.op != &ops::call && e.op != &ops::checkpoint && e.op != &ops::cond) return true;
  const Mask linear(depends.begin() + (e.op == &ops::cond ? 1 : 0), depends.end());
  return std::all_of(e.regions.begin(), e.regions.end(), [&](const FunctionRef& r) { return is_linear(r, linear); });
}

}  // namespace

bool is_linear(const FunctionRef& f, const Mask& linear) {
  ValueTable<char> depends(*f);
  Stopped stopped(*f);
  for (std::size_t i = 0; i < linear.size(); ++i) depends[f->params()[i]] = linear[i];
  for (const Eqn* e : f->eqns()) {
    int num_linear = 0;
    bool known_linear = true;
    const Linear how = linear_of(*e);
    for (int k = 0; k < e->num_in(); ++k) {
      if (!depends[e->in(k)]) {
        // One linear map of several operands has no constant part: a plain operand among them makes it affine.
        known_linear =
            known_linear && !(how.kind == Linear::Kind::jointly && is_linear_in(how, k) && !is_zero(e->in(k)));
        continue;
      }
      ++num_linear;
      known_linear = known_linear && how.kind != Linear::Kind::none && is_linear_in(how, k);
    }
    if (num_linear == 0) continue;
    for (Value v : e->outs()) depends[v] = true;
    if (!stopped.allows(*e)) return false;
    if (is_stopped(*e)) continue;
    if (region_rules(e->op)) {
      Mask of;
      for (Value v : e->operands) of.push_back(depends[v]);
      if (!regions_are_linear(*e, of)) return false;
      continue;
    }
    if (!known_linear || (how.kind == Linear::Kind::separately && num_linear > 1)) return false;
  }
  return !stopped.is_result();
}

Transposed transpose(const FunctionRef& f, const Mask& linear, const Mask& ct, bool instantiate) {
  return memoized(&Memo::transpose, {f, linear, ct, instantiate}, [&] {
    if (needs_split(f, linear)) return transpose_split(f, linear, ct, instantiate);
    return TransposeWalk(f, linear).run(ct, instantiate);
  });
}

}  // namespace sheaf::passes
