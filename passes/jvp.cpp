// Forward derivatives. Each equation is emitted as it was; where an operand has a tangent, the op's rule emits the
// tangents of its results beside it. Before and after:
//   %1 = sin %0              %1 = sin %0;  %2 = cos %0;  %t1 = mul %t0, %2
// Invariant: a value has a tangent only if its dtype is differentiable, and then of the same type.
#include <fmt/format.h>

#include "ir/builder.h"
#include "ir/manual.h"
#include "passes/emit.h"
#include "passes/memo.h"
#include "passes/regions.h"

namespace sheaf::passes {

using namespace ir;

namespace {

bool any(const Values& v) {
  for (Value x : v)
    if (x) return true;
  return false;
}

// One linear map of several operands: the absent tangents are zeros.
Values jvp_jointly(Builder& b, const Eqn& e, const Values& tangents) {
  Values operands;
  for (int k = 0; k < e.num_in(); ++k) {
    const bool linear = is_linear_in(linear_of(e), k);
    SHEAF_CHECK(linear || !tangents[k], "a tangent of an operand that is not linear needs a jvp rule");
    operands.push_back(!linear ? e.in(k) : tangents[k] ? tangents[k] : b.zeros(e.in(k).type()));
  }
  return b.clone(e, std::move(operands));
}

// Linear in each operand: the sum over operands of the op with that operand replaced by its tangent.
Values jvp_separately(Builder& b, const Eqn& e, const Values& tangents) {
  Value sum;
  for (int k = 0; k < e.num_in(); ++k) {
    if (!tangents[k]) continue;
    Values operands = e.operands;
    operands[k] = tangents[k];
    sum = add_any(sum, b.clone(e, std::move(operands))[0]);
  }
  return {sum};
}

Values jvp_rule(Builder& b, const Eqn& e, const Values& tangents) {
  if (e.op->jvp) return e.op->jvp(b, e, tangents);
  switch (linear_of(e).kind) {
    case Linear::Kind::jointly: return jvp_jointly(b, e, tangents);
    case Linear::Kind::separately: return jvp_separately(b, e, tangents);
    case Linear::Kind::none: break;
  }
  SHEAF_CHECK(e.op->no_jvp != Absent::none, std::string(e.op->name) + " has neither a jvp rule nor a reason for none");
  return Values(e.num_out());
}

class JvpWalk {
 public:
  JvpWalk(const FunctionRef& f, const Mask& nonzero) : f_(*f), b_(f->name() + ".jvp"), primal_(*f), tangent_(*f) {
    const Values primals = clone_params(b_, f_, Mask(f_.params().size(), true));
    const Values tangents = clone_params(b_, f_, nonzero, ".t");
    for (std::size_t i = 0; i < primals.size(); ++i) {
      primal_[f_.params()[i]] = primals[i];
      tangent_[f_.params()[i]] = tangents[i];
      SHEAF_CHECK(!tangents[i] || is_differentiable(tangents[i].dtype()), "integers have no tangent");
    }
  }

  Jvp run(const Mask& instantiate) {
    for (const Eqn* e : f_.eqns()) equation(*e);
    Values results, tangents;
    Mask out;
    for (std::size_t j = 0; j < f_.results().size(); ++j) {
      const Value r = f_.results()[j];
      results.push_back(primal_[r]);
      Value t = tangent_[r];
      if (!t && !instantiate.empty() && instantiate[j] && is_differentiable(r.dtype())) t = b_.zeros(r.type());
      out.push_back(static_cast<bool>(t));
      if (t) tangents.push_back(t);
    }
    return {b_.finish(results + tangents), out};
  }

 private:
  void equation(const Eqn& e) {
    Values operands, tangents;
    for (Value v : e.operands) {
      operands.push_back(primal_[v]);
      tangents.push_back(tangent_[v]);
    }
    const RegionRules* regions = region_rules(e.op);
    if (regions && any(tangents)) {
      b_.at(e, "jvp");
      const Dual dual = regions->jvp(b_, e, operands, tangents);
      for (int j = 0; j < e.num_out(); ++j) {
        primal_[e.out(j)] = dual.primals[j];
        tangent_[e.out(j)] = dual.tangents[j];
      }
      return;
    }
    b_.set_loc(e.loc, e.how);
    const Values outs = b_.clone(e, operands);
    for (int j = 0; j < e.num_out(); ++j) primal_[e.out(j)] = outs[j];
    if (!any(tangents)) return;
    b_.at(e, "jvp");
    Values t = jvp_rule(b_, *outs[0].eqn(), tangents);
    for (int j = 0; j < e.num_out(); ++j) {
      if (!t[j] || !is_differentiable(e.out(j).dtype())) continue;
      t[j] = casted(t[j], e.out(j).type().manual());
      SHEAF_CHECK(t[j].type() == e.out(j).type(), fmt::format("jvp of {} gave {} for {}", e.op->name,
                                                              to_string(t[j].type()), to_string(e.out(j).type())));
      tangent_[e.out(j)] = t[j];
    }
  }

  const Function& f_;
  Builder b_;
  ValueTable<Value> primal_, tangent_;
};

}  // namespace

Jvp jvp(const FunctionRef& f, const Mask& nonzero, const Mask& instantiate) {
  return memoized(&Memo::jvp, {f, nonzero, instantiate}, [&] { return JvpWalk(f, nonzero).run(instantiate); });
}

}  // namespace sheaf::passes
