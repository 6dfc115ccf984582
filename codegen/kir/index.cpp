// Canonicalisation of index sums. Each rule below is an identity on integers under the proven ranges; they terminate
// because every rewrite strictly shrinks coefficients, divisors or nesting.
#include "codegen/kir/index.h"

#include <algorithm>
#include <climits>
#include <numeric>

#include "absl/hash/hash.h"
#include "ir/check.h"

namespace sheaf::kir {
namespace {

std::int64_t div_floor(std::int64_t a, std::int64_t b) {
  const std::int64_t quotient = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}
std::int64_t mod_floor(std::int64_t a, std::int64_t b) { return a - div_floor(a, b) * b; }

using Kind = Atom::Kind;

std::uint64_t hash_atom(const Atom& a) {
  return absl::HashOf(static_cast<int>(a.kind), a.id, a.operand.node, a.divisor);
}
std::uint64_t hash_sum(const std::vector<Term>& terms, std::int64_t offset) {
  std::uint64_t h = absl::HashOf(offset);
  for (const Term& t : terms) h = absl::HashOf(h, t.atom, t.coefficient);
  return h;
}

std::int64_t coefficient_of(const std::vector<Term>& terms, int atom) {
  for (const Term& t : terms) {
    if (t.atom == atom) return t.coefficient;
  }
  return 0;
}

}  // namespace

/// In canonical order, one term per atom, none zero.
void IndexPool::merge(std::vector<Term>& terms) const {
  std::sort(terms.begin(), terms.end(), [](const Term& a, const Term& b) { return a.atom < b.atom; });
  std::size_t kept = 0;
  for (std::size_t i = 0; i < terms.size();) {
    Term sum{0, terms[i].atom};
    for (; i < terms.size() && terms[i].atom == sum.atom; ++i) sum.coefficient += terms[i].coefficient;
    if (sum.coefficient != 0) terms[kept++] = sum;
  }
  terms.resize(kept);
  std::sort(terms.begin(), terms.end(), [&](const Term& a, const Term& b) { return order(a, b) < 0; });
}

std::strong_ordering IndexPool::order(int atom, int other) const {
  if (atom == other) return std::strong_ordering::equal;
  const Atom &a = atoms_[atom], &b = atoms_[other];
  if (auto c = outermost_axes_[atom] <=> outermost_axes_[other]; c != 0) return c;
  if (auto c = a.kind <=> b.kind; c != 0) return c;
  if (auto c = a.id <=> b.id; c != 0) return c;
  if (auto c = a.divisor <=> b.divisor; c != 0) return c;
  const Sum &x = sums_[a.operand.node], &y = sums_[b.operand.node];
  for (std::size_t i = 0; i < std::min(x.terms.size(), y.terms.size()); ++i) {
    if (auto c = order(x.terms[i], y.terms[i]); c != 0) return c;
  }
  if (auto c = x.terms.size() <=> y.terms.size(); c != 0) return c;
  return x.offset <=> y.offset;
}

std::strong_ordering IndexPool::order(const Term& a, const Term& b) const {
  // Values by the step they are taken in, since their numbers may still depend on the order in which they were made.
  const bool are_values = atoms_[a.atom].kind == Kind::value && atoms_[b.atom].kind == Kind::value;
  if (are_values && a.coefficient != b.coefficient) return b.coefficient <=> a.coefficient;
  if (auto c = order(a.atom, b.atom); c != 0) return c;
  return a.coefficient <=> b.coefficient;
}

Range IndexPool::range_of(const std::vector<Term>& terms, std::int64_t offset) const {
  Range r{offset, offset};
  for (const Term& t : terms) {
    const Range& a = atom_ranges_[t.atom];
    r.lo += t.coefficient * (t.coefficient > 0 ? a.lo : a.hi);
    r.hi += t.coefficient * (t.coefficient > 0 ? a.hi : a.lo);
  }
  return r;
}

Index IndexPool::intern(std::vector<Term> terms, std::int64_t offset) {
  std::vector<int>& bucket = sum_ids_[hash_sum(terms, offset)];
  for (int id : bucket) {
    if (sums_[id].offset == offset && sums_[id].terms == terms) return {id};
  }
  const Range range = range_of(terms, offset);
  sums_.push_back({std::move(terms), offset, range});
  bucket.push_back(static_cast<int>(sums_.size()) - 1);
  return {bucket.back()};
}

AxisId IndexPool::outermost_axis(Index a) const {
  AxisId axis = INT_MAX;
  if (a.node < 0) return axis;
  for (const Term& t : sums_[a.node].terms) axis = std::min(axis, outermost_axes_[t.atom]);
  return axis;
}

Index IndexPool::leaf(Atom atom, Range range) {
  if (range.lo == range.hi) return constant(range.lo);
  std::vector<int>& bucket = atom_ids_[hash_atom(atom)];
  auto found = std::find_if(bucket.begin(), bucket.end(), [&](int id) { return atoms_[id] == atom; });
  if (found == bucket.end()) {
    atoms_.push_back(atom);
    atom_ranges_.push_back(range);
    outermost_axes_.push_back(atom.kind == Kind::axis ? atom.id : outermost_axis(atom.operand));
    bucket.push_back(static_cast<int>(atoms_.size()) - 1);
    return intern({{1, bucket.back()}}, 0);
  }
  return intern({{1, *found}}, 0);
}

Index IndexPool::constant(std::int64_t value) { return intern({}, value); }

Index IndexPool::axis(AxisId axis, std::int64_t extent) {
  return leaf({.kind = Kind::axis, .id = axis, .operand = {}, .divisor = 1},
              {0, std::max<std::int64_t>(extent, 1) - 1});
}

Index IndexPool::value(ValueId value, Range range) {
  return leaf({.kind = Kind::value, .id = value, .operand = {}, .divisor = 1}, range);
}

// c * (x mod d) + c * d * (x div d) = c * x
Index IndexPool::normalise(std::vector<Term> terms, std::int64_t offset) {
  merge(terms);
  for (std::size_t i = 0; i < terms.size(); ++i) {
    const Term t = terms[i];
    const Atom a = atoms_[t.atom];
    if (a.kind != Kind::mod) continue;
    const Sum quotient = sums_[floor_div(a.operand, a.divisor).node];
    const std::int64_t scale = t.coefficient * a.divisor;
    if (quotient.terms.empty() || !std::all_of(quotient.terms.begin(), quotient.terms.end(), [&](const Term& q) {
          return coefficient_of(terms, q.atom) == scale * q.coefficient;
        })) {
      continue;
    }
    const Sum x = sums_[a.operand.node];
    terms[i].coefficient = 0;
    for (const Term& q : quotient.terms) terms.push_back({-scale * q.coefficient, q.atom});
    for (const Term& p : x.terms) terms.push_back({t.coefficient * p.coefficient, p.atom});
    return normalise(std::move(terms), offset - scale * quotient.offset + t.coefficient * x.offset);
  }
  return intern(std::move(terms), offset);
}

Index IndexPool::add(Index a, Index b) {
  std::vector<Term> terms = sums_[a.node].terms;
  terms.insert(terms.end(), sums_[b.node].terms.begin(), sums_[b.node].terms.end());
  return normalise(std::move(terms), sums_[a.node].offset + sums_[b.node].offset);
}

Index IndexPool::scale(Index a, std::int64_t factor) {
  if (factor == 0) return constant(0);
  std::vector<Term> terms = sums_[a.node].terms;
  for (Term& t : terms) t.coefficient *= factor;
  return normalise(std::move(terms), sums_[a.node].offset * factor);
}

// x = high + low where g divides every coefficient of high, g divides d, and 0 <= low < g: then low never carries, so
// x div d = high div d and x mod d = high mod d + low.
std::optional<std::pair<Index, Index>> IndexPool::split_without_carry(Index a, std::int64_t divisor) {
  const Sum x = sums_[a.node];
  for (const Term& t : x.terms) {
    const std::int64_t g = std::gcd(divisor, t.coefficient);
    if (g <= 1) continue;
    std::vector<Term> high, low;
    for (const Term& u : x.terms) (u.coefficient % g == 0 ? high : low).push_back(u);
    const std::int64_t low_offset = mod_floor(x.offset, g);
    const Range r = range_of(low, low_offset);
    if ((low.empty() && low_offset == 0) || r.lo < 0 || r.hi >= g) continue;
    return std::pair{intern(std::move(high), x.offset - low_offset), intern(std::move(low), low_offset)};
  }
  return std::nullopt;
}

// Divides every coefficient and the offset by g, which must divide the coefficients; the offset rounds down.
Index IndexPool::divide_exactly(Index a, std::int64_t g) {
  Sum x = sums_[a.node];
  for (Term& t : x.terms) t.coefficient /= g;
  return normalise(std::move(x.terms), div_floor(x.offset, g));
}

Index IndexPool::floor_div(Index a, std::int64_t divisor) {
  SHEAF_CHECK(divisor > 0);
  if (divisor == 1) return a;
  const Sum x = sums_[a.node];
  if (div_floor(x.range.lo, divisor) == div_floor(x.range.hi, divisor)) {
    return constant(div_floor(x.range.lo, divisor));
  }
  if (x.terms.size() == 1 && x.terms[0].coefficient == 1 && atoms_[x.terms[0].atom].kind == Kind::floor_div) {
    const Atom inner = atoms_[x.terms[0].atom];  // (y div c + k) div d = (y + k c) div (c d)
    return floor_div(add(inner.operand, x.offset * inner.divisor), inner.divisor * divisor);
  }
  // Multiples of the divisor leave the division.
  std::vector<Term> whole, rest;
  for (const Term& t : x.terms) {
    const std::int64_t remainder = t.coefficient % divisor;
    if (t.coefficient != remainder) whole.push_back({(t.coefficient - remainder) / divisor, t.atom});
    if (remainder != 0) rest.push_back({remainder, t.atom});
  }
  const std::int64_t whole_offset = div_floor(x.offset, divisor);
  if (!whole.empty() || whole_offset != 0) {
    return add(normalise(std::move(whole), whole_offset),
               floor_div(normalise(std::move(rest), mod_floor(x.offset, divisor)), divisor));
  }
  std::int64_t g = divisor;
  for (const Term& t : x.terms) g = std::gcd(g, t.coefficient);
  if (g > 1) return floor_div(divide_exactly(a, g), divisor / g);
  if (auto split = split_without_carry(a, divisor)) return floor_div(split->first, divisor);
  return leaf({.kind = Kind::floor_div, .id = -1, .operand = a, .divisor = divisor},
              {div_floor(x.range.lo, divisor), div_floor(x.range.hi, divisor)});
}

Index IndexPool::mod(Index a, std::int64_t divisor) {
  SHEAF_CHECK(divisor > 0);
  if (divisor == 1) return constant(0);
  const Sum x = sums_[a.node];
  if (div_floor(x.range.lo, divisor) == div_floor(x.range.hi, divisor)) {
    return add(a, -div_floor(x.range.lo, divisor) * divisor);
  }
  // Multiples of the divisor vanish, also those inside: c (y mod e) = c y when d divides c e.
  std::vector<Term> terms;
  std::int64_t offset = mod_floor(x.offset, divisor);
  bool changed = offset != x.offset;
  for (const Term& t : x.terms) {
    const Atom inner = atoms_[t.atom];
    if (inner.kind == Kind::mod && t.coefficient * inner.divisor % divisor == 0) {
      const Sum& y = sums_[inner.operand.node];
      for (const Term& u : y.terms) terms.push_back({t.coefficient * u.coefficient, u.atom});
      offset += t.coefficient * y.offset;
      changed = true;
      continue;
    }
    const std::int64_t remainder = t.coefficient % divisor;
    changed |= remainder != t.coefficient;
    if (remainder != 0) terms.push_back({remainder, t.atom});
  }
  if (changed) return mod(normalise(std::move(terms), offset), divisor);
  std::int64_t g = divisor;
  for (const Term& t : x.terms) g = std::gcd(g, t.coefficient);
  if (g > 1 && x.offset % g == 0) return scale(mod(divide_exactly(a, g), divisor / g), g);
  if (auto split = split_without_carry(a, divisor)) return add(mod(split->first, divisor), split->second);
  return leaf({.kind = Kind::mod, .id = -1, .operand = a, .divisor = divisor}, {0, divisor - 1});
}

bool IndexPool::depends_on(Index a, AxisId axis) const {
  const std::vector<Term>& terms = sums_[a.node].terms;
  return std::any_of(terms.begin(), terms.end(), [&](const Term& t) {
    const Atom& atom = atoms_[t.atom];
    if (atom.kind == Kind::axis) return atom.id == axis;
    return atom.kind != Kind::value && depends_on(atom.operand, axis);
  });
}

bool IndexPool::depends_on_value(Index a) const {
  const std::vector<Term>& terms = sums_[a.node].terms;
  return std::any_of(terms.begin(), terms.end(), [&](const Term& t) {
    const Atom& atom = atoms_[t.atom];
    return atom.kind == Kind::value || (atom.kind != Kind::axis && depends_on_value(atom.operand));
  });
}

std::optional<std::int64_t> IndexPool::stride(Index a, AxisId axis) const {
  std::int64_t step = 0;
  for (const Term& t : sums_[a.node].terms) {
    const Atom& atom = atoms_[t.atom];
    if (atom.kind == Kind::axis && atom.id == axis) step = t.coefficient;
    if (atom.operand.node >= 0 && depends_on(atom.operand, axis)) return std::nullopt;
  }
  return step;
}

Index IndexPool::substitute(Index a, const std::function<std::optional<Index>(const Atom&)>& leaf_map) {
  const Sum x = sums_[a.node];
  Index result = constant(x.offset);
  for (const Term& t : x.terms) {
    const Atom atom = atoms_[t.atom];
    Index part = intern({{1, t.atom}}, 0);
    if (atom.kind == Kind::floor_div) {
      part = floor_div(substitute(atom.operand, leaf_map), atom.divisor);
    } else if (atom.kind == Kind::mod) {
      part = mod(substitute(atom.operand, leaf_map), atom.divisor);
    } else if (auto replaced = leaf_map(atom)) {
      part = *replaced;
    }
    result = add(result, scale(part, t.coefficient));
  }
  return result;
}

Index IndexPool::copy(const IndexPool& from, Index a, const std::function<ValueId(ValueId)>& renamed) {
  Index result = constant(from.offset(a));
  for (const Term& t : from.terms(a)) {
    Atom atom = from.atom(t.atom);
    Index part;
    switch (atom.kind) {
      case Kind::value: atom.id = renamed(atom.id); [[fallthrough]];
      case Kind::axis: part = leaf(atom, from.atom_range(t.atom)); break;
      case Kind::floor_div: part = floor_div(copy(from, atom.operand, renamed), atom.divisor); break;
      case Kind::mod: part = mod(copy(from, atom.operand, renamed), atom.divisor); break;
    }
    result = add(result, scale(part, t.coefficient));
  }
  return result;
}

std::int64_t IndexPool::evaluate(Index a, const std::function<std::int64_t(const Atom&)>& leaf_value) const {
  std::int64_t result = sums_[a.node].offset;
  for (const Term& t : sums_[a.node].terms) {
    const Atom& atom = atoms_[t.atom];
    std::int64_t v = 0;
    switch (atom.kind) {
      case Kind::axis:
      case Kind::value: v = leaf_value(atom); break;
      case Kind::floor_div: v = div_floor(evaluate(atom.operand, leaf_value), atom.divisor); break;
      case Kind::mod: v = mod_floor(evaluate(atom.operand, leaf_value), atom.divisor); break;
    }
    result += t.coefficient * v;
  }
  return result;
}

}  // namespace sheaf::kir
