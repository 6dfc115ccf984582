// The search: atoms that every layout at hand keeps together are one unit, so that the work depends on the axes in use
// and not on their sizes; every unit goes to no factor or to one, at every place among those that are there already.
#include "passes/sharding/choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>
#include <tuple>

#include "ir/check.h"
#include "passes/sharding/local.h"

namespace sheaf::passes {

using namespace ir;

namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
// Of units that no layouts agree on: each assignment of five asks for moves over five, of which each takes a search.
constexpr int kMaxFree = 4;
constexpr std::int64_t kMaxAssignments = 20'000;

bool holds(const Atoms& atoms, int a) { return std::find(atoms.begin(), atoms.end(), a) != atoms.end(); }

std::optional<ReduceKind> reduction(Combine c) {
  switch (c) {
    case Combine::sum: return ReduceKind::sum;
    case Combine::prod: return ReduceKind::prod;
    case Combine::max: return ReduceKind::max;
    case Combine::min: return ReduceKind::min;
    case Combine::and_: return ReduceKind::and_;
    case Combine::or_: return ReduceKind::or_;
    case Combine::none:
    case Combine::custom: break;
  }
  return std::nullopt;
}

}  // namespace

Sharding layout_of(const TensorFactors& tensor, const Choice& choice) {
  Sharding s;
  for (const FactorList& dim : tensor) {
    s.dims.emplace_back();
    for (const int f : dim)
      s.dims.back().insert(s.dims.back().end(), choice.factors[f].begin(), choice.factors[f].end());
  }
  return s;
}

Sharding operand_layout(const Factors& f, const Choice& choice, int k) {
  Sharding s = layout_of(f.in[k], choice);
  if (!choice.is_partial.empty() && choice.is_partial[k]) s.unreduced = choice.partial;
  return s;
}

namespace {

// A result that carries a reduced factor is split where it is, not to be summed.
bool carries(const TensorFactors& tensor, int factor) {
  for (const FactorList& dim : tensor)
    if (std::find(dim.begin(), dim.end(), factor) != dim.end()) return true;
  return false;
}

}  // namespace

Sharding result_layout(const Factors& f, const Choice& choice, int j) {
  Sharding s = layout_of(f.out[j], choice);
  s.unreduced = choice.partial;
  for (std::size_t i = 0; i < f.factors.size(); ++i) {
    const std::optional<ReduceKind> kind = reduction(f.factors[i].combine);
    if (f.factors[i].cls != FactorClass::R || choice.factors[i].empty() || !kind) continue;
    if (carries(f.out[j], static_cast<int>(i))) continue;
    s.kind = *kind;
    s.unreduced.insert(s.unreduced.end(), choice.factors[i].begin(), choice.factors[i].end());
  }
  std::sort(s.unreduced.begin(), s.unreduced.end());
  return s;
}

bool can_split(const Eqn& e, const Factors& f, int factor, std::int64_t ways) {
  const Factor& x = f.factors[factor];
  if (x.cls == FactorClass::N) return false;
  const bool is_plain = x.cls != FactorClass::M && !x.absolute && x.combine != Combine::custom;
  if (is_plain) return x.cls != FactorClass::R || reduction(x.combine).has_value();
  if (!e.op->localize) return false;
  return e.op->splits ? e.op->splits(e, f, factor, ways) : x.cls != FactorClass::M;
}

