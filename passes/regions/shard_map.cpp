// shard_map: derivatives and batches of the region, whose parts lie as those of what they derive from. Invariant: a
// part differs along the axes its spec names and no others of the map, so that what a derivative has to add up over
// devices was added up in the region, by the transpose of the cast that made it differ. Partial evaluation:
//   %y, %ty = shard_map %x, %tx        %y, %r = shard_map %x      (known: residuals joined along what they differ)
//                                      %ty    = shard_map %r, %tx (unknown)
#include <fmt/format.h>

#include <algorithm>

#include "ir/manual.h"
#include "ir/ops/attrs.h"
#include "ir/ops/rules.h"
#include "ir/sharding.h"
#include "passes/memo.h"
#include "passes/regions/arrange.h"

namespace sheaf::passes {

using namespace ir;

namespace {

using Specs = std::vector<std::string>;

Specs operator+(Specs a, const Specs& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}
using sheaf::passes::operator+;  // of values

Values emit_map(Builder& b, ops::ShardMap attrs, Values operands, Specs in, Specs out, const FunctionRef& body) {
  attrs.in = std::move(in);
  attrs.out = std::move(out);
  return b.emit_all(&ops::shard_map, std::move(operands), std::make_shared<const ops::ShardMap>(std::move(attrs)),
                    {body});
}

Axes axes_of(const std::string& spec) {
  Axes axes;
  const Spec dims = *parse_spec(spec);
  for (const DimSpec& dim : dims) axes.insert(axes.end(), dim.axes.begin(), dim.axes.end());
  std::sort(axes.begin(), axes.end());
  return axes;
}

/// Those of the map's own among these axes.
Axes own_axes(const Axes& axes, const ops::ShardMap& a) { return without(axes, without(axes, a.manual)); }

Dual jvp_shard_map(Builder& b, const Eqn& e, const Values& operands, const Values& tangents) {
  const auto& a = e.attrs<ops::ShardMap>();
  const Mask nonzero = present(tangents);
  const Jvp body = jvp(e.regions[0], nonzero);
  const Values outs = emit_map(b, a, operands + where(tangents, nonzero), a.in + where(a.in, nonzero),
                               a.out + where(a.out, body.out), body.function);
  Dual dual{slice(outs, 0, e.num_out()), Values(e.num_out())};
  for (int j = 0, next = e.num_out(); j < e.num_out(); ++j)
    if (body.out[j]) dual.tangents[j] = outs[next++];
  return dual;
}

// Splits a map. A residual leaves the known region joined along dim 0 over the axes it differs along, or of whose sum
// the devices hold parts, which makes a scalar a vector on the way; the unknown region has it as what it was.
class SplitShardMap {
 public:
  SplitShardMap(Halves& halves, const Eqn& e, const Mask& known)
      : halves_(halves),
        e_(e),
        a_(e.attrs<ops::ShardMap>()),
        known_(known),
        body_(partial_eval(e.regions[0], known)),
        num_known_(count(body_.known_out)) {}

  void run() {
    for (const Residual& r : body_.residuals) crossings_.push_back(crossing(r));
    emit_known();
    emit_unknown();
  }

 private:
  // How a residual gets to the unknown region: as an operand, a result of the original, or one made for it.
  struct Crossing {
    int operand = -1, result = -1;
    std::string spec = {};
    bool is_scalar = false;  // and a vector on the way
    Axes unreduced = {}, reduced = {};  // again, on the other side
  };

  Crossing crossing(const Residual& r) {
    if (r.is_input) return {.operand = r.index, .spec = a_.in[r.index]};
    const Value v = body_.known->results()[r.index];
    const Manual& m = v.type().manual();
    Crossing c{.unreduced = own_axes(m.unreduced, a_), .reduced = own_axes(m.reduced, a_)};
    const Axes own = joined(own_axes(m.varying, a_), c.unreduced);
    if (r.index < num_known_ && axes_of(where(a_.out, body_.known_out)[r.index]) == own) {
      c.result = r.index;
      c.spec = where(a_.out, body_.known_out)[r.index];
      return c;
    }
    c.is_scalar = v.rank() == 0 && !own.empty();
    Spec spec(c.is_scalar ? 1 : v.rank());
    if (!own.empty()) spec[0].axes = own;
    made_.push_back(v);
    c.result = num_known_ + static_cast<int>(made_.size()) - 1;
    c.spec = to_text(spec);
    return c;
  }

