// scan: the carry makes every mask a fixpoint (a carry that gets a tangent in one step has one in the next), and the
// rows it stacks are where residuals are kept. Before and after of partial evaluation:
//   %c, %tc = scan %k, %tk | %x         %c, %r = scan %k | %x         (known: residuals stacked as %r)
//                                       %tc    = scan %tk | %r        (unknown)
#include <algorithm>

#include "ir/manual.h"
#include "ir/ops/attrs.h"
#include "passes/loops.h"
#include "passes/regions/arrange.h"

namespace sheaf::passes {

using namespace ir;

namespace {

struct Roles {
  explicit Roles(const Eqn& e)
      : attrs(e.attrs<ops::Scan>()),
        consts(attrs.consts),
        carry(attrs.carry),
        xs(e.num_in() - consts - carry),
        ys(e.num_out() - carry) {}
  ops::Scan attrs;
  int consts, carry, xs, ys;

  template <class List>
  List of_consts(const List& v) const {
    return slice(v, 0, consts);
  }
  template <class List>
  List of_carry(const List& v) const {
    return slice(v, consts, carry);
  }
  template <class List>
  List of_xs(const List& v) const {
    return slice(v, consts + carry, xs);
  }
};

Values emit_scan(Builder& b, const FunctionRef& body, Values operands, ops::Scan attrs, int consts, int carry) {
  attrs.consts = consts;
  attrs.carry = carry;
  return b.emit_all(&ops::scan, std::move(operands), std::make_shared<const ops::Scan>(std::move(attrs)), {body});
}

Dual jvp_scan(Builder& b, const Eqn& e, const Values& operands, const Values& tangents) {
  const Roles r(e);
  Mask nonzero = present(tangents), carry = r.of_carry(nonzero);
  Jvp body;
  for (bool stable = false; !stable;) {
    nonzero = join(r.of_consts(nonzero), carry, r.of_xs(nonzero));
    body = jvp(e.regions[0], nonzero, join(carry, Mask(r.ys)));
    const Mask next = carry | slice(body.out, 0, r.carry);
    stable = next == carry;
    carry = next;
  }
  Values all = operands;
  for (int k = 0; k < e.num_in(); ++k)
    if (nonzero[k]) all.push_back(tangents[k] ? tangents[k] : b.zeros(e.in(k).type()));
  const Order in = beside({r.consts, r.carry, r.xs}, nonzero), out = beside({r.carry, r.ys}, body.out);
  const Values outs = emit_scan(b, arranged(body.function, in, out), pick(all, in), r.attrs,
                                r.consts + count(r.of_consts(nonzero)), r.carry + count(carry));
  Values placed(outs.size());
  for (std::size_t j = 0; j < outs.size(); ++j) placed[out[j]] = outs[j];
  Dual dual{slice(placed, 0, e.num_out()), Values(e.num_out())};
  for (int j = 0, next = e.num_out(); j < e.num_out(); ++j)
    if (body.out[j]) dual.tangents[j] = placed[next++];
  return dual;
}

// Splits a scan: which residuals of the body are operands already, which do not change from step to step and are
// computed once outside, and which have to be stacked.
class SplitScan {
 public:
  SplitScan(Halves& halves, const Eqn& e, const Mask& known) : halves_(halves), e_(e), r_(e) {
    Mask carry = r_.of_carry(known);
    for (bool stable = false; !stable;) {
      known_ = join(r_.of_consts(known), carry, r_.of_xs(known));
      body_ = partial_eval(e.regions[0], known_, join(!carry, Mask(r_.ys)));
      Mask next;
      for (int k = 0; k < r_.carry; ++k) next.push_back(carry[k] && body_.known_out[k]);
      stable = next == carry;
      carry = next;
    }
    known_carry_ = count(carry);
    for (std::size_t i = 0, next = 0; i < known_.size(); ++i)
      known_position_.push_back(known_[i] ? static_cast<int>(next++) : -1);
    ys_ = body_.known->results();
    ys_.resize(count(body_.known_out));  // past the carries; residuals are appended
  }

  void run() {
    find_invariants();
    for (const Residual& residual : body_.residuals) sources_.push_back(source(residual));
    emit_known();
    emit_unknown();
  }

