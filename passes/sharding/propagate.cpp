// The schedule of propagation, and the program made again with what came out of it. Each level is a fixpoint over a
// worklist in program order: a rule is visited again only when a site of it has changed, which it can as often as the
// mesh has axes, so the work is linear in the program and does not depend on the number of devices.
#include "passes/sharding/propagate.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <queue>
#include <set>

#include "ir/builder.h"
#include "ir/log.h"
#include "ir/op.h"
#include "ir/ops/attrs.h"
#include "passes/sharding/constraints.h"
#include "passes/sharding/flow.h"
#include "passes/sharding/weights.h"

namespace sheaf::passes {

using namespace ir;

namespace {

// Elementwise ops and edges whose operands have no other reader; all of them; pass-through factors of any op;
// reductions and what moves; broadcasts forward.
constexpr int kLevels = 5;

bool is_dynamic_slice(Op op) { return op == &ops::dynamic_slice || op == &ops::dynamic_update_slice; }

class Schedule {
 public:
  Schedule(Flow& flow, const MeshAtoms& atoms, const PropagateOptions& options)
      : flow_(flow),
        atoms_(atoms),
        options_(options),
        weights_(*flow.scope->function),
        is_waiting_(flow.rules.size()) {}

  std::int64_t run() {
    std::set<int> priorities{0};
    for (const Site& s : flow_.sites) priorities.insert(s.priorities.begin(), s.priorities.end());
    for (const int p : priorities) {
      const std::vector<Hidden> hidden = hide(p);
      const int first = options_.by_op ? 0 : kLevels - 1;
      for (level_ = first; level_ < kLevels; ++level_) settle(level_ == first);
      restore(hidden);
    }
    level_ = kLevels - 1;
    lend();
    return visits_;
  }

 private:
  // A dim of a later priority: whole and closed for now, its atoms kept for it.
  struct Hidden {
    int site = 0;
    std::size_t dim = 0;
    PlacedDim placed;
  };
  std::vector<Hidden> hide(int priority) {
    std::vector<Hidden> hidden;
    for (std::size_t i = 0; i < flow_.sites.size(); ++i) {
      Site& s = flow_.sites[i];
      for (std::size_t d = 0; d < s.priorities.size(); ++d) {
        if (s.priorities[d] <= priority) continue;
        PlacedDim& dim = s.placement.dims[d];
        s.placement.taken.insert(s.placement.taken.end(), dim.atoms.begin(), dim.atoms.end());
        hidden.push_back({static_cast<int>(i), d, std::exchange(dim, {.atoms = {}, .open = false})});
      }
    }
    return hidden;
  }
  void restore(const std::vector<Hidden>& hidden) {
    for (const Hidden& h : hidden) {
      Placement& p = flow_.sites[h.site].placement;
      p.dims[h.dim] = h.placed;
      for (const int a : h.placed.atoms) p.taken.erase(std::find(p.taken.begin(), p.taken.end(), a));
    }
  }

  // A rule that does no more than at the level before has nothing to do until a site of it changes.
  void settle(bool is_first) {
    for (std::size_t r = 0; r < flow_.rules.size(); ++r)
      if (is_first || does_more(flow_.rules[r])) push(static_cast<int>(r));
    drain();
  }
  void drain() {
    while (!cheap_.empty() || !others_.empty()) {
      std::queue<int>& next = cheap_.empty() ? others_ : cheap_;
      const int r = next.front();
      next.pop();
      is_waiting_[r] = false;
      visit(r);
    }
  }
  void push(int rule) {
    if (is_waiting_[rule]) return;
    is_waiting_[rule] = true;
    (flow_.rules[rule].keeps_factors ? cheap_ : others_).push(rule);
  }

  bool does_more(const Rule& rule) const {
    return std::any_of(rule.factors.factors.begin(), rule.factors.factors.end(),
                       [&](const Factor& f) { return direction(rule, f, level_) != direction(rule, f, level_ - 1); });
  }
  Direction direction(const Rule& rule, const Factor& factor, int level) const {
    if (factor.cls == FactorClass::N && !rule.has_room) return Direction::none;
    const Op op = rule.eqn->op;
    if (op == &ops::broadcast && level < 4) return level < 2 ? Direction::none : Direction::backward;
    if (level < 2) {
      if (level == 0 && !reads_alone(rule)) return Direction::none;
      if (is_dynamic_slice(op)) return Direction::forward;
      return rule.keeps_factors ? Direction::both : Direction::none;
    }
    return level > 2 || factor.cls == FactorClass::P ? Direction::both : Direction::none;
  }
  bool reads_alone(const Rule& rule) const {
    for (int k = 0; k < rule.operands(); ++k)
      if (flow_.sites[rule.tensors[k].site].uses > 1) return false;
    return true;
  }