  // Known results, then the residuals that are none.
  FunctionRef known_body() const {
    Builder b(body_.known->name());
    const Values params = clone_params(b, *body_.known, Mask(body_.known->params().size(), true));
    const FunctionRef wanted = body_.known->with_results(slice(body_.known->results(), 0, num_known_) + made_);
    Values outs = inline_into(b, *wanted, params);
    for (const Crossing& c : crossings_)
      if (c.is_scalar) outs[c.result] = ops::reshape_to(outs[c.result], {1});
    return b.finish(std::move(outs));
  }

  void emit_known() {
    if (num_known_ == 0 && made_.empty() && body_.known->effects() == Effects::none) return;
    Values operands;
    for (const Value v : where(e_.operands, known_)) operands.push_back(halves_.known(v));
    Specs out = where(a_.out, body_.known_out);
    out.resize(num_known_ + made_.size());
    for (const Crossing& c : crossings_)
      if (c.result >= num_known_) out[c.result] = c.spec;
    known_outs_ =
        emit_map(halves_.known_half(), a_, std::move(operands), where(a_.in, known_), std::move(out), known_body());
    for (int j = 0, next = 0; j < e_.num_out(); ++j)
      if (body_.known_out[j]) halves_.set_known(e_.out(j), known_outs_[next++]);
  }

  FunctionRef unknown_body() const {
    const Function& f = *body_.unknown;
    if (std::all_of(crossings_.begin(), crossings_.end(), crosses_unchanged)) return body_.unknown;
    Builder b(f.name());
    Values args;
    for (std::size_t i = 0; i < f.params().size(); ++i) {
      const Crossing c = i < crossings_.size() ? crossings_[i] : Crossing{};
      Type type = f.params()[i].type();
      if (c.is_scalar) type = type.with_dims({1});
      type = type.with_manual(with_axes(type.manual(), c.unreduced, Along::varying));
      type = type.with_manual(with_axes(type.manual(), c.reduced, Along::invarying));
      const Value p = b.param(type, f.params()[i].name());
      args.push_back(as_it_was(b, c.is_scalar ? ops::reshape_to(p, {}) : p, c));
    }
    const FunctionRef body = b.finish(inline_into(b, f, args));
    Mask nonlinear(crossings_.size(), true);
    nonlinear.resize(f.params().size(), false);
    mark_split(body, nonlinear);
    return body;
  }

  static bool crosses_unchanged(const Crossing& c) { return !c.is_scalar && c.unreduced.empty() && c.reduced.empty(); }
  static Value as_it_was(Builder& b, Value v, const Crossing& c) {
    if (!c.unreduced.empty()) v = b.emit(ops::pcast, {v}, ops::Pcast{c.unreduced, Along::unreduced});
    return c.reduced.empty() ? v : b.emit(ops::pcast, {v}, ops::Pcast{c.reduced, Along::reduced});
  }

  void emit_unknown() {
    if (body_.unknown->results().empty() && body_.unknown->effects() == Effects::none) return;
    Values operands;
    Specs in;
    for (const Crossing& c : crossings_) {
      operands.push_back(c.operand >= 0 ? halves_.unknown(e_.in(c.operand)) : halves_.residual(known_outs_[c.result]));
      in.push_back(c.spec);
    }
    for (const Value v : where(e_.operands, !known_)) operands.push_back(halves_.unknown(v));
    const Values outs = emit_map(halves_.unknown_half(), a_, std::move(operands), in + where(a_.in, !known_),
                                 where(a_.out, !body_.known_out), unknown_body());
    for (int j = 0, next = 0; j < e_.num_out(); ++j)
      if (!body_.known_out[j]) halves_.set_unknown(e_.out(j), outs[next++]);
  }

