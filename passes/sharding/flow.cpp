// Sites and rules of a program, equation by equation. Loops and branches have no factors but edges: what enters, what
// is carried and what comes out lie alike.
#include "passes/sharding/flow.h"

#include <algorithm>
#include <numeric>

#include "ir/op.h"
#include "ir/ops/attrs.h"

namespace sheaf::passes {

using namespace ir;

namespace {

Factors alike(const Shape& dims, std::size_t operands, std::size_t results) {
  Factors f;
  TensorFactors all;
  for (const std::int64_t n : dims) all.push_back({f.add(n)});
  f.in.assign(operands, all);
  f.out.assign(results, all);
  return f;
}

bool has_axes(const Factors& f) {
  return std::any_of(f.factors.begin(), f.factors.end(), [](const Factor& x) { return x.size > 1; });
}

// Neighbours are factors of their own, as their sizes differ, but lie alike as far as all of them divide.
Factors with_neighbours_joined(Factors f) {
  std::vector<int> joined(f.factors.size());
  std::iota(joined.begin(), joined.end(), 0);
  for (const auto& [x, y] : f.neighbours) {
    const int first = std::min(joined[x], joined[y]), other = std::max(joined[x], joined[y]);
    f.factors[first].size = std::gcd(f.factors[first].size, f.factors[other].size);
    std::replace(joined.begin(), joined.end(), other, first);
  }
  for (std::vector<TensorFactors>* tensors : {&f.in, &f.out})
    for (TensorFactors& dims : *tensors)
      for (FactorList& list : dims)
        for (int& factor : list) factor = joined[factor];
  return f;
}

class FlowBuilder {
 public:
  FlowBuilder(const FunctionRef& f, const MeshAtoms& atoms) : atoms_(atoms) {
    flow_.scope = std::make_unique<Scope>(f);
    for (const Value p : f->params()) {
      flow_.scope->sites[p] = add_site(p);
      for (PlacedDim& d : flow_.sites.back().placement.dims) d.open = false;
    }
    fill(*flow_.scope);
    apply_constraints();
  }
  Flow take() { return std::move(flow_); }

 private:
  int add_site(Value v) {
    const Sharding given = sharding_of(v.type(), atoms_);
    Site site{.value = v, .placement = {.dims = {}, .taken = manual_}};
    for (const Atoms& a : given.dims) site.placement.dims.push_back({.atoms = a, .open = true});
    site.placement.taken.insert(site.placement.taken.end(), given.unreduced.begin(), given.unreduced.end());
    site.reasons.resize(given.dims.size());
    if (v.eqn() && v.eqn()->op == &ops::with_sharding) constrain(site, v.eqn()->attrs<ops::WithSharding>());
    flow_.sites.push_back(std::move(site));
    return static_cast<int>(flow_.sites.size()) - 1;
  }

  // Of what the spec names, what divides and is not taken; where it is open, what the type says beyond that.
  void constrain(Site& site, const ops::WithSharding& constraint) {
    Spec spec = *parse_spec(constraint.spec);
    spec.resize(site.value.rank());
    std::vector<PlacedDim> wanted;
    bool agrees = true;
    for (std::size_t d = 0; d < spec.size(); ++d) {
      wanted.push_back({.atoms = available(site, d, spec[d].axes), .open = spec[d].open});
      agrees &= is_prefix(wanted[d].atoms, site.placement.dims[d].atoms);
      if (spec[d].priority == 0) continue;
      site.priorities.resize(spec.size());
      site.priorities[d] = spec[d].priority;
    }
    for (std::size_t d = 0; d < spec.size(); ++d)
      if (agrees && wanted[d].open) wanted[d].atoms = site.placement.dims[d].atoms;
    site.placement.dims = std::move(wanted);
  }

  Atoms available(const Site& site, std::size_t d, const Axes& axes) const {
    Atoms atoms;
    std::int64_t rest = site.value.dims()[d];
    for (const int a : atoms_.of(axes)) {
      const Atoms& taken = site.placement.taken;
      if (rest % atoms_[a].size != 0 || std::find(taken.begin(), taken.end(), a) != taken.end()) break;
      rest /= atoms_[a].size;
      atoms.push_back(a);
    }
    return atoms;
  }

