// Two shardings without their common heads, and runs of atoms joined where there are many.
#include "passes/sharding/placement.h"

#include <algorithm>

namespace sheaf::passes {
namespace {

using ir::Atoms;
using ir::Sharding;

/// Up to this many, atoms move one by one: all placements of five on three dims are some thousands.
constexpr std::size_t kMaxSingleAtoms = 5;

/// Where an atom is: after which one (-1: the first of a dim), or nowhere, or unreduced.
constexpr int kNowhere = -2, kUnreduced = -3;

int before(const Sharding& s, int atom) {
  for (const Atoms& dim : s.dims)
    for (std::size_t i = 0; i < dim.size(); ++i)
      if (dim[i] == atom) return i ? dim[i - 1] : -1;
  return std::find(s.unreduced.begin(), s.unreduced.end(), atom) != s.unreduced.end() ? kUnreduced : kNowhere;
}

/// Whether b follows a in s, or both lie in no dim.
bool is_run(const Sharding& s, int a, int b) {
  const int of_b = before(s, b);
  return of_b == a || (of_b < -1 && of_b == before(s, a));
}

Atoms minus(const Atoms& a, const Atoms& b) {
  Atoms rest;
  for (const int x : a)
    if (std::find(b.begin(), b.end(), x) == b.end()) rest.push_back(x);
  return rest;
}

/// The atoms of both, each list of either one after the other.
std::vector<Atoms> lists_of(const Sharding& from, const Sharding& to) {
  std::vector<Atoms> lists;
  Atoms seen;
  for (const Sharding* s : {&from, &to}) {
    for (const Atoms& dim : s->dims) lists.push_back(minus(dim, seen));
    lists.push_back(minus(s->unreduced, seen));
    seen = s->used();
  }
  return lists;
}

Placement placed(const Sharding& s, const std::vector<Atoms>& units) {
  const auto unit_at = [&](int first) {
    for (std::size_t u = 0; u < units.size(); ++u)
      if (units[u][0] == first) return static_cast<int>(u);
    return -1;
  };
  Placement p{.dims = std::vector<std::vector<int>>(s.dims.size()), .unreduced = {}};
  for (std::size_t d = 0; d < s.dims.size(); ++d)
    for (const int a : s.dims[d])
      if (const int u = unit_at(a); u >= 0) p.dims[d].push_back(u);
  for (const int a : s.unreduced)
    if (const int u = unit_at(a); u >= 0) p.unreduced.push_back(u);
  std::sort(p.unreduced.begin(), p.unreduced.end());
  return p;
}

}  // namespace

Difference::Difference(const Shape& whole, const ir::MeshAtoms& atoms, const Sharding& source, const Sharding& target)
    : dims(whole), common(Sharding::replicated(static_cast<int>(whole.size()))) {
  Sharding a = source, b = target;
  common.kind = source.unreduced.empty() ? target.kind : source.kind;
  common.unreduced = minus(source.unreduced, minus(source.unreduced, target.unreduced));
  a.unreduced = minus(source.unreduced, common.unreduced);
  b.unreduced = minus(target.unreduced, common.unreduced);
  for (std::size_t d = 0; d < dims.size(); ++d) {
    const auto [end, same] = std::mismatch(a.dims[d].begin(), a.dims[d].end(), b.dims[d].begin(), b.dims[d].end());
    common.dims[d].assign(a.dims[d].begin(), end);
    a.dims[d].erase(a.dims[d].begin(), end);
    b.dims[d].erase(b.dims[d].begin(), same);
    const std::int64_t ways = atoms.size(common.dims[d]);
    dims[d] /= ways;
    common_ways *= ways;
  }
  std::size_t total = 0;
  const std::vector<Atoms> lists = lists_of(a, b);
  for (const Atoms& list : lists) total += list.size();
  for (const Atoms& list : lists) {
    for (std::size_t i = 0; i < list.size(); ++i) {
      const bool joins =
          i > 0 && total > kMaxSingleAtoms && is_run(a, list[i - 1], list[i]) && is_run(b, list[i - 1], list[i]);
      if (joins) units.back().push_back(list[i]);
      else units.push_back({list[i]});
    }
  }
  for (const Atoms& u : units) sizes.push_back(atoms.size(u));
  from = placed(a, units);
  to = placed(b, units);
}

Sharding Difference::sharding(const Placement& placement) const {
  Sharding s = common;
  const auto append = [&](Atoms& atoms, const std::vector<int>& of) {
    for (const int u : of) atoms.insert(atoms.end(), units[u].begin(), units[u].end());
  };
  for (std::size_t d = 0; d < s.dims.size(); ++d) append(s.dims[d], placement.dims[d]);
  append(s.unreduced, placement.unreduced);
  std::sort(s.unreduced.begin(), s.unreduced.end());
  if (s.unreduced.empty()) s.kind = ir::ReduceKind::sum;
  return s;
}

std::int64_t Difference::size(const std::vector<int>& of) const {
  std::int64_t n = 1;
  for (const int u : of) n *= sizes[u];
  return n;
}

std::int64_t Difference::ways(const Placement& placement) const {
  std::int64_t n = 1;
  for (const std::vector<int>& dim : placement.dims) n *= size(dim);
  return n;
}

bool Difference::divides(const Placement& placement) const {
  for (std::size_t d = 0; d < dims.size(); ++d)
    if (dims[d] % size(placement.dims[d]) != 0) return false;
  return true;
}

}  // namespace sheaf::passes