namespace {

// Factors that are split alike: one, or neighbours.
struct Slot {
  std::vector<int> factors;
  std::int64_t size = 1;
};

std::vector<Slot> slots_of(const Eqn& e, const Factors& f) {
  std::vector<int> of(f.factors.size());  // the first of those that a factor is split like
  std::iota(of.begin(), of.end(), 0);
  for (const auto& [x, y] : f.neighbours) {
    const auto [first, other] = std::minmax(of[x], of[y]);
    std::replace(of.begin(), of.end(), int{other}, int{first});
  }
  std::vector<Slot> slots;
  for (int i = 0; i < static_cast<int>(f.factors.size()); ++i) {
    const Factor& x = f.factors[i];
    if (of[i] != i || x.size <= 1 || x.cls == FactorClass::N) continue;
    if ((x.absolute || x.cls == FactorClass::M || x.combine == Combine::custom) && !e.op->localize) continue;
    Slot s{.factors = {}, .size = x.size};
    for (int j = i; j < static_cast<int>(f.factors.size()); ++j) {
      if (of[j] != i) continue;
      s.factors.push_back(j);
      s.size = std::gcd(s.size, f.factors[j].size);
    }
    slots.push_back(std::move(s));
  }
  return slots;
}

class Search {
 public:
  Search(const Question& q, const MeshAtoms& mesh, const Prices& prices)
      : q_(q), f_(q.factors), mesh_(mesh), prices_(prices), slots_(slots_of(q.eqn, q.factors)), at_(slots_.size()) {
    moved_.resize(q.have.size());
    if (q.eqn.num_in() > 0) work_ = work_of(q.eqn);  // constants cost nothing, wherever they lie
    best_.cost = kNever;
  }

  Choice run() {
    units_ = units();
    for (const Atoms& unit : units_) agreed_.push_back(agreed_slot(unit));
    search();
    if (best_.cost == kNever && !units_.empty()) {
      std::fill(agreed_.begin(), agreed_.end(), -1);
      search();
    }
    best_.is_greedy = is_greedy_;
    return std::move(best_);
  }
  std::int64_t tried() const { return tried_; }

 private:
  template <class F>
  void each_layout(F visit) const {  // with the factors of the tensor it is of
    for (std::size_t k = 0; k < q_.have.size(); ++k)
      for (const Sharding& s : q_.have[k]) visit(s, f_.in[k]);
    for (std::size_t j = 0; j < q_.want.size(); ++j) visit(q_.want[j], f_.out[j]);
  }

  void search() {
    double count = 1;
    for (std::size_t u = 0; u < units_.size(); ++u)
      count *= static_cast<double>(agreed_[u] < 0 ? slots_.size() + u + 1 : u + 1);
    if (std::count(agreed_.begin(), agreed_.end(), -1) <= kMaxFree && count <= kMaxAssignments) return assign(0);
    is_greedy_ = true;
    greedy();
  }

  // The slot where every tensor that has its factor has the unit, and no tensor has it elsewhere; -1 if they differ.
  // There it stays, whatever the sizes: who lays weights out so that nothing but sums is needed means it, and may have
  // no room to gather them.
  int agreed_slot(const Atoms& unit) const {
    std::vector<std::pair<const Sharding*, const TensorFactors*>> given;
    for (std::size_t k = 0; k < q_.have.size(); ++k) given.emplace_back(&q_.have[k][0], &f_.in[k]);
    for (std::size_t j = 0; j < q_.want.size(); ++j) given.emplace_back(&q_.want[j], &f_.out[j]);
    int factor = -1;
    for (const auto& [s, tensor] : given)
      for (std::size_t d = 0; d < tensor->size(); ++d) {
        if (!holds(s->dims[d], unit[0])) continue;
        if ((*tensor)[d].size() != 1 || (factor >= 0 && factor != (*tensor)[d][0])) return -1;
        factor = (*tensor)[d][0];
      }
    for (const auto& [s, tensor] : given)
      for (std::size_t d = 0; d < tensor->size(); ++d)
        if (holds((*tensor)[d], factor) && !holds(s->dims[d], unit[0])) return -1;
    for (std::size_t i = 0; i < slots_.size(); ++i)
      if (slots_[i].factors == std::vector<int>{factor}) return static_cast<int>(i);
    return -1;
  }

