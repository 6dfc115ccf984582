// Paths of placements made into moves of shardings, with what each takes.
#include "passes/sharding/reshard.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "ir/check.h"
#include "passes/sharding/search.h"

namespace sheaf::passes {
namespace {

using ir::Atoms;
using ir::Sharding;
using Kind = ReshardMove::Kind;

bool has(const Atoms& list, int atom) { return std::find(list.begin(), list.end(), atom) != list.end(); }

Atoms minus(const Atoms& a, const Atoms& b) {
  Atoms rest;
  for (const int x : a)
    if (!has(b, x)) rest.push_back(x);
  return rest;
}

bool is_split(const Sharding& s) {
  return std::any_of(s.dims.begin(), s.dims.end(), [](const Atoms& d) { return !d.empty(); });
}

std::optional<CollectiveKind> collective_of(Kind kind) {
  switch (kind) {
    case Kind::all_gather: return CollectiveKind::all_gather;
    case Kind::all_to_all: return CollectiveKind::all_to_all;
    case Kind::ppermute: return CollectiveKind::ppermute;
    case Kind::all_reduce: return CollectiveKind::all_reduce;
    case Kind::reduce_scatter: return CollectiveKind::reduce_scatter;
    case Kind::slice:
    case Kind::make_partial:
    case Kind::pad_partial: break;
  }
  return std::nullopt;
}

/// The atoms that the dims differ in, without the heads and tails that they share.
Atoms rearranged(const Sharding& before, const Sharding& after) {
  Atoms axes;
  for (std::size_t d = 0; d < before.dims.size(); ++d) {
    const Atoms &a = before.dims[d], &b = after.dims[d];
    const auto head = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
    const auto tail = std::mismatch(a.rbegin(), std::make_reverse_iterator(head.first), b.rbegin(),
                                    std::make_reverse_iterator(head.second));
    for (auto i = head.first; i != tail.first.base(); ++i)
      if (!has(axes, *i)) axes.push_back(*i);
    for (auto i = head.second; i != tail.second.base(); ++i)
      if (!has(axes, *i)) axes.push_back(*i);
  }
  std::sort(axes.begin(), axes.end());
  return axes;
}

/// A move by what it leads from and to.
ReshardMove move_between(Kind kind, const Sharding& before, const Sharding& after) {
  ReshardMove m{.kind = kind, .result = after};
  int shorter = -1, longer = -1;
  for (std::size_t d = 0; d < before.dims.size(); ++d) {
    if (after.dims[d].size() < before.dims[d].size()) shorter = static_cast<int>(d);
    if (after.dims[d].size() > before.dims[d].size()) longer = static_cast<int>(d);
  }
  switch (kind) {
    case Kind::slice:
    case Kind::make_partial: m.axes = minus(after.used(), before.used()); break;
    case Kind::all_gather:
    case Kind::pad_partial:
      m.dim = shorter;
      m.axes = minus(before.dims[shorter], after.dims[shorter]);
      break;
    case Kind::all_to_all:
      m.dim = shorter;
      m.to_dim = longer;
      m.axes = minus(before.dims[shorter], after.dims[shorter]);
      break;
    case Kind::ppermute: m.axes = rearranged(before, after); break;
    case Kind::all_reduce: m.axes = minus(before.unreduced, after.unreduced); break;
    case Kind::reduce_scatter:
      m.dim = longer;
      m.axes = minus(after.dims[longer], before.dims[longer]);
      break;
  }
  return m;
}

/// Whether two moves in a row are one: `dim` is what the first is about.
bool joins(Kind first, Kind second, const Sharding& before, const Sharding& between, const Sharding& after) {
  if (first != second) return false;
  switch (first) {
    case Kind::slice:
    case Kind::ppermute:
    case Kind::make_partial: return true;
    case Kind::all_gather: return move_between(first, before, between).dim == move_between(second, between, after).dim;
    default: return false;
  }
}

class Planning {
 public:
  Planning(const Shape& dims, DType dtype, const ir::MeshAtoms& atoms, const Profile& profile)
      : dims_(dims), atoms_(atoms), profile_(profile), bytes_(size_bytes(dtype)) {
    for (const std::int64_t n : dims) bytes_ *= static_cast<double>(n);
  }