  void visit(int r) {
    const Rule& rule = flow_.rules[r];
    directions_.clear();
    bool any = false;
    for (const Factor& f : rule.factors.factors) {
      directions_.push_back(direction(rule, f, level_));
      any |= directions_.back() != Direction::none;
    }
    if (!any) return;
    ++visits_;
    if (std::none_of(rule.tensors.begin(), rule.tensors.end(), [&](const Tensor& t) { return is_split(t); })) return;
    std::deque<Placement> views;
    std::vector<Projected> tensors;
    for (std::size_t i = 0; i < rule.tensors.size(); ++i) {
      tensors.push_back(project(seen(rule.tensors[i], views), rule.dims(i), rule.factors.factors, atoms_));
      if (is_of_weight(rule.tensors[i])) tensors.back().elements = 0;
    }
    const std::vector<int> sources = spread({.factors = rule.factors.factors,
                                             .directions = directions_,
                                             .tensors = tensors,
                                             .operands = rule.operands(),
                                             .is_pointwise = rule.is_pointwise},
                                            options_.strategy, atoms_);
    for (std::size_t i = 0; i < tensors.size(); ++i)
      if (tensors[i].changed) update(r, i, tensors[i], sources);
  }

  bool is_split(const Tensor& t) const {
    if (t.manual) return true;
    const std::vector<PlacedDim>& dims = flow_.sites[t.site].placement.dims;
    return std::any_of(dims.begin(), dims.end(), [](const PlacedDim& d) { return !d.atoms.empty(); });
  }

  // What is cut out of a dim that is split is whole in the end if it does not divide as the dim does. If another dim of
  // it does, it is split there instead: then the dim is exchanged for that one, and not gathered.
  void lend() {
    for (std::size_t r = 0; r < flow_.rules.size(); ++r) {
      const Rule& rule = flow_.rules[r];
      if (rule.operands() == 0) continue;
      for (std::size_t j = rule.operands(); j < rule.tensors.size(); ++j)
        if (!is_split(rule.tensors[j]) && lend(static_cast<int>(r), largest_operand(rule), j)) drain();
    }
  }
  int largest_operand(const Rule& rule) const {
    const auto elements = [&](int k) { return flow_.sites[rule.tensors[k].site].value.type().num_elements(); };
    int largest = 0;
    for (int k = 1; k < rule.operands(); ++k)
      if (elements(k) > elements(largest)) largest = k;
    return largest;
  }
  // Atoms of operand k that have to leave their dim, to the first dim of the result that both have.
  bool lend(int r, int k, std::size_t j) {
    const Rule& rule = flow_.rules[r];
    if (rule.tensors[k].manual) return false;
    const int from = rule.tensors[k].site;
    Site& site = flow_.sites[rule.tensors[j].site];
    const std::vector<PlacedDim>& have = flow_.sites[from].placement.dims;
    for (std::size_t d = 0; d < have.size(); ++d) {
      const Atoms& atoms = have[d].atoms;
      if (atoms.empty() || rule.dims(k)[d].size() != 1) continue;
      const FactorClass cls = rule.factors.factors[rule.dims(k)[d][0]].cls;
      if (cls != FactorClass::M && cls != FactorClass::N) continue;
      const int to = room_for(rule, k, j, atoms);
      if (to < 0) continue;
      site.placement.dims[to].atoms = atoms;
      site.reasons[to] = {r, from};
      for (const int other : site.rules) push(other);
      return true;
    }
    return false;
  }
  // Of result j, a dim that operand k has too, which is free in both; -1: none.
  int room_for(const Rule& rule, int k, std::size_t j, const Atoms& atoms) const {
    const Placement& from = flow_.sites[rule.tensors[k].site].placement;
    const Placement& to = flow_.sites[rule.tensors[j].site].placement;
    for (const int a : atoms)
      if (std::count(to.taken.begin(), to.taken.end(), a) > 0) return -1;
    const TensorFactors &in = rule.dims(k), &out = rule.dims(j);
    for (std::size_t d = 0; d < out.size(); ++d) {
      const auto same = std::find(in.begin(), in.end(), out[d]);
      if (out[d].size() != 1 || same == in.end() || !from.dims[same - in.begin()].atoms.empty()) continue;
      const Factor& factor = rule.factors.factors[out[d][0]];
      const bool divides = factor.cls == FactorClass::P && factor.size % atoms_.size(atoms) == 0;
      if (divides && to.dims[d].open) return static_cast<int>(d);
    }
    return -1;
  }