  // Runs of atoms that dims are split over and that belong together: neighbours in every layout that has either, and
  // within one factor. What is only a sum's is no reason to split anything.
  std::vector<Atoms> units() const {
    std::vector<bool> used(mesh_.count()), ends(mesh_.count());
    const auto see = [&](const Atoms& list) {
      for (std::size_t i = 0; i < list.size(); ++i) {
        used[list[i]] = true;
        if (i + 1 == list.size() || list[i + 1] != list[i] + 1) ends[list[i]] = true;
        if ((i == 0 || list[i - 1] != list[i] - 1) && list[i] > 0) ends[list[i] - 1] = true;
      }
    };
    each_layout([&](const Sharding& s, const TensorFactors& tensor) {
      for (std::size_t d = 0; d < s.dims.size(); ++d) {
        see(s.dims[d]);
        cut_at_factors(s.dims[d], tensor[d], ends);
      }
    });
    std::vector<Atoms> units;
    for (int a = 0; a < mesh_.count(); ++a) {
      if (!used[a] || holds(q_.partial, a)) continue;
      const bool starts =
          units.empty() || units.back().back() != a - 1 || ends[a - 1] || mesh_[a].axis != mesh_[a - 1].axis;
      if (starts) units.emplace_back();
      units.back().push_back(a);
    }
    return units;
  }

  void cut_at_factors(const Atoms& list, const FactorList& dim, std::vector<bool>& ends) const {
    std::size_t at = 0;
    for (const int f : dim) {
      std::int64_t left = f_.factors[f].size;
      while (at < list.size() && left % mesh_[list[at]].size == 0) left /= mesh_[list[at++]].size;
      if (at > 0 && at < list.size()) ends[list[at - 1]] = true;
    }
  }

  bool fits(const Slot& slot, const Atoms& atoms) const {
    const std::int64_t ways = mesh_.size(atoms);
    if (slot.size % ways != 0) return false;
    return std::all_of(slot.factors.begin(), slot.factors.end(), [&](int f) { return can_split(q_.eqn, f_, f, ways); });
  }

  void assign(std::size_t unit) {
    if (unit == units_.size()) return evaluate();
    if (agreed_[unit] < 0) assign(unit + 1);
    for (std::size_t s = 0; s < slots_.size(); ++s) {
      if (agreed_[unit] >= 0 && agreed_[unit] != static_cast<int>(s)) continue;
      const Atoms before = at_[s];
      // Places between whole units: after none of them, after the first, ...
      for (std::size_t place = 0;; place = next_unit(before, place)) {
        at_[s] = before;
        at_[s].insert(at_[s].begin() + static_cast<std::ptrdiff_t>(place), units_[unit].begin(), units_[unit].end());
        if (fits(slots_[s], at_[s])) assign(unit + 1);
        if (place == before.size()) break;
      }
      at_[s] = before;
    }
  }

  std::size_t next_unit(const Atoms& atoms, std::size_t place) const {
    for (const Atoms& u : units_)
      if (u[0] == atoms[place]) return place + u.size();
    return atoms.size();
  }

  Choice choice() const {
    Choice c{.factors = std::vector<Atoms>(f_.factors.size()), .partial = q_.partial, .is_partial = q_.is_partial};
    for (std::size_t s = 0; s < slots_.size(); ++s)
      for (const int f : slots_[s].factors) c.factors[f] = at_[s];
    return c;
  }

  bool majors_are_full(const TensorFactors& tensor, const Choice& c) const {
    for (const FactorList& dim : tensor) {
      bool is_full = true;
      for (const int f : dim) {
        if (!is_full && !c.factors[f].empty()) return false;
        is_full = is_full && mesh_.size(c.factors[f]) == f_.factors[f].size;
      }
    }
    return true;
  }

  // A result that lacks an index which is not reduced is of the whole of it.
  bool is_whole_in_some(int factor) const {
    return std::any_of(f_.out.begin(), f_.out.end(), [&](const TensorFactors& t) { return !carries(t, factor); });
  }