  void fill(Scope& scope) {
    const Function& f = *scope.function;
    for (const Value p : f.params())
      if (scope.sites[p] < 0) scope.sites[p] = add_site(p);
    for (const Eqn* e : f.eqns()) {
      for (int k = 0; k < e->num_in(); ++k) use(scope, e->in(k), e, k);
      if (is_made_per_use(e->out())) continue;
      for (const Value v : e->outs()) scope.sites[v] = add_site(v);
      if (e->op->factors) equation(scope, *e);
      else edges(scope, *e);
    }
    for (std::size_t j = 0; j < f.results().size(); ++j) use(scope, f.results()[j], nullptr, static_cast<int>(j));
  }

  void use(Scope& scope, Value v, const Eqn* e, int k) {
    if (is_made_per_use(v)) scope.constants[{e, k}] = add_site(v);
    flow_.sites[scope.site(e, k)].uses += 1;
  }

  void add_rule(const Eqn& e, Factors factors, std::vector<Tensor> tensors) {
    if (!has_axes(factors)) return;
    Rule rule{.eqn = &e, .factors = std::move(factors), .tensors = std::move(tensors)};
    const TensorFactors* all = nullptr;
    rule.is_pointwise = rule.keeps_factors = true;
    for (const Factor& f : rule.factors.factors) {
      rule.keeps_factors &= f.cls == FactorClass::P;
      rule.has_room |= f.cls != FactorClass::N && f.size > 1;
    }
    for (std::size_t i = 0; i < rule.tensors.size(); ++i) {
      const TensorFactors& dims = rule.dims(i);
      flow_.sites[rule.tensors[i].site].rules.push_back(static_cast<int>(flow_.rules.size()));
      if (dims.empty()) continue;
      rule.is_pointwise &= !all || *all == dims;
      rule.keeps_factors &= has_all(rule.factors, dims);
      all = &dims;
    }
    flow_.rules.push_back(std::move(rule));
  }

  static bool has_all(const Factors& f, const TensorFactors& dims) {
    std::vector<bool> seen(f.factors.size());
    for (const FactorList& list : dims)
      for (const int i : list) seen[i] = true;
    for (std::size_t i = 0; i < seen.size(); ++i)
      if (!seen[i] && f.factors[i].size != 1) return false;
    return true;
  }

  void equation(const Scope& scope, const Eqn& e) {
    std::vector<Tensor> tensors;
    for (int k = 0; k < e.num_in(); ++k) tensors.push_back({scope.site(&e, k)});
    for (const Value v : e.outs()) tensors.push_back({scope.sites[v]});
    absl::StatusOr<Factors> factors = e.op->factors(e);
    SHEAF_CHECK(factors.ok(), std::string(e.op->name) + ": " + std::string(factors.status().message()));
    add_rule(e, with_neighbours_joined(*std::move(factors)), std::move(tensors));
  }

  // Sites that lie alike; the first `operands` are where the values come from.
  void edge(const Eqn& e, std::vector<Tensor> tensors, std::size_t operands) {
    const Tensor& outer = tensors[tensors[0].manual ? tensors.size() - 1 : 0];
    Factors f = alike(flow_.sites[outer.site].value.dims(), operands, tensors.size() - operands);
    add_rule(e, std::move(f), std::move(tensors));
  }

  // A stack and one of its rows.
  void rows(const Eqn& e, int from, int to, bool is_read) {
    const Shape& stack = flow_.sites[is_read ? from : to].value.dims();
    Factors f = alike(stack, 1, 1);
    TensorFactors& row = is_read ? f.out[0] : f.in[0];
    row.erase(row.begin());
    add_rule(e, std::move(f), {{from}, {to}});
  }