  // A weight is gathered where it meets others, and its gradient scattered: it gives way to those.
  bool is_of_weight(const Tensor& t) const {
    const Value v = flow_.sites[t.site].value;
    return weights_.is_weight(v) || weights_.is_gradient(v);
  }

  // A value of a shard_map's body as it is outside.
  const Placement& seen(const Tensor& t, std::deque<Placement>& views) const {
    const Placement& own = flow_.sites[t.site].placement;
    if (!t.manual) return own;
    Placement& outside = views.emplace_back(own);
    for (std::size_t d = 0; d < own.dims.size(); ++d) {
      const Atoms& first = t.manual->dims[d];
      outside.dims[d].atoms.insert(outside.dims[d].atoms.begin(), first.begin(), first.end());
      for (const int a : first) std::erase(outside.taken, a);
    }
    return outside;
  }

  // An equation may read one site twice, so each dim is checked against what the site has by now.
  void update(int r, std::size_t i, const Projected& tensor, const std::vector<int>& sources) {
    const Rule& rule = flow_.rules[r];
    const Tensor& t = rule.tensors[i];
    Site& site = flow_.sites[t.site];
    std::vector<Atoms> dims = unproject(tensor, rule.dims(i), rule.factors.factors, atoms_);
    bool changed = false;
    for (std::size_t d = 0; d < dims.size(); ++d) {
      Atoms& wanted = dims[d];
      if (t.manual) wanted.erase(wanted.begin(), wanted.begin() + std::ssize(t.manual->dims[d]));
      const Atoms& old = site.placement.dims[d].atoms;
      if (wanted.size() == old.size() || !is_prefix(old, wanted)) continue;
      const auto is_used = [&](int a) {
        return std::any_of(site.placement.dims.begin(), site.placement.dims.end(),
                           [&](const PlacedDim& p) { return std::count(p.atoms.begin(), p.atoms.end(), a) > 0; });
      };
      if (std::any_of(wanted.begin() + std::ssize(old), wanted.end(), is_used)) continue;
      site.placement.dims[d].atoms = std::move(wanted);
      site.reasons[d] = {r, source(rule, rule.dims(i)[d], sources)};
      changed = true;
    }
    if (!changed) return;
    for (const int other : site.rules) push(other);
  }

  static int source(const Rule& rule, const FactorList& factors, const std::vector<int>& sources) {
    for (auto f = factors.rbegin(); f != factors.rend(); ++f)
      if (sources[*f] >= 0) return rule.tensors[sources[*f]].site;
    return -1;
  }

  Flow& flow_;
  const MeshAtoms& atoms_;
  const PropagateOptions& options_;
  const Weights weights_;
  int level_ = 0;
  // What a dot gives reaches all that is computed from it elementwise before the next dot says otherwise.
  std::queue<int> cheap_, others_;
  std::vector<bool> is_waiting_;
  std::vector<Direction> directions_;
  std::int64_t visits_ = 0;
};

// The program made again

class Remaker {
 public:
  Remaker(const Flow& flow, const MeshAtoms& atoms) : flow_(flow), atoms_(atoms) {}