  bool is_expressible(const Choice& c) const {
    for (const auto* tensors : {&f_.in, &f_.out})
      for (const TensorFactors& t : *tensors)
        if (!majors_are_full(t, c)) return false;
    std::optional<ReduceKind> kind;
    if (!c.partial.empty()) kind = ReduceKind::sum;
    for (std::size_t i = 0; i < f_.factors.size(); ++i) {
      if (c.factors[i].empty()) continue;
      if (f_.factors[i].cls == FactorClass::P && is_whole_in_some(static_cast<int>(i))) return false;
      if (f_.factors[i].cls != FactorClass::R) continue;
      const std::optional<ReduceKind> own = reduction(f_.factors[i].combine);
      if (!own && !c.partial.empty()) return false;
      if (own && kind && *kind != *own) return false;
      if (own) kind = own;
    }
    return true;
  }

  void evaluate() {
    ++tried_;
    Choice c = choice();
    if (!is_expressible(c)) return;
    std::int64_t shards = 1;
    for (const Atoms& a : at_) shards *= mesh_.size(a);
    c.cost = compute_cost(c, static_cast<double>(shards));
    for (std::size_t k = 0; k < q_.have.size() && c.cost <= best_.cost; ++k)
      c.cost += operand_cost(static_cast<int>(k), c);
    for (std::size_t j = 0; j < q_.want.size() && c.cost <= best_.cost; ++j)
      if (!q_.is_gradient[j])
        c.cost += prices_.reshard(q_.eqn.out(static_cast<int>(j)).type(), result_layout(f_, c, static_cast<int>(j)),
                                  q_.want[j]);
    if (c.cost <= best_.cost) c.cost += exchange_cost(c);
    if (c.cost > best_.cost || c.cost == kNever) return;
    if (c.cost == best_.cost && shards <= best_shards_) return;
    best_ = std::move(c);
    best_shards_ = shards;
  }

  double compute_cost(const Choice& c, double shards) const {
    double bytes = 0;
    const auto add = [&](const std::vector<TensorFactors>& tensors, auto type_of) {
      for (std::size_t k = 0; k < tensors.size(); ++k) {
        double whole = static_cast<double>(type_of(static_cast<int>(k)).bytes());
        for (const Atoms& dim : layout_of(tensors[k], c).dims) whole /= static_cast<double>(mesh_.size(dim));
        bytes += whole;
      }
    };
    add(f_.in, [&](int k) { return q_.eqn.in(k).type(); });
    add(f_.out, [&](int j) { return q_.eqn.out(j).type(); });
    return prices_.compute(
        {.flops = work_.flops / shards, .bytes = bytes, .transcendentals = work_.transcendentals / shards},
        q_.eqn.out().dtype());
  }

  // Neighbours' rows, candidates, totals: what the op's rule asks of other devices.
  double exchange_cost(const Choice& c) const {
    bool exchanges = false;
    for (std::size_t i = 0; i < f_.factors.size(); ++i)
      exchanges |=
          !c.factors[i].empty() && (f_.factors[i].cls == FactorClass::M || f_.factors[i].combine == Combine::custom);
    if (!exchanges || !prices_.communicate) return 0;
    Builder b;
    Values operands;
    for (int k = 0; k < q_.eqn.num_in(); ++k)
      operands.push_back(b.param(local_type(q_.eqn.in(k).type(), mesh_, operand_layout(f_, c, k)).with_manual({})));
    Values results = emit_local(b, q_.eqn, f_, c, mesh_, std::move(operands));
    return prices_.communicate(*b.finish(std::move(results))->on_mesh(mesh_.mesh()));
  }

  // A value that is taken twice in one layout is moved there once.
  double operand_cost(int k, const Choice& c) {
    if (q_.is_weight[k]) return 0;
    const Sharding to = operand_layout(f_, c, k);
    for (int j = 0; j < k; ++j)
      if (q_.eqn.in(j) == q_.eqn.in(k) && operand_layout(f_, c, j) == to) return 0;
    for (const auto& [seen, cost] : moved_[k])
      if (seen == to) return cost;
    double least = kNever;
    for (const Sharding& from : q_.have[k]) least = std::min(least, prices_.reshard(q_.eqn.in(k).type(), from, to));
    moved_[k].emplace_back(to, least);
    return least;
  }