  Halves& halves_;
  const Eqn& e_;
  const ops::ShardMap& a_;
  Mask known_;
  PartialEval body_;
  int num_known_;
  std::vector<Crossing> crossings_;
  Values made_;  // residuals that are no results of the original, in the known body
  Values known_outs_;
};

void split_shard_map(Halves& halves, const Eqn& e, const Mask& known) { SplitShardMap(halves, e, known).run(); }

// The body with results that differ along all that their specs name, as their cotangents will. Parts of a sum, which
// leave only as residuals, have none.
FunctionRef differing_as_specs(const Eqn& e, const Mask& nonlinear, const Mask& ct) {
  const FunctionRef& f = e.regions[0];
  const auto& a = e.attrs<ops::ShardMap>();
  bool all = true;
  for (int j = 0; j < e.num_out(); ++j)
    all &= !ct[j] || without(axes_of(a.out[j]), f->results()[j].type().varying()).empty();
  if (all) return f;
  Builder b(f->name());
  Values results = inline_into(b, *f, clone_params(b, *f, Mask(f->params().size(), true)));
  for (int j = 0; j < e.num_out(); ++j) {
    if (!ct[j]) continue;
    if (!own_axes(f->results()[j].type().manual().unreduced, a).empty())
      refuse(e, "a second derivative of a product with an unreduced value: psum it first");
    results[j] = varied(results[j], axes_of(a.out[j]));
  }
  const FunctionRef g = b.finish(std::move(results));
  if (Memo::current().split.contains(std::tuple{f, nonlinear})) mark_split(g, nonlinear);
  return g;
}

std::int64_t ways_of(const ops::ShardMap& a, const Axes& axes) {
  const Mesh mesh = *Mesh::parse(a.mesh);
  std::int64_t n = 1;
  for (const std::string& axis : axes) n *= mesh.axes()[mesh.find(axis)].size;
  return n;
}

// What leaves the map as one value though each device has its own is, where the map is not checked, one value by the
// user's word; what is reduced is one anyway. Either way each device gets its share of the cotangent.
FunctionRef sharing_cotangents(const FunctionRef& transposed, const FunctionRef& body, const Eqn& e, const Mask& ct) {
  const auto& a = e.attrs<ops::ShardMap>();
  Builder b(transposed->name());
  const std::size_t first = transposed->params().size() - count(ct);
  Values args;
  for (std::size_t i = 0; i < first; ++i) args.push_back(b.param(transposed->params()[i].type()));
  bool shares = false;
  for (int j = 0; j < e.num_out(); ++j) {
    if (!ct[j]) continue;
    const Manual& m = body->results()[j].type().manual();
    const Axes lost = without(own_axes(m.varying, a), axes_of(a.out[j])), reduced = own_axes(m.reduced, a);
    const Type wanted = cotangent_type(body->results()[j].type());
    const Axes all = joined(lost, reduced);
    const Value p = b.param(wanted.with_manual(with_axes(wanted.manual(), all, Along::invarying)));
    shares = shares || !all.empty();
    Value own = all.empty() ? p : varied(p, all) / static_cast<double>(ways_of(a, all));
    if (!reduced.empty()) own = b.emit(ops::pcast, {own}, ops::Pcast{reduced, Along::unreduced});
    args.push_back(own);
  }
  return shares ? b.finish(inline_into(b, *transposed, args)) : transposed;
}

// The cotangent of an operand lies as the operand does. What one device has of it is all there is: where all have the
// same part of the operand, the region has added their cotangents up.
Values transpose_shard_map(Builder& b, const Eqn& e, const Values& operands, const Values& cts) {
  const auto& a = e.attrs<ops::ShardMap>();
  const Mask nonlinear = present(operands), ct = present(cts);
  const FunctionRef body = differing_as_specs(e, nonlinear, ct);
  const Transposed t = transpose(body, !nonlinear, ct);
  Values in(e.num_in());
  if (t.function->results().empty()) return in;
  const Values outs =
      emit_map(b, a, where(operands, nonlinear) + where(cts, ct), where(a.in, nonlinear) + where(a.out, ct),
               where(where(a.in, !nonlinear), t.out), sharing_cotangents(t.function, body, e, ct));
  for (int k = 0, of_linear = 0, next = 0; k < e.num_in(); ++k)
    if (!nonlinear[k] && t.out[of_linear++]) in[k] = outs[next++];
  return in;
}

// The spec of a value of `rank` dims with one more at `at`, split along `axes`.
std::string with_dim(const std::string& text, int rank, int at, const Axes& axes) {
  if (at < 0) return text;
  Spec spec = *parse_spec(text);
  spec.resize(rank);
  spec.insert(spec.begin() + at, DimSpec{.axes = axes});
  return to_text(spec);
}

// The axis as the region sees it: its name is gone where the mesh has an axis of that name, which collectives mean
// there; where the examples are spread over a mesh axis, here or by a map around, it is of those of one device.
MappedAxis axis_of_parts(const Eqn& e, MappedAxis axis) {
  const auto& a = e.attrs<ops::ShardMap>();
  const auto is_own = [&](const std::string& name) {
    return std::find(a.manual.begin(), a.manual.end(), name) != a.manual.end();
  };
  if (is_own(axis.name)) axis.name.clear();
  for (const Axes& spread : {axis.spread, axis.varying})
    if (!spread.empty() && is_own(spread[0]))
      refuse(e, fmt::format("vmap spreads over \"{}\", over which the function is spread already", spread[0]));
  if (axis.spread.empty()) return axis;
  const Mesh mesh = *Mesh::parse(a.mesh);
  const std::string& name = axis.spread[0];
  if (mesh.find(name) < 0) refuse(e, fmt::format("vmap spreads over \"{}\", which the mesh [{}] lacks", name, a.mesh));
  if (!axis.name.empty() && goes_over(*e.regions[0], axis.name))
    refuse(e, fmt::format("vmap spreads \"{}\" over \"{}\": a collective over the former would see only a part of it",
                          axis.name, name));
  const std::int64_t n = ways_of(a, axis.spread);
  if (axis.size % n != 0)
    refuse(e, fmt::format("vmap spreads {} examples over \"{}\" of size {}, which does not divide them", axis.size,
                          name, n));
  MappedAxis parts(axis.size / n, axis.name);
  parts.varying = axis.spread;
  return parts;
}

std::vector<Batched> batch_shard_map(Builder& b, const Eqn& e, std::span<const Batched> in, const MappedAxis& axis) {
  ops::ShardMap a = e.attrs<ops::ShardMap>();
  std::vector<int> dims;
  Values operands;
  for (const Batched& x : in) {
    dims.push_back(x.dim);
    operands.push_back(x.value);
  }
  const Batch body = batch(e.regions[0], dims, axis_of_parts(e, axis));
  for (int k = 0; k < e.num_in(); ++k) a.in[k] = with_dim(a.in[k], e.in(k).rank(), dims[k], axis.spread);
  for (int j = 0; j < e.num_out(); ++j) a.out[j] = with_dim(a.out[j], e.out(j).rank(), body.out_dims[j], axis.spread);
  a.manual = joined(a.manual, axis.spread);
  const Specs specs_in = a.in, specs_out = a.out;
  const Values outs = emit_map(b, std::move(a), std::move(operands), specs_in, specs_out, body.function);
  std::vector<Batched> out;
  for (std::size_t j = 0; j < outs.size(); ++j) out.push_back({outs[j], body.out_dims[j]});
  return out;
}

Shrunk shrink_shard_map(const Eqn& e, const Mask& used) {
  ops::ShardMap a = e.attrs<ops::ShardMap>();
  const Dce body = dce(e.regions[0], used);
  a.in = where(a.in, body.kept);
  a.out = where(a.out, used);
  return {.operands = body.kept,
          .results = used,
          .attributes = std::make_shared<const ops::ShardMap>(std::move(a)),
          .regions = {body.function}};
}

}  // namespace

const RegionRules shard_map_rules = {
    .op = &ops::shard_map,
    .jvp = jvp_shard_map,
    .partial_eval = split_shard_map,
    .transpose = transpose_shard_map,
    .batch = batch_shard_map,
    .shrink = shrink_shard_map,
};

}  // namespace sheaf::passes
