// Vectorisation over a new axis. For almost every op it is derived from the factor rule: build the batched attributes
// by field kind, ask the rule of the batched op, and accept exactly if it is the old rule with one fresh factor
// (reference: docs/design-notes.md). Where the operands as they are do not fit, move or broadcast some and try again.
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "ir/builder.h"
#include "ir/op.h"
#include "ir/ops/attrs.h"
#include "ir/text.h"
#include "passes/emit.h"
#include "passes/memo.h"
#include "passes/regions.h"

namespace sheaf::passes {

using namespace ir;

namespace {

constexpr int kNone = -1;

Type with_dim(Type t, int at, std::int64_t size) {
  Shape dims = t.dims();
  dims.insert(dims.begin() + at, size);
  return t.with_dims(std::move(dims));
}

bool has(const Axes& axes, std::string_view axis) { return std::find(axes.begin(), axes.end(), axis) != axes.end(); }

// Where each operand's and result's fresh dim shall be; kNone: it does not carry one.
struct Placement {
  std::vector<int> in, out;
  int of(int tensor) const { return tensor >= 0 ? in[tensor] : out[-1 - tensor]; }
};

// The attributes of the op with a fresh dim of `size`, rewritten by field kind; then the slot's lists extended.
std::shared_ptr<const void> batched_attrs(const Eqn& e, const Placement& p, std::int64_t size) {
  if (!e.attributes) return nullptr;
  std::uint32_t carried = 0;
  for (std::size_t k = 0; k < p.in.size() && k < 32; ++k)
    carried |= p.in[k] != kNone ? 1u << k : 0;  // slots name few operands
  const BatchSlot* slot = nullptr;
  for (const BatchSlot& s : e.op->slots)
    if (s.operands == carried) slot = &s;

  std::shared_ptr<void> attrs = e.op->attrs.clone(e.attributes.get());
  e.op->attrs.visit(attrs.get(), [&](const Field& f) {
    if (f.kind == FieldKind::plain) return;
    const int at = p.of(f.of);
    const auto shift = [](std::int64_t d, int pos) { return pos != kNone && d >= pos ? d + 1 : d; };
    switch (f.kind) {
      case FieldKind::dims:
      case FieldKind::sorted_dims:
        for (std::int64_t& d : *f.values) d = shift(d, at);
        break;
      case FieldKind::per_dim: {
        if (at == kNone) break;
        const bool one = slot && slot->size_one == f.name;
        f.values->insert(f.values->begin() + at, one ? 1 : neutral_value(f.neutral, size));
        break;
      }
      case FieldKind::dim_map: {
        const int to = p.of(f.to);
        for (std::int64_t& d : *f.values) d = shift(d, to);
        if (at != kNone && to != kNone) f.values->insert(f.values->begin() + at, to);
        break;
      }
      case FieldKind::plain: break;
    }
    if (!slot || at == kNone) return;
    if (std::find(slot->append.begin(), slot->append.end(), f.name) == slot->append.end()) return;
    f.values->push_back(at);
    if (f.kind == FieldKind::sorted_dims) std::sort(f.values->begin(), f.values->end());
  });
  return attrs;
}

struct Plan {
  Placement place;
  std::shared_ptr<const void> attributes;
};

class Derivation {
 public:
  Derivation(const Eqn& e, std::vector<int> dims, std::int64_t size) : e_(e), dims_(std::move(dims)), size_(size) {
    auto rule = e.op->factors(e);
    SHEAF_CHECK(rule.ok(), std::string(rule.status().message()));
    rule_ = *std::move(rule);
    for (int d : dims_)
      if (d != kNone && first_ == kNone) first_ = d;
  }

  // Fewest broadcasts first, then fewest moves.
  Plan search() const {
    for (const Mask& broadcast : broadcasts())
      for (int mode = 0; mode < 3; ++mode)
        if (auto plan = attempt(broadcast, mode)) return *plan;
    SHEAF_CHECK(false, fmt::format("{} cannot be batched by its factors: {}", e_.op->name, print(e_)));
  }

 private:
  // Sets of unbatched operands to broadcast, smallest first. Of many (a long concatenate) only none and all are tried:
  // their subsets would not end.
  std::vector<Mask> broadcasts() const {
    constexpr std::size_t kMaxSubsets = 8;
    std::vector<std::size_t> unbatched;
    for (std::size_t k = 0; k < dims_.size(); ++k)
      if (dims_[k] == kNone) unbatched.push_back(k);
    std::vector<Mask> sets{Mask(dims_.size())};
    if (unbatched.size() > kMaxSubsets) {
      sets.emplace_back(dims_.size());
      for (std::size_t k : unbatched) sets[1][k] = true;
      return sets;
    }
    for (std::size_t k : unbatched)
      for (std::size_t i = sets.size(); i-- > 0;) {
        sets.push_back(sets[i]);
        sets.back()[k] = true;
      }
    std::sort(sets.begin(), sets.end(),
              [](const Mask& a, const Mask& b) { return std::pair(count(a), a) < std::pair(count(b), b); });
    return sets;
  }