  Scope& region(Scope& scope, const Eqn& e, std::size_t r, const std::vector<int>& shared = {}) {
    auto inner = std::make_unique<Scope>(e.regions[r]);
    const Values& params = e.regions[r]->params();
    for (std::size_t i = 0; i < shared.size(); ++i) inner->sites[params[params.size() - shared.size() + i]] = shared[i];
    fill(*inner);
    scope.regions[&e].push_back(std::move(inner));
    return *scope.regions[&e].back();
  }

  void edges(Scope& scope, const Eqn& e) {
    if (e.op == &ops::scan) scan(scope, e);
    else if (e.op == &ops::while_) loop(scope, e);
    else if (e.op == &ops::cond) branches(scope, e);
    else if (e.op == &ops::shard_map) mapped(scope, e);
    else if (e.op == &ops::barrier)
      for (int k = 0; k < e.num_in(); ++k) edge(e, {{scope.site(&e, k)}, {scope.sites[e.out(k)]}}, 1);
    else if (e.op == &ops::call || e.op == &ops::checkpoint) called(scope, e);
    else
      for (std::size_t r = 0; r < e.regions.size(); ++r) region(scope, e, r);
  }

  void called(Scope& scope, const Eqn& e) {
    const Scope& inner = region(scope, e, 0);
    for (int k = 0; k < e.num_in(); ++k) edge(e, {{scope.site(&e, k)}, {inner.sites[inner.function->params()[k]]}}, 1);
    for (int j = 0; j < e.num_out(); ++j) edge(e, {{inner.site(nullptr, j)}, {scope.sites[e.out(j)]}}, 1);
  }

  std::vector<int> results_from(const Scope& scope, const Eqn& e, int count) {
    std::vector<int> sites;
    for (int j = 0; j < count; ++j) sites.push_back(scope.sites[e.out(j)]);
    return sites;
  }

  void scan(Scope& scope, const Eqn& e) {
    const ops::Scan& a = e.attrs<ops::Scan>();
    const Function& f = *e.regions[0];
    auto inner = std::make_unique<Scope>(e.regions[0]);
    for (int k = 0; k < a.carry; ++k) inner->sites[f.params()[a.consts + k]] = scope.sites[e.out(k)];
    fill(*inner);
    for (int k = 0; k < a.consts; ++k) edge(e, {{scope.site(&e, k)}, {inner->sites[f.params()[k]]}}, 1);
    for (int k = 0; k < a.carry; ++k)
      edge(e, {{scope.site(&e, a.consts + k)}, {inner->site(nullptr, k)}, {scope.sites[e.out(k)]}}, 2);
    for (int k = a.consts + a.carry; k < e.num_in(); ++k) rows(e, scope.site(&e, k), inner->sites[f.params()[k]], true);
    for (int j = a.carry; j < e.num_out(); ++j) rows(e, inner->site(nullptr, j), scope.sites[e.out(j)], false);
    scope.regions[&e].push_back(std::move(inner));
  }

  void loop(Scope& scope, const Eqn& e) {
    const ops::While& a = e.attrs<ops::While>();
    const std::vector<int> carry = results_from(scope, e, e.num_out());
    const Scope& cond = region(scope, e, 0, carry);
    const Scope& body = region(scope, e, 1, carry);
    for (int k = 0; k < a.cond_consts; ++k) edge(e, {{scope.site(&e, k)}, {cond.sites[cond.function->params()[k]]}}, 1);
    for (int k = 0; k < a.body_consts; ++k)
      edge(e, {{scope.site(&e, a.cond_consts + k)}, {body.sites[body.function->params()[k]]}}, 1);
    for (int k = 0; k < e.num_out(); ++k)
      edge(e, {{scope.site(&e, a.cond_consts + a.body_consts + k)}, {body.site(nullptr, k)}, {carry[k]}}, 2);
  }

  void branches(Scope& scope, const Eqn& e) {
    for (std::size_t r = 0; r < e.regions.size(); ++r) region(scope, e, r);
    const auto& inner = scope.regions[&e];
    for (int k = 1; k < e.num_in(); ++k) {
      std::vector<Tensor> tensors{{scope.site(&e, k)}};
      for (const auto& branch : inner) tensors.push_back({branch->sites[branch->function->params()[k - 1]]});
      edge(e, std::move(tensors), 1);
    }
    for (int j = 0; j < e.num_out(); ++j) {
      std::vector<Tensor> tensors;
      for (const auto& branch : inner) tensors.push_back({branch->site(nullptr, j)});
      tensors.push_back({scope.sites[e.out(j)]});
      edge(e, std::move(tensors), inner.size());
    }
  }