  // Axes go to the factor where the largest tensors have them already.
  void greedy() {
    struct Wish {
      std::size_t slot;
      Atoms atoms;
      std::int64_t size = 0;
    };
    std::vector<Wish> wishes;
    const auto see = [&](const Sharding& s, const TensorFactors& tensor) {
      for (std::size_t d = 0; d < s.dims.size(); ++d) {
        if (s.dims[d].empty() || tensor[d].size() != 1) continue;
        for (std::size_t i = 0; i < slots_.size(); ++i)
          if (holds(slots_[i].factors, tensor[d][0])) wishes.push_back({i, s.dims[d], num_elements(f_.dims(tensor))});
      }
    };
    each_layout(see);
    std::sort(wishes.begin(), wishes.end(), [](const Wish& a, const Wish& b) {
      return std::tie(b.size, a.slot, a.atoms) < std::tie(a.size, b.slot, b.atoms);
    });
    evaluate();  // nothing split: always possible
    for (const Wish& wish : wishes) {
      if (!at_[wish.slot].empty()) continue;
      for (const int a : wish.atoms) {
        at_[wish.slot].push_back(a);
        const bool taken = std::any_of(
            at_.begin(), at_.end(), [&](const Atoms& other) { return &other != &at_[wish.slot] && holds(other, a); });
        if (taken || !fits(slots_[wish.slot], at_[wish.slot]) || !is_expressible(choice())) {
          at_[wish.slot].pop_back();
          break;
        }
      }
      evaluate();
    }
  }

  const Question& q_;
  const Factors& f_;
  const MeshAtoms& mesh_;
  const Prices& prices_;
  std::vector<Slot> slots_;
  std::vector<Atoms> at_;  // per slot
  std::vector<Atoms> units_;
  std::vector<int> agreed_;  // per unit: the slot it stays on
  std::vector<std::vector<std::pair<Sharding, double>>> moved_;  // per operand: costs seen
  Work work_;  // of the whole
  Choice best_;
  std::int64_t best_shards_ = 0, tried_ = 0;
  bool is_greedy_ = false;
};

void append(std::string& key, const Sharding& s) {
  for (const Atoms& d : s.dims) {
    for (const int a : d) key += static_cast<char>(a + 1);
    key += '\0';
  }
  key += '|';
  for (const int a : s.unreduced) key += static_cast<char>(a + 1);
  key += static_cast<char>(s.kind);
}

std::string key_of(const Question& q) {
  std::string key =
      fmt::format("{}{}", q.eqn.op->name, q.eqn.op->attrs.print ? q.eqn.op->attrs.print(q.eqn.attributes.get()) : "");
  for (std::size_t k = 0; k < q.have.size(); ++k) {
    const Type t = without_sharding(q.eqn.in(static_cast<int>(k)).type());
    key += to_string(t);
    key += q.is_partial.empty() || !q.is_partial[k] ? ';' : '!';
    key += q.is_weight[k] ? 'w' : '-';
    for (const Sharding& s : q.have[k]) append(key, s);
    const auto same = std::find(q.eqn.operands.begin(), q.eqn.operands.end(), q.eqn.operands[k]);
    key += static_cast<char>(1 + std::distance(q.eqn.operands.begin(), same));
  }
  for (std::size_t j = 0; j < q.want.size(); ++j) {
    key += q.is_gradient[j] ? 'g' : '-';
    append(key, q.want[j]);
  }
  append(key, {.dims = {}, .unreduced = q.partial});
  return key;
}

}  // namespace

Choice Chooser::choose(const Question& q) {
  std::string key = key_of(q);
  if (auto it = answers_.find(key); it != answers_.end()) return it->second;
  Search search(q, mesh_, prices_);
  Choice best = search.run();
  assignments_ += search.tried();
  return answers_.emplace(std::move(key), std::move(best)).first->second;
}

}  // namespace sheaf::passes
