// Local equations of collectives, in one walk over the program and its regions.
#include "passes/sharding/collectives.h"

#include <algorithm>
#include <map>

#include "ir/op.h"
#include "ir/ops/rules.h"
#include "ir/rewrite.h"
#include "ir/sharding.h"
#include "passes/emit.h"

namespace sheaf::passes {

using namespace ir;

namespace {

using AtomSet = std::uint64_t;  // a mesh has fewer than 32 atoms

/// Along which atoms a value may differ from device to device. Of parameters nothing is known.
class Variance {
 public:
  Variance(const Function& f, const MeshAtoms& mesh) : mesh_(mesh), of_(f, all()) {
    for (const Eqn* e : f.eqns()) {
      const AtomSet s = result(*e);
      for (const Value v : e->outs()) of_[v] = s;
    }
  }
  bool is_same_along(Value v, const Axes& axes) const { return (of_[v] & set(axes)) == 0; }

 private:
  AtomSet all() const { return (AtomSet{1} << mesh_.count()) - 1; }
  AtomSet set(const Axes& axes) const {
    AtomSet s = 0;
    for (const int a : mesh_.of(axes)) s |= AtomSet{1} << a;
    return s;
  }
  AtomSet result(const Eqn& e) const {
    if (!e.regions.empty() || e.effects != Effects::none) return all();
    AtomSet s = 0;
    for (const Value v : e.operands) s |= of_[v];
    if (!e.op->axes) return s;
    const AtomSet axes = set(e.op->axes(e));
    return e.op == &ops::all_reduce || e.op == &ops::all_gather ? s & ~axes : s | axes;
  }

  const MeshAtoms& mesh_;
  ValueTable<AtomSet> of_;
};

ValueTable<int> count_uses(const Function& f) {
  ValueTable<int> uses(f, 0);
  for (const Eqn* e : f.eqns())
    for (const Value v : e->operands) ++uses[v];
  for (const Value r : f.results()) ++uses[r];
  return uses;
}

const Eqn* made_by(Value v, const OpDef& op) { return v.eqn() && v.eqn()->op == &op ? v.eqn() : nullptr; }

/// The axes whose coordinate the start of a block is, times its rows. In a narrow dtype it could have wrapped around.
std::optional<Axes> block_index(Value start, std::int64_t rows) {
  const auto peel = [&] {
    while (start.eqn() && size_bytes(start.dtype()) >= 4 &&
           (start.eqn()->op == &ops::reshape || start.eqn()->op == &ops::convert))
      start = start.eqn()->in(0);
  };
  peel();
  std::int64_t factor = 1;
  if (const Eqn* product = made_by(start, ops::mul); product && size_bytes(start.dtype()) >= 4) {
    for (const int k : {0, 1}) {
      const std::optional<Literal> c = constant_value(product->in(k));
      if (!c) continue;
      factor = c->get_int(0);
      start = product->in(1 - k);
      peel();
      break;
    }
  }
  const Eqn* index = made_by(start, ops::axis_index);
  if (!index || factor != rows) return std::nullopt;
  return index->attrs<ops::AxisIndex>().axes;
}

/// The one dim of which a device takes the block that is its own along some axes.
struct OwnBlock {
  std::int64_t dim = 0;
  Axes axes = {};
};

std::optional<OwnBlock> own_block(const Eqn& e, const MeshAtoms& mesh) {
  if (e.op != &ops::dynamic_slice) return std::nullopt;
  const ops::DynamicSlice& a = e.attrs<ops::DynamicSlice>();
  if (a.dims.size() != 1 || !a.batch.empty()) return std::nullopt;
  const std::int64_t dim = a.dims[0], rows = a.sizes[0];
  std::optional<Axes> axes = block_index(e.in(1), rows);
  if (!axes || rows * mesh.size(mesh.of(*axes)) != e.in(0).dims()[dim]) return std::nullopt;
  return OwnBlock{dim, *std::move(axes)};
}

bool contains(const Atoms& all, const Atoms& some) {
  return std::all_of(some.begin(), some.end(),
                     [&](int a) { return std::find(all.begin(), all.end(), a) != all.end(); });
}

class Simplifier {
 public:
  explicit Simplifier(MeshAtoms mesh) : mesh_(std::move(mesh)) {}

  FunctionRef run(const FunctionRef& f) {
    if (const auto it = done_.find(f); it != done_.end()) return it->second;
    const Variance variance(*f, mesh_);
    const ValueTable<int> uses = count_uses(*f);
    FunctionRef out = remade(*f, [&](Builder& b, const Eqn& e, Values operands) -> Values {
      std::vector<FunctionRef> regions;
      for (const FunctionRef& r : e.regions) regions.push_back(run(r));
      if (e.op == &ops::scan)
        if (std::optional<Values> better = sums_behind(b, e, operands, regions)) return *std::move(better);
      if (const Value better = simpler(b, e, operands, variance, uses)) return {better};
      return b.emit_all(e.op, std::move(operands), e.attributes, std::move(regions));
    });
    return done_.emplace(f, std::move(out)).first->second;
  }