 private:
  struct Source {
    enum class Kind { constant, hoisted, row, stacked } kind;
    Value value;    // constant, row: the operand; hoisted: in the known body
    int index = 0;  // stacked: which result of the known body
  };

  int param_of_known(int body_param) const { return known_position_[body_param]; }

  Source source(const Residual& residual) {
    if (residual.is_input) {
      const int i = residual.index;
      if (i < r_.consts) return {Source::Kind::constant, e_.in(i)};
      if (i >= r_.consts + r_.carry) return {Source::Kind::row, e_.in(i)};
      return stacked(body_.known->params()[param_of_known(i)]);
    }
    const Value v = body_.known->results()[residual.index];
    if (invariant_[v.id()]) return {Source::Kind::hoisted, v};
    if (residual.index >= known_carry_ && residual.index < count(body_.known_out))
      return {Source::Kind::stacked, {}, residual.index};
    return stacked(v);
  }

  Source stacked(Value v) {
    // A carry among the results is its last value, not a stack: look past those.
    const auto at = std::find(ys_.begin() + known_carry_, ys_.end(), v);
    if (at != ys_.end()) return {Source::Kind::stacked, {}, static_cast<int>(at - ys_.begin())};
    ys_.push_back(v);
    return {Source::Kind::stacked, {}, static_cast<int>(ys_.size()) - 1};
  }

  // Pure equations of the known body that read nothing but consts and each other.
  void find_invariants() {
    const Function& f = *body_.known;
    invariant_.assign(f.num_values(), false);
    for (int i = 0; i < r_.consts; ++i)
      if (known_[i]) invariant_[f.params()[param_of_known(i)].id()] = true;
    for (const Eqn* e : f.eqns()) {
      bool all = e->effects == Effects::none;
      for (Value v : e->operands) all = all && invariant_[v.id()];
      for (Value v : e->outs()) invariant_[v.id()] = all;
    }
  }

  Values known_operands() {
    Values operands;
    for (Value v : where(e_.operands, known_)) operands.push_back(halves_.known(v));
    return operands;
  }

  void emit_known() {
    Values hoisted;
    for (const Source& s : sources_)
      if (s.kind == Source::Kind::hoisted) hoisted.push_back(s.value);
    const Values operands = known_operands();
    const int consts = count(r_.of_consts(known_));
    if (!hoisted.empty()) {
      hoisted_ = slice_into(halves_.known_half(), *body_.known, hoisted, slice(operands, 0, consts));
    }
    if (ys_.empty() && body_.known->effects() == Effects::none) return;
    known_outs_ =
        emit_scan(halves_.known_half(), body_.known->with_results(ys_), operands, r_.attrs, consts, known_carry_);
    for (int j = 0, next = 0; j < e_.num_out(); ++j)
      if (body_.known_out[j]) halves_.set_known(e_.out(j), known_outs_[next++]);
  }

  void emit_unknown() {
    const int residuals = static_cast<int>(body_.residuals.size());
    if (body_.unknown->results().empty() && body_.unknown->effects() == Effects::none) return;
    Values consts, carry, xs;
    Order const_params, carry_params, xs_params;
    for (int i = 0, hoisted = 0; i < residuals; ++i) {
      const Source& s = sources_[i];
      const bool is_row = s.kind == Source::Kind::row || s.kind == Source::Kind::stacked;
      (is_row ? xs_params : const_params).push_back(i);
      switch (s.kind) {
        case Source::Kind::constant: consts.push_back(halves_.unknown(s.value)); break;
        case Source::Kind::hoisted: consts.push_back(halves_.residual(hoisted_[hoisted++])); break;
        case Source::Kind::row: xs.push_back(halves_.unknown(s.value)); break;
        case Source::Kind::stacked: xs.push_back(halves_.residual(known_outs_[s.index])); break;
      }
    }
    for (int i = 0, next = residuals; i < e_.num_in(); ++i) {
      if (known_[i]) continue;
      // A carry with a known start may be unknown from the first step on.
      const Value v = halves_.unknown(e_.in(i));
      if (i < r_.consts) consts.push_back(v), const_params.push_back(next++);
      else if (i < r_.consts + r_.carry) carry.push_back(v), carry_params.push_back(next++);
      else xs.push_back(v), xs_params.push_back(next++);
    }
    Order params = const_params, results;
    params.insert(params.end(), carry_params.begin(), carry_params.end());
    params.insert(params.end(), xs_params.begin(), xs_params.end());
    for (std::size_t j = 0; j < body_.unknown->results().size(); ++j) results.push_back(static_cast<int>(j));
    const FunctionRef body = arranged(body_.unknown, params, results);
    Mask nonlinear;
    for (int i : params) nonlinear.push_back(i < residuals);
    mark_split(body, nonlinear);
    const int num_consts = static_cast<int>(consts.size()), num_carry = static_cast<int>(carry.size());
    const Values outs = emit_scan(halves_.unknown_half(), body, consts + carry + xs, r_.attrs, num_consts, num_carry);
    for (int j = 0, next = 0; j < e_.num_out(); ++j)
      if (!body_.known_out[j]) halves_.set_unknown(e_.out(j), outs[next++]);
  }