  // mode 0: operands as they are; 1: all at the first one's position; 2: all at 0.
  std::optional<Plan> attempt(const Mask& broadcast, int mode) const {
    Plan plan;
    for (std::size_t k = 0; k < dims_.size(); ++k) {
      int at = kNone;
      if (dims_[k] != kNone) at = mode == 0 ? dims_[k] : mode == 1 ? first_ : 0;
      else if (broadcast[k]) at = mode == 2 ? 0 : first_;
      if (at > e_.in(static_cast<int>(k)).rank()) return std::nullopt;
      plan.place.in.push_back(at);
    }
    int rank = e_.out(0).rank();
    for (int j = 1; j < e_.num_out(); ++j) rank = std::min(rank, e_.out(j).rank());
    std::vector<int> positions;
    if (first_ <= rank) positions.push_back(first_);
    for (int r = 0; r <= rank; ++r)
      if (r != first_) positions.push_back(r);
    for (int at : positions) {
      plan.place.out.assign(e_.num_out(), at);
      plan.attributes = batched_attrs(e_, plan.place, size_);
      if (proves(plan)) return plan;
    }
    return std::nullopt;
  }

  // The rule of the batched equation must be the old one with a fresh pass-through factor: that is the whole proof.
  bool proves(const Plan& plan) const {
    Builder types("types");  // only to make values of the batched types
    Eqn batched{.op = e_.op, .attributes = plan.attributes};
    for (int k = 0; k < e_.num_in(); ++k) {
      const Type t = e_.in(k).type();
      batched.operands.push_back(types.param(plan.place.in[k] == kNone ? t : with_dim(t, plan.place.in[k], size_)));
    }
    const auto rule = e_.op->factors(batched);
    return rule.ok() && rule->same_structure(rule_.with_fresh(size_, plan.place.in, plan.place.out));
  }

  const Eqn& e_;
  std::vector<int> dims_;
  std::int64_t size_;
  Factors rule_;
  int first_ = kNone;
};

// A batched rank-0 operand beside full ones becomes full: the fresh factor must be everywhere it is somewhere.
void promote_scalars(Builder& b, const Eqn& e, std::vector<Batched>& in) {
  int full = 0;
  for (int k = 0; k < e.num_in(); ++k)
    if (e.in(k).rank() > e.in(full).rank()) full = k;
  const Shape& dims = e.in(full).dims();
  if (dims.empty()) return;
  for (int k = 0; k < e.num_in(); ++k) {
    if (in[k].dim == kNone || e.in(k).rank() != 0) continue;
    ops::Broadcast c;
    c.shape = dims;
    c.shape.insert(c.shape.begin(), in[k].value.dims()[0]);
    c.dims = {0};
    in[k] = {b.emit(ops::broadcast, {in[k].value}, std::move(c)), 0};
  }
}

class BatchWalk {
 public:
  BatchWalk(const FunctionRef& f, const std::vector<int>& in_dims, const MappedAxis& axis)
      : f_(*f), axis_(axis), size_(axis.size), b_(f->name() + ".batch"), map_(*f) {
    for (std::size_t i = 0; i < in_dims.size(); ++i) {
      const Value p = f_.params()[i];
      Type t = p.type();
      if (in_dims[i] != kNone) t = with_dim(t, in_dims[i], axis.size).with_varying(joined(t.varying(), axis.varying));
      map_[p] = {b_.param(t, p.name()), in_dims[i]};
    }
  }

  Batch run() {
    for (const Eqn* e : f_.eqns()) equation(*e);
    Batch result;
    Values values;
    for (Value r : f_.results()) {
      values.push_back(map_[r].value);
      result.out_dims.push_back(map_[r].dim);
    }
    result.function = b_.finish(std::move(values));
    return result;
  }

 private:
  void equation(const Eqn& e) {
    std::vector<Batched> in;
    bool any = false;
    for (Value v : e.operands) {
      in.push_back(map_[v]);
      any |= in.back().dim != kNone;
    }
    b_.at(e, any ? "batch" : "");
    std::vector<Batched> out;
    if (e.op->axes && !axis_.name.empty() && has(e.op->axes(e), axis_.name)) {
      b_.at(e, "batch");
      out = e.op->over(b_, e, axis_.name, in, size_);
    } else if (!any && !collects(e)) {
      for (Value v : b_.clone(e, values(in))) out.push_back({v, kNone});
    } else if (const RegionRules* regions = region_rules(e.op)) {
      out = regions->batch(b_, e, in, axis_);
    } else if (e.op->batch) {
      out = e.op->batch(b_, e, in, size_);
    } else {
      out = derived(e, std::move(in));
    }
    for (int j = 0; j < e.num_out(); ++j) map_[e.out(j)] = out[j];
  }

