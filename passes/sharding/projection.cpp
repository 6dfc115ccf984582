// Projection, agreement and fitting, as in Shardy's factor propagation (github.com/openxla/shardy), with axes cut into
// atoms beforehand so that no step has to split one.
#include "passes/sharding/projection.h"

#include <algorithm>
#include <numeric>
#include <tuple>

namespace sheaf::passes {

using namespace ir;

namespace {

bool lists(const Atoms& atoms, int atom) { return std::find(atoms.begin(), atoms.end(), atom) != atoms.end(); }

bool is_strict_prefix(const Atoms& a, const Atoms& b) { return a.size() < b.size() && is_prefix(a, b); }

// What all tensors agree on for one factor. Once `grows` is false, further tensors may veto but not contribute.
struct Agreement {
  Atoms atoms = {};
  bool grows = true;

  void meet(const Atoms& other) {
    const auto [mine, theirs] = std::mismatch(atoms.begin(), atoms.end(), other.begin(), other.end());
    const bool differ = mine != atoms.end() && theirs != other.end();
    if (differ) {
      atoms.erase(mine, atoms.end());
      grows = false;
    } else if (grows) {
      atoms.insert(atoms.end(), theirs, other.end());
    }
  }
};

std::vector<Agreement> agreements(const Meeting& m) {
  std::vector<Agreement> agreed(m.factors.size());
  const auto meet = [&](bool operands, bool backward) {
    const std::size_t from = operands ? 0 : m.operands, to = operands ? m.operands : m.tensors.size();
    for (std::size_t i = from; i < to; ++i)
      for (const FactorAtoms& f : m.tensors[i].factors)
        if (m.directions[f.factor] != Direction::none && (m.directions[f.factor] == Direction::backward) == backward)
          agreed[f.factor].meet(f.atoms);
  };
  meet(true, false);
  meet(false, true);
  for (std::size_t f = 0; f < agreed.size(); ++f)
    if (m.directions[f] != Direction::both) agreed[f].grows = false;
  meet(false, false);
  meet(true, true);
  return agreed;
}

// The head of `wanted` that factor f of the tensor can have by itself.
Atoms fitting(const Atoms& wanted, const Projected& tensor, const FactorAtoms& f, std::int64_t size,
              const MeshAtoms& atoms) {
  std::int64_t rest = size;
  Atoms fit;
  for (const int a : wanted) {
    const bool is_new = !lists(f.atoms, a);
    const std::int64_t n = atoms[a].size;
    if (lists(*tensor.taken, a) || (is_new && (f.closed || !f.overflow.empty() || rest % n != 0))) break;
    fit.push_back(a);
    rest = rest % n == 0 ? rest / n : 1;
  }
  return fit;
}

// The head of `wanted` that no other factor of the tensor has.
void drop_conflicts(Atoms& wanted, const Projected& tensor, int factor) {
  for (const FactorAtoms& other : tensor.factors)
    if (other.factor != factor)
      wanted.erase(std::find_if(wanted.begin(), wanted.end(),
                                [&](int a) { return lists(other.atoms, a) || lists(other.overflow, a); }),
                   wanted.end());
}

bool extend(Projected& tensor, FactorAtoms& f, const Atoms& atoms) {
  if (!is_strict_prefix(f.atoms, atoms)) return false;
  f.atoms = atoms;
  return tensor.changed = true;
}

void spread_agreed(const Meeting& m, std::vector<Agreement>& agreed, const MeshAtoms& atoms) {
  for (Projected& t : m.tensors) {
    for (std::size_t f = 0; f < agreed.size(); ++f)
      if (!agreed[f].atoms.empty()) drop_conflicts(agreed[f].atoms, t, static_cast<int>(f));
    for (const FactorAtoms& f : t.factors)
      agreed[f.factor].atoms = fitting(agreed[f.factor].atoms, t, f, m.factors[f.factor].size, atoms);
  }
  for (Projected& t : m.tensors)
    for (FactorAtoms& f : t.factors) extend(t, f, agreed[f.factor].atoms);
}

// Per factor, the largest tensor that has what was agreed on, the first of equals.
std::vector<int> sources(const Meeting& m, const std::vector<Agreement>& agreed) {
  std::vector<int> source(agreed.size(), -1);
  for (std::size_t i = 0; i < m.tensors.size(); ++i)
    for (const FactorAtoms& f : m.tensors[i].factors) {
      int& best = source[f.factor];
      if (agreed[f.factor].atoms.empty() || !is_prefix(agreed[f.factor].atoms, f.atoms)) continue;
      if (best < 0 || m.tensors[i].elements > m.tensors[best].elements) best = static_cast<int>(i);
    }
  return source;
}

// Factors from the one whose source is largest; the order is total, so equal programs propagate equally.
std::vector<int> ranks(const Meeting& m, const std::vector<Agreement>& agreed, const std::vector<int>& source,
                       const MeshAtoms& atoms) {
  std::vector<int> order(agreed.size());
  std::iota(order.begin(), order.end(), 0);
  const auto key = [&](int f) {
    const double elements = source[f] < 0 ? 0 : m.tensors[source[f]].elements;
    const std::int64_t shards = m.is_pointwise ? atoms.size(agreed[f].atoms) : 1;
    return std::tuple(-elements, -shards, source[f], m.factors[f].cls != FactorClass::P, f);
  };
  std::sort(order.begin(), order.end(), [&](int a, int b) { return key(a) < key(b); });
  std::vector<int> rank(order.size());
  for (std::size_t i = 0; i < order.size(); ++i) rank[order[i]] = static_cast<int>(i);
  return rank;
}

// What a pointwise operand has beyond its results would be moved at once, so it is not given more than they take.
void limit_to_results(const Meeting& m, int factor, Atoms& wanted) {
  for (std::size_t j = m.operands; j < m.tensors.size(); ++j)
    if (const FactorAtoms* r = m.tensors[j].find(factor); r && is_strict_prefix(r->atoms, wanted)) wanted = r->atoms;
}

void spread_fitting(const Meeting& m, const std::vector<Agreement>& agreed, const std::vector<int>& rank,
                    const MeshAtoms& atoms) {
  const std::size_t count = m.tensors.size();
  for (std::size_t k = 0; k < count; ++k) {
    const std::size_t i = (k + m.operands) % count;  // results, then operands
    Projected& t = m.tensors[i];
    std::vector<FactorAtoms*> by_rank;
    for (FactorAtoms& f : t.factors)
      if (is_strict_prefix(f.atoms, agreed[f.factor].atoms)) by_rank.push_back(&f);
    std::sort(by_rank.begin(), by_rank.end(),
              [&](const FactorAtoms* a, const FactorAtoms* b) { return rank[a->factor] < rank[b->factor]; });
    for (FactorAtoms* f : by_rank) {
      Atoms wanted = fitting(agreed[f->factor].atoms, t, *f, m.factors[f->factor].size, atoms);
      drop_conflicts(wanted, t, f->factor);
      if (m.is_pointwise && static_cast<int>(i) < m.operands) limit_to_results(m, f->factor, wanted);
      extend(t, *f, wanted);
    }
  }
}

}  // namespace

const FactorAtoms* Projected::find(int factor) const {
  for (const FactorAtoms& f : factors)
    if (f.factor == factor) return &f;
  return nullptr;
}

Projected project(const Placement& placement, const TensorFactors& dims, const std::vector<Factor>& factors,
                  const MeshAtoms& atoms) {
  Projected t;
  t.taken = &placement.taken;
  for (std::size_t d = 0; d < dims.size(); ++d) {
    const PlacedDim& dim = placement.dims[d];
    std::size_t next = 0;
    bool overflown = false;
    for (std::size_t k = 0; k < dims[d].size(); ++k) {
      FactorAtoms f{.factor = dims[d][k], .closed = !dim.open || overflown};
      t.elements *= static_cast<double>(factors[f.factor].size);
      const bool is_minor = k + 1 == dims[d].size();
      std::int64_t rest = factors[f.factor].size;
      while (next < dim.atoms.size() && (is_minor || (rest > 1 && rest % atoms[dim.atoms[next]].size == 0))) {
        rest /= atoms[dim.atoms[next]].size;
        f.atoms.push_back(dim.atoms[next++]);
      }
      if (rest > 1 && next < dim.atoms.size()) {
        f.overflow.assign(dim.atoms.begin() + static_cast<std::ptrdiff_t>(next), dim.atoms.end());
        next = dim.atoms.size();
        overflown = true;
      }
      t.factors.push_back(std::move(f));
    }
  }
  return t;
}

std::vector<Atoms> unproject(const Projected& tensor, const TensorFactors& dims, const std::vector<Factor>& factors,
                             const MeshAtoms& atoms) {
  std::vector<Atoms> placed(dims.size());
  std::size_t at = 0;
  for (std::size_t d = 0; d < dims.size(); ++d) {
    bool whole = true;
    for (std::size_t k = 0; k < dims[d].size(); ++k) {
      const FactorAtoms& f = tensor.factors[at++];
      if (!whole) continue;
      placed[d].insert(placed[d].end(), f.atoms.begin(), f.atoms.end());
      placed[d].insert(placed[d].end(), f.overflow.begin(), f.overflow.end());
      whole = f.overflow.empty() && atoms.size(f.atoms) >= factors[f.factor].size;
    }
  }
  return placed;
}

std::vector<int> spread(const Meeting& m, Strategy strategy, const MeshAtoms& atoms) {
  std::vector<Agreement> agreed = agreements(m);
  std::vector<int> source = sources(m, agreed);
  if (strategy == Strategy::basic) spread_agreed(m, agreed, atoms);
  else spread_fitting(m, agreed, ranks(m, agreed, source, atoms), atoms);
  return source;
}

}  // namespace sheaf::passes