  Halves& halves_;
  const Eqn& e_;
  Roles r_;
  Mask known_;
  PartialEval body_;
  int known_carry_ = 0;
  Order known_position_;          // of the body's parameters among the known ones
  std::vector<bool> invariant_;   // by id, of the known body
  Values ys_;                     // results of the known body, stacked residuals last
  std::vector<Source> sources_;   // of each residual
  Values hoisted_, known_outs_;
};

void split_scan(Halves& halves, const Eqn& e, const Mask& known) { SplitScan(halves, e, known).run(); }

// The loop runs the other way; cotangents of consts are summed in carries of their own.
Values transpose_scan(Builder& b, const Eqn& e, const Values& operands, const Values& cts) {
  const Roles r(e);
  const Mask nonlinear = present(operands), ct = present(cts);
  const Mask linear = join(!r.of_consts(nonlinear), Mask(r.carry, true), !r.of_xs(nonlinear));
  const Mask ct_ys = slice(ct, r.carry, r.ys);
  Mask carry = slice(ct, 0, r.carry);
  Transposed body;
  Mask out_consts, out_carry, out_xs;
  for (bool stable = false; !stable;) {
    body = transpose(e.regions[0], linear, join(carry, ct_ys));
    const int linear_consts = count(!r.of_consts(nonlinear));
    out_consts = slice(body.out, 0, linear_consts);
    out_carry = slice(body.out, linear_consts, r.carry);
    out_xs = slice(body.out, linear_consts + r.carry, body.out.size() - linear_consts - r.carry);
    const Mask next = carry | out_carry;
    stable = next == carry;
    carry = next;
  }

  const Function& f = *e.regions[0];
  const Values const_params = where(r.of_consts(f.params()), !r.of_consts(nonlinear));
  const Values sums_of = where(const_params, out_consts), carry_of = where(r.of_carry(f.params()), carry);
  Builder body_builder(f.name() + ".transpose");
  body_builder.set_loc(b.loc(), b.how());
  const auto params = [&](const Values& like) {
    Values made;
    for (Value v : like) made.push_back(body_builder.param(v.type()));
    return made;
  };
  const auto cotangents = [&](const Values& of) {
    Values made;
    for (Value v : of) made.push_back(body_builder.param(cotangent_type(v.type())));
    return made;
  };
  const Values consts = params(where(r.of_consts(f.params()), r.of_consts(nonlinear)));
  const Values sums = cotangents(sums_of), ct_carry = cotangents(carry_of);
  const Values ct_y = cotangents(where(slice(f.results(), r.carry, r.ys), ct_ys));
  const Values xs = params(where(r.of_xs(f.params()), r.of_xs(nonlinear)));
  const Values outs = inline_into(body_builder, *body.function, consts + xs + ct_carry + ct_y);
  Values next_sums, next_carry, rows;
  std::size_t at = 0;
  for (Value sum : sums) next_sums.push_back(add_any(sum, outs[at++]));
  for (int k = 0; k < r.carry; ++k)
    if (carry[k])
      next_carry.push_back(out_carry[k] ? outs[at++] : body_builder.zeros(cotangent_type(f.results()[k].type())));
  for (; at < outs.size(); ++at) rows.push_back(outs[at]);
  const FunctionRef backward = body_builder.finish(next_sums + next_carry + rows);

  Values all = where(r.of_consts(operands), r.of_consts(nonlinear));
  for (Value v : sums_of) all.push_back(b.zeros(cotangent_type(v.type())));
  for (int k = 0; k < r.carry; ++k)
    if (carry[k]) all.push_back(cts[k] ? cts[k] : b.zeros(cotangent_type(e.out(k).type())));
  all = all + where(slice(cts, r.carry, r.ys), ct_ys) + where(r.of_xs(operands), r.of_xs(nonlinear));
  ops::Scan attrs = r.attrs;
  attrs.reverse = !attrs.reverse;
  const int num_carry = static_cast<int>(sums.size() + ct_carry.size());
  const Values results = emit_scan(b, backward, std::move(all), attrs, static_cast<int>(consts.size()), num_carry);

  Values in(e.num_in());
  std::size_t next = 0;
  for (int k = 0, l = 0; k < r.consts; ++k)
    if (!nonlinear[k] && out_consts[l++]) in[k] = results[next++];
  for (int k = 0; k < r.carry; ++k)
    if (carry[k]) in[r.consts + k] = results[next++];  // dropped by the caller where the start is not linear
  for (int k = r.consts + r.carry, l = 0; k < e.num_in(); ++k)
    if (!nonlinear[k] && out_xs[l++]) in[k] = results[next++];
  return in;
}

std::vector<Batched> batch_scan(Builder& b, const Eqn& e, std::span<const Batched> in, const MappedAxis& axis) {
  const Roles r(e);
  std::vector<int> dims;
  for (int k = 0; k < e.num_in(); ++k) dims.push_back(in[k].dim < 0 ? -1 : 0);
  std::vector<int> out;
  for (bool stable = false; !stable;) {
    out = batch(e.regions[0], dims, axis).out_dims;
    stable = true;
    for (int k = 0; k < r.carry; ++k) {
      if (dims[r.consts + k] == 0) out[k] = 0;
      if (out[k] < 0 || dims[r.consts + k] == 0) continue;
      dims[r.consts + k] = 0;
      stable = false;
    }
  }
  for (int& d : out) d = d < 0 ? -1 : 0;
  // Rows carry the new axis first, so stacks have it second.
  Values operands;
  for (int k = 0; k < e.num_in(); ++k) {
    const int to = k < r.consts + r.carry ? 0 : 1;
    operands.push_back(dims[k] < 0 ? in[k].value : place_dim(b, in[k], to, axis));
  }
  const Values outs =
      emit_scan(b, vmap(e.regions[0], dims, out, axis), std::move(operands), r.attrs, r.consts, r.carry);
  std::vector<Batched> results;
  for (int j = 0; j < e.num_out(); ++j) results.push_back({outs[j], out[j] < 0 ? -1 : j < r.carry ? 0 : 1});
  return results;
}

// A carry lives if its last value is read, or if the body reads it for something that lives.
Shrunk shrink_scan(const Eqn& e, const Mask& used) {
  const Roles r(e);
  Mask carry = slice(used, 0, r.carry);
  const Mask ys = slice(used, r.carry, r.ys);
  Dce body;
  for (bool stable = false; !stable;) {
    body = dce(e.regions[0], join(carry, ys));
    const Mask next = carry | r.of_carry(body.kept);
    stable = next == carry;
    carry = next;
  }
  // A live carry keeps its parameter, read or not.
  const Mask kept = join(r.of_consts(body.kept), carry, r.of_xs(body.kept));
  ops::Scan attrs = r.attrs;
  attrs.consts = count(r.of_consts(kept));
  attrs.carry = count(carry);
  return {.operands = kept,
          .results = join(carry, ys),
          .attributes = std::make_shared<const ops::Scan>(std::move(attrs)),
          .regions = {with_params_kept(body, kept, e.regions[0])}};
}

}  // namespace

const RegionRules scan_rules = {
    .op = &ops::scan,
    .jvp = jvp_scan,
    .partial_eval = split_scan,
    .transpose = transpose_scan,
    .batch = batch_scan,
    .shrink = shrink_scan,
    .improve = improve_scan,
};

}  // namespace sheaf::passes