  // The body's values have the axes that are not manual; seen from outside they are split over the spec's axes first.
  void mapped(Scope& scope, const Eqn& e) {
    const ops::ShardMap& a = e.attrs<ops::ShardMap>();
    const Atoms outer = manual_;
    for (const int atom : atoms_.of(a.manual)) manual_.push_back(atom);
    Scope& body = region(scope, e, 0);
    manual_ = outer;
    for (int k = 0; k < e.num_in(); ++k) {
      const Tensor inner{body.sites[e.regions[0]->params()[k]], manual(a.in[k], e.in(k).rank())};
      edge(e, {{scope.site(&e, k)}, inner}, 1);
    }
    for (int j = 0; j < e.num_out(); ++j)
      edge(e, {{body.site(nullptr, j), manual(a.out[j], e.out(j).rank())}, {scope.sites[e.out(j)]}}, 1);
  }

  const Manual* manual(const std::string& text, int rank) {
    Spec spec = *parse_spec(text);
    spec.resize(rank);
    Manual& m = flow_.manuals.emplace_back();
    for (const DimSpec& d : spec) m.dims.push_back(atoms_.of(d.axes));
    return &m;
  }

  // What a constraint without open dims reads lies as it says, unless another one disagrees or it was told otherwise.
  void apply_constraints() {
    std::vector<int> first(flow_.sites.size(), -1);
    std::vector<bool> differs(flow_.sites.size());
    for (const Rule& rule : flow_.rules) {
      if (rule.eqn->op != &ops::with_sharding) continue;
      const int from = rule.tensors[0].site, to = rule.tensors[1].site;
      if (first[from] < 0) first[from] = to;
      else differs[from] = differs[from] || !is_same(flow_.sites[first[from]], flow_.sites[to]);
    }
    for (std::size_t i = 0; i < first.size(); ++i) {
      Site& site = flow_.sites[i];
      if (first[i] < 0 || differs[i] || !is_free(site)) continue;
      const Site& constraint = flow_.sites[first[i]];
      if (!is_closed(constraint)) continue;
      site.placement.dims = constraint.placement.dims;
      site.priorities = constraint.priorities;
    }
  }
  static bool is_same(const Site& a, const Site& b) {
    return std::equal(a.placement.dims.begin(), a.placement.dims.end(), b.placement.dims.begin(),
                      [](const PlacedDim& x, const PlacedDim& y) { return x.atoms == y.atoms && x.open == y.open; });
  }
  static bool is_closed(const Site& s) {
    return std::none_of(s.placement.dims.begin(), s.placement.dims.end(), [](const PlacedDim& d) { return d.open; });
  }
  bool is_free(const Site& s) const {
    if (!sharding_of(s.value.type(), atoms_).unreduced.empty()) return false;
    return std::all_of(s.placement.dims.begin(), s.placement.dims.end(),
                       [](const PlacedDim& d) { return d.open && d.atoms.empty(); });
  }

  const MeshAtoms& atoms_;
  Flow flow_;
  Atoms manual_;  // of the shard_maps around
};

}  // namespace

int Scope::site(const Eqn* e, int k) const {
  const auto it = constants.find({e, k});
  return it != constants.end() ? it->second : sites[e ? e->in(k) : function->results()[k]];
}

bool is_made_per_use(Value v) {
  const Eqn* e = v.eqn();
  if (!e || e->num_out() != 1 || v.rank() == 0) return false;
  return e->op == &ops::constant || e->op == &ops::iota || (e->op == &ops::broadcast && e->in(0).rank() == 0);
}

Flow flow_of(const FunctionRef& f, const MeshAtoms& atoms) { return FlowBuilder(f, atoms).take(); }

}  // namespace sheaf::passes