 private:
  /// A better value for the equation, whose operands in b are given; null: none.
  Value simpler(Builder& b, const Eqn& e, const Values& operands, const Variance& variance,
                const ValueTable<int>& uses) const {
    if (const std::optional<OwnBlock> own = own_block(e, mesh_)) {
      if (const Eqn* sum = made_by(e.in(0), ops::all_reduce); sum && uses[e.in(0)] == 1)
        return scattered(b, *sum, operands[0], *own);
      return uncut(e, operands[0], *own);
    }
    if (e.op != &ops::all_gather || !e.in(0).eqn()) return Value();
    const ops::AllGather& a = e.attrs<ops::AllGather>();
    const std::optional<OwnBlock> own = own_block(*e.in(0).eqn(), mesh_);
    if (!own || !a.tiled || own->dim != a.dim || own->axes != a.axes) return Value();
    if (!variance.is_same_along(e.in(0).eqn()->in(0), a.axes) || !made_by(operands[0], ops::dynamic_slice))
      return Value();
    return operands[0].eqn()->in(0);
  }

  // The part of the sum over axes that the block is not along stays one.
  Value scattered(Builder& b, const Eqn& sum, Value in_b, const OwnBlock& own) const {
    const ops::AllReduce& a = sum.attrs<ops::AllReduce>();
    const Eqn* here = made_by(in_b, ops::all_reduce);
    const Atoms summed = mesh_.of(a.axes), cut = mesh_.of(own.axes);
    if (!here || !contains(summed, cut)) return Value();
    Atoms rest;
    for (const int atom : summed)
      if (!contains(cut, {atom})) rest.push_back(atom);
    b.set_loc(sum.loc, sum.how);
    const Value part = b.emit(
        ops::reduce_scatter, {here->in(0)},
        ops::ReduceScatter{.axes = own.axes, .size = mesh_.size(cut), .dim = own.dim, .tiled = true, .kind = a.kind});
    if (rest.empty()) return part;
    return b.emit(ops::all_reduce, {part}, ops::AllReduce{.axes = mesh_.names(rest), .kind = a.kind});
  }

  Value uncut(const Eqn& e, Value in_b, const OwnBlock& own) const {
    const Eqn* gathered = made_by(e.in(0), ops::all_gather);
    const Eqn* here = made_by(in_b, ops::all_gather);
    if (!gathered || !here) return Value();
    const ops::AllGather& a = gathered->attrs<ops::AllGather>();
    return a.tiled && a.dim == own.dim && a.axes == own.axes ? here->in(0) : Value();
  }

  /// Which carries of the loop are sums over its steps of a sum over devices, and nothing else: their all_reduces.
  std::map<int, const Eqn*> summed_carries(const ops::Scan& a, const Function& body) const {
    const ValueTable<int> uses = count_uses(body);
    std::map<int, const Eqn*> sums;
    for (int k = 0; k < a.carry; ++k) {
      const Value carry = body.params()[a.consts + k];
      const Eqn* add = made_by(body.results()[k], ops::add);
      if (!add || uses[carry] != 1 || uses[add->out()] != 1) continue;
      for (const int side : {0, 1}) {
        const Eqn* sum = made_by(add->in(1 - side), ops::all_reduce);
        if (add->in(side) == carry && sum && uses[sum->out()] == 1 &&
            sum->attrs<ops::AllReduce>().kind == ReduceKind::sum)
          sums[k] = sum;
      }
    }
    return sums;
  }

  // The loop adds up from what changes no sum, and the carry's start, which may differ from device to device, comes in
  // behind it.
  std::optional<Values> sums_behind(Builder& b, const Eqn& e, Values operands,
                                    const std::vector<FunctionRef>& regions) const {
    const ops::Scan& a = e.attrs<ops::Scan>();
    const Function& body = *regions[0];
    const std::map<int, const Eqn*> sums = summed_carries(a, body);
    if (sums.empty() || a.length < 2) return std::nullopt;
    const FunctionRef partial = remade(body, [&](Builder& to, const Eqn& inner, Values of) -> Values {
      const auto is_one = [&](const auto& sum) { return sum.second == &inner; };
      if (std::any_of(sums.begin(), sums.end(), is_one)) return {of[0]};
      return to.emit_all(inner.op, std::move(of), inner.attributes, inner.regions);
    });
    const Values starts(operands.begin() + a.consts, operands.begin() + a.consts + a.carry);
    for (const auto& [k, sum] : sums)  // -0.0 + x is x, 0.0 too
      operands[a.consts + k] = b.full(starts[k].type(), is_float(starts[k].dtype()) ? -0.0 : 0.0);
    Values outs = b.emit_all(e.op, std::move(operands), e.attributes, {partial});
    for (const auto& [k, sum] : sums) {
      b.set_loc(sum->loc, sum->how);
      outs[k] = starts[k] + b.emit(ops::all_reduce, {outs[k]}, sum->attrs<ops::AllReduce>());
    }
    return outs;
  }

  const MeshAtoms mesh_;
  absl::flat_hash_map<FunctionRef, FunctionRef> done_;
};

}  // namespace

FunctionRef simplify_collectives(const FunctionRef& local) { return Simplifier(MeshAtoms(local->mesh())).run(local); }

FunctionRef improve_collectives(const FunctionRef& local, const Target& target) {
  if (!local->mesh()) return local;
  return combine_collectives(simplify_collectives(local), chosen_profile(target));
}

}  // namespace sheaf::passes