  FunctionRef run(const Scope& scope, bool is_outermost) {
    const Function& f = *scope.function;
    Builder b(f.name());
    ValueTable<Value> map(f);
    for (const Value p : f.params()) map[p] = b.param(type(scope.sites[p]), p.name());
    absl::flat_hash_map<std::pair<Value, Type>, Value> constants;
    const auto read = [&](const Eqn* e, int k, Value v) {
      if (!is_made_per_use(v)) return map[v];
      const Type t = type(scope.site(e, k));
      Value& made = constants[{v, t}];
      if (made) return made;
      Values operands;
      for (const Value in : v.eqn()->operands) operands.push_back(map[in]);
      return made = emit_typed(b, *v.eqn(), std::move(operands), {}, {t})[0];
    };
    for (const Eqn* e : f.eqns()) {
      if (is_made_per_use(e->out())) continue;
      Values operands;
      for (int k = 0; k < e->num_in(); ++k) operands.push_back(read(e, k, e->in(k)));
      std::vector<FunctionRef> regions;
      if (const auto inner = scope.regions.find(e); inner != scope.regions.end())
        for (const auto& r : inner->second) regions.push_back(run(*r, false));
      std::vector<Type> types;
      for (const Value v : e->outs()) types.push_back(type(scope.sites[v]));
      const Values outs = emit_typed(b, *e, std::move(operands), std::move(regions), types);
      for (int j = 0; j < e->num_out(); ++j) map[e->out(j)] = outs[j];
    }
    Values results;
    for (std::size_t j = 0; j < f.results().size(); ++j) {
      results.push_back(read(nullptr, static_cast<int>(j), f.results()[j]));
      if (is_outermost) results.back() = on_whole_axes(b, results.back());
    }
    return b.finish(std::move(results));
  }

 private:
  Type type(int site) const {
    const Value v = flow_.sites[site].value;
    Sharding s = sharding_of(v.type(), atoms_);
    for (std::size_t d = 0; d < s.dims.size(); ++d) s.dims[d] = flow_.sites[site].placement.dims[d].atoms;
    return with_sharding(v.type(), atoms_, s);
  }

  // Who reads a result knows whole axes only: each dim up to the first part of one.
  Value on_whole_axes(Builder& b, Value v) const {
    const TypeData& data = v.type().data();
    TypeData whole = data;
    for (Axes& axes : whole.dim_axes)
      axes.erase(
          std::find_if(axes.begin(), axes.end(), [&](const std::string& a) { return atoms_.mesh().find(a) < 0; }),
          axes.end());
    if (whole == data) return v;
    Spec spec(v.rank());
    for (std::size_t d = 0; d < whole.dim_axes.size(); ++d) spec[d].axes = whole.dim_axes[d];
    return constrained(b, v, atoms_.mesh(), spec, Type(whole));
  }

  const Flow& flow_;
  const MeshAtoms& atoms_;
};

// Why

std::string described(Value v) {
  if (v.is_param()) return v.name().empty() ? fmt::format("parameter {}", v.index()) : "%" + v.name();
  return fmt::format("{} at {}", v.eqn()->op->name, to_string(v.eqn()->loc));
}

std::string described(const Flow& flow, const Reason& why) {
  if (why.rule < 0) return "as given";
  const std::string through = std::string(flow.rules[why.rule].eqn->op->name);
  const std::string from = why.from < 0 ? "" : " from " + described(flow.sites[why.from].value);
  return "through " + through + from;
}

std::vector<std::string> reasons(const Flow& flow, const MeshAtoms& atoms) {
  std::vector<std::string> lines;
  for (const Site& s : flow.sites)
    for (std::size_t d = 0; d < s.placement.dims.size(); ++d)
      if (const Atoms& on = s.placement.dims[d].atoms; !on.empty())
        lines.push_back(fmt::format("{}: dim {} on {}, {}", described(s.value), d, fmt::join(atoms.names(on), ", "),
                                    described(flow, s.reasons[d])));
  return lines;
}

}  // namespace

Propagated propagate(const FunctionRef& f, const PropagateOptions& options) {
  if (!f->mesh()) return {.function = f};
  const MeshAtoms atoms(f->mesh());
  Flow flow = flow_of(with_chains_read_at_end(f), atoms);
  Propagated done;
  done.visits = Schedule(flow, atoms, options).run();
  done.function = Remaker(flow, atoms).run(*flow.scope, true)->on_mesh(f->mesh());
  if (options.explains || is_logged(LogTopic::passes)) done.reasons = reasons(flow, atoms);
  for (const std::string& line : done.reasons) log(LogTopic::passes, "{}: {}", f->name(), line);
  return done;
}

FunctionRef propagate(const FunctionRef& f) { return propagate(f, {}).function; }

}  // namespace sheaf::passes