  // Something in its regions goes over the axis, whatever the operands are.
  bool collects(const Eqn& e) const {
    if (axis_.name.empty()) return false;
    for (const FunctionRef& r : e.regions)
      if (goes_over(*r, axis_.name)) return true;
    return false;
  }

  static Values values(const std::vector<Batched>& in) {
    Values v;
    for (const Batched& x : in) v.push_back(x.value);
    return v;
  }

  // A batch of no examples has results of no elements, whatever the op.
  std::vector<Batched> of_nothing(const Eqn& e) {
    std::vector<Batched> out;
    for (const Value v : e.outs()) {
      Shape dims = v.dims();
      dims.insert(dims.begin(), 0);
      out.push_back({varied(b_.zeros(v.type().with_dims(std::move(dims))), axis_.varying), 0});
    }
    return out;
  }

  std::vector<Batched> derived(const Eqn& e, std::vector<Batched> in) {
    if (size_ == 0) return of_nothing(e);
    Eqn promoted{.op = e.op, .operands = e.operands, .results = e.results, .attributes = e.attributes};
    if (e.op->is_elementwise) {
      promote_scalars(b_, e, in);
      // As the rule sees it, a promoted operand is a full one.
      for (int k = 0; k < e.num_in(); ++k)
        if (in[k].dim != kNone && e.in(k).rank() == 0 && e.out(0).rank() > 0) promoted.operands[k] = full_operand(e);
    }
    std::vector<int> dims;
    for (const Batched& x : in) dims.push_back(x.dim);
    const Plan plan = Derivation(promoted, dims, size_).search();
    Values operands;
    for (int k = 0; k < e.num_in(); ++k) {
      const int at = plan.place.in[k];
      if (at == kNone) operands.push_back(in[k].value);
      else if (in[k].dim == kNone) operands.push_back(insert_dim(b_, in[k].value, at, size_));
      else operands.push_back(move_dim(b_, in[k].value, in[k].dim, at));
    }
    std::vector<Batched> out;
    const Values outs = b_.emit_all(e.op, std::move(operands), plan.attributes, e.regions);
    for (int j = 0; j < e.num_out(); ++j) out.push_back({outs[j], plan.place.out[j]});
    return out;
  }

  static Value full_operand(const Eqn& e) {
    for (Value v : e.operands)
      if (v.rank() > 0) return v;
    SHEAF_CHECK(false);
  }

  const Function& f_;
  MappedAxis axis_;
  std::int64_t size_;
  Builder b_;
  ValueTable<Batched> map_;
};

}  // namespace

bool goes_over(const Function& f, std::string_view axis) {
  for (const Eqn* e : f.eqns()) {
    if (e->op->axes && has(e->op->axes(*e), axis)) return true;
    if (e->op == &ops::shard_map && has(e->attrs<ops::ShardMap>().manual, axis)) continue;  // its own of that name
    for (const FunctionRef& r : e->regions)
      if (goes_over(*r, axis)) return true;
  }
  return false;
}

Batch batch(const FunctionRef& f, const std::vector<int>& in_dims, const MappedAxis& axis) {
  return memoized(&Memo::batch, {f, in_dims, axis}, [&] { return BatchWalk(f, in_dims, axis).run(); });
}

namespace {

FunctionRef place_results(const FunctionRef& f, const std::vector<int>& in_dims, const std::vector<int>& out_dims,
                          const MappedAxis& axis) {
  const Batch batched = batch(f, in_dims, axis);
  Builder b(f->name() + ".vmap");
  const Values params = clone_params(b, *batched.function, Mask(in_dims.size(), true));
  Values results = inline_into(b, *batched.function, params);
  for (std::size_t j = 0; j < results.size(); ++j) {
    const int from = batched.out_dims[j], to = out_dims[j];
    SHEAF_CHECK(to != kNone || from == kNone, "an unbatched result was promised");
    if (to == kNone) continue;
    results[j] = from == kNone ? varied(insert_dim(b, results[j], to, axis.size), axis.varying)
                               : move_dim(b, results[j], from, to);
  }
  return b.finish(std::move(results));
}

}  // namespace

FunctionRef vmap(const FunctionRef& f, const std::vector<int>& in_dims, const std::vector<int>& out_dims,
                 const MappedAxis& axis) {
  return memoized(&Memo::vmap, {f, in_dims, out_dims, axis}, [&] { return place_results(f, in_dims, out_dims, axis); });
}

}  // namespace sheaf::passes