  ReshardPlan run(Sharding from, Sharding to) {
    SHEAF_CHECK(from.dims.size() == dims_.size() && to.dims.size() == dims_.size(), "shardings of another rank");
    SHEAF_CHECK(divides(dims_, atoms_, from), to_string(from, atoms_) + " does not divide");
    SHEAF_CHECK(divides(dims_, atoms_, to), to_string(to, atoms_) + " does not divide");
    for (Sharding* s : {&from, &to})
      if (s->unreduced.empty()) s->kind = ir::ReduceKind::sum;
    plan_.from = from;
    if (!from.unreduced.empty() && !to.unreduced.empty() && from.kind != to.kind) {
      Sharding reduced = to;  // of one kind first, for nothing is partial in two ways
      reduced.unreduced.clear();
      reduced.kind = ir::ReduceKind::sum;
      add(from, reduced);
      from = reduced;
    }
    add(from, to);
    finish(to);
    return std::move(plan_);
  }

 private:
  void add(const Sharding& from, const Sharding& to) {
    if (from == to) return;
    const Difference difference(dims_, atoms_, from, to);
    const double bytes = bytes_ / static_cast<double>(difference.common_ways);
    Found found = shortest_path(difference, atoms_, bytes, profile_);
    plan_.placements += found.placements;
    plan_.is_greedy |= !found.path;
    const std::vector<Step> path = found.path ? *std::move(found.path) : greedy_path(difference);
    Sharding before = from, between = from;
    for (std::size_t i = 0; i < path.size(); ++i) {
      Sharding after = difference.sharding(path[i].after);
      if (i > 0 && joins(path[i - 1].kind, path[i].kind, before, between, after)) plan_.moves.pop_back();
      else before = between;
      plan_.moves.push_back(move_between(path[i].kind, before, after));
      between = std::move(after);
    }
    SHEAF_CHECK(between == to, "a path that ends elsewhere");
  }

  double local_bytes(const Sharding& s) const {
    double bytes = bytes_;
    for (const Atoms& dim : s.dims) bytes /= static_cast<double>(atoms_.size(dim));
    return bytes;
  }

  void finish(const Sharding& to) {
    const Sharding* before = &plan_.from;
    for (ReshardMove& m : plan_.moves) {
      const double here = local_bytes(*before), there = local_bytes(m.result);
      if (const std::optional<CollectiveKind> kind = collective_of(m.kind)) {
        m.payload = std::max(here, there);
        m.cost = cost_of(*kind, m.payload, atoms_, m.axes, profile_);
        ++plan_.collectives;
      } else {
        m.cost.seconds = 2 * there / profile_.memory;  // read and written
      }
      plan_.cost += m.cost;
      plan_.gathers_all |= m.kind == Kind::all_gather && !is_split(m.result) && is_split(to);
      before = &m.result;
    }
  }

  const Shape& dims_;
  const ir::MeshAtoms& atoms_;
  const Profile& profile_;
  double bytes_;
  ReshardPlan plan_;
};

}  // namespace

std::string_view name(Kind kind) {
  static constexpr std::string_view kNames[] = {"slice",      "all_gather",     "all_to_all",   "ppermute",
                                                "all_reduce", "reduce_scatter", "make_partial", "pad_partial"};
  return kNames[static_cast<std::size_t>(kind)];
}

std::string to_string(const ReshardPlan& plan, const ir::MeshAtoms& atoms) {
  std::string s;
  for (const ReshardMove& m : plan.moves) {
    if (!s.empty()) s += ", ";
    s += fmt::format("{} ", name(m.kind));
    if (m.kind == Kind::slice || m.kind == Kind::ppermute) {
      s += to_string(m.result, atoms);
      continue;
    }
    s += fmt::format("{}", fmt::join(atoms.names(m.axes), "+"));
    if (m.dim >= 0) s += fmt::format(" {}", m.dim);
    if (m.to_dim >= 0) s += fmt::format("->{}", m.to_dim);
  }
  return s;
}

const ReshardPlan& ReshardPlanner::plan(const Shape& dims, DType dtype, const Sharding& from, const Sharding& to) {
  std::unique_ptr<const ReshardPlan>& plan = plans_[Key{dims, size_bytes(dtype), from, to}];
  if (!plan) {
    plan = std::make_unique<const ReshardPlan>(Planning(dims, dtype, atoms_, profile_).run(from, to));
    placements_ += plan->placements;
  }
  return *plan;
}

ReshardPlan plan_reshard(const Shape& dims, DType dtype, const ir::MeshAtoms& atoms, const Sharding& from,
                         const Sharding& to, const Profile& profile) {
  return Planning(dims, dtype, atoms, profile).run(from, to);
}

}  // namespace sheaf::passes
