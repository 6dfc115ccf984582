// Dijkstra over placements packed into eight bytes. Costs are whole picoseconds, so that sums are exact and equally
// cheap paths are told apart by rule and not by rounding.
#include "passes/sharding/search.h"

#include <absl/container/flat_hash_map.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <queue>
#include <tuple>

namespace sheaf::passes {
namespace {

using Kind = ReshardMove::Kind;

constexpr int kMaxUnits = 8, kMaxRank = 14;
constexpr std::int64_t kMaxStates = 20'000;

/// A day in picoseconds: what is split in the end is not gathered whole on the way while there is any other.
constexpr std::int64_t kWhole = std::int64_t{86'400} * 1'000'000'000'000;

// A byte per unit: the dim and the position in it, or that it is in none.
constexpr std::uint8_t kUnused = 0xFF, kUnreduced = 0xFE;
using Places = std::array<std::uint8_t, kMaxUnits>;

constexpr std::uint8_t at(int dim, int position) { return static_cast<std::uint8_t>(dim << 4 | position); }
constexpr bool is_in_dim(std::uint8_t place) { return place < kUnreduced; }
constexpr int dim_of(std::uint8_t place) { return place >> 4; }

/// What a path has come to. While it is permuting, further exchanges are part of the same ppermute.
struct State {
  Places places;
  bool is_permuting = false;
  bool operator==(const State&) const = default;
  template <typename H>
  friend H AbslHashValue(H h, const State& s) {
    return H::combine(std::move(h), std::bit_cast<std::uint64_t>(s.places), s.is_permuting);
  }
};

/// Of a path: time, then the number of collectives.
using Cost = std::pair<std::int64_t, int>;

struct Visit {
  Cost cost;
  State before;
  Kind kind = Kind::slice;
  bool is_settled = false;
};

class Search {
 public:
  Search(const Difference& difference, const ir::MeshAtoms& atoms, double bytes, const Profile& profile)
      : d_(difference),
        atoms_(atoms),
        bytes_(bytes),
        profile_(profile),
        is_split_at_last_(difference.ways(difference.to) > 1) {}

  Found run() {
    const State start{pack(d_.from)};
    const Places goal = pack(d_.to);
    visits_[start] = {.cost = {0, 0}, .before = start};
    queue_.push({{0, 0}, 0, start});
    std::int64_t settled = 0;
    while (!queue_.empty()) {
      const auto [cost, order, state] = queue_.top();
      queue_.pop();
      Visit& visit = visits_.at(state);
      if (visit.is_settled) continue;
      visit.is_settled = true;
      if (state.places == goal) return {path_to(state), settled};
      if (++settled > kMaxStates) break;
      expand(state, cost);
    }
    return {std::nullopt, settled};
  }

 private:
  struct Entry {
    Cost cost;
    std::int64_t order;  // the earlier found of equal ones
    State state;
    bool operator<(const Entry& o) const { return std::tie(o.cost, o.order) < std::tie(cost, order); }
  };
  using Lists = std::vector<std::vector<int>>;

  Places pack(const Placement& p) const {
    Places places;
    places.fill(kUnused);
    for (std::size_t d = 0; d < p.dims.size(); ++d)
      for (std::size_t i = 0; i < p.dims[d].size(); ++i)
        places[p.dims[d][i]] = at(static_cast<int>(d), static_cast<int>(i));
    for (const int u : p.unreduced) places[u] = kUnreduced;
    return places;
  }

  Placement unpack(const Places& places) const {
    Placement p{.dims = Lists(d_.dims.size()), .unreduced = {}};
    for (int position = 0; position < d_.count(); ++position)
      for (int u = 0; u < d_.count(); ++u)
        if (is_in_dim(places[u]) && (places[u] & 15) == position) p.dims[dim_of(places[u])].push_back(u);
    for (int u = 0; u < d_.count(); ++u)
      if (places[u] == kUnreduced) p.unreduced.push_back(u);
    return p;
  }

  std::vector<Step> path_to(State state) const {
    std::vector<Step> steps;
    for (const Visit* v = &visits_.at(state); !(v->before == state); v = &visits_.at(state)) {
      steps.push_back({v->kind, unpack(state.places)});
      state = v->before;
    }
    std::reverse(steps.begin(), steps.end());
    return steps;
  }

  /// Of units, a bit each.
  static unsigned set_of(const std::vector<int>& units) {
    unsigned set = 0;
    for (const int u : units) set |= 1U << u;
    return set;
  }

  std::int64_t picoseconds(CollectiveKind kind, double payload, unsigned set) {
    std::int64_t& known =
        known_.try_emplace({static_cast<unsigned>(kind) << kMaxUnits | set, payload}, -1).first->second;
    if (known >= 0) return known;
    ir::Atoms axes;
    for (int u = 0; u < d_.count(); ++u)
      if (set >> u & 1) axes.insert(axes.end(), d_.units[u].begin(), d_.units[u].end());
    const double seconds = cost_of(kind, payload, atoms_, axes, profile_).seconds + profile_.launch;
    return known = static_cast<std::int64_t>(std::llround(std::min(seconds * 1e12, 1e16)));
  }

  void reach(const State& before, Cost cost, Kind kind, std::int64_t time, const Places& places) {
    const bool is_permute = kind == Kind::ppermute;
    const bool is_collective = kind >= Kind::all_gather && kind <= Kind::reduce_scatter;
    cost.first += time;
    cost.second += is_collective && !(is_permute && before.is_permuting);
    const State state{places, is_permute};
    const auto [it, is_new] = visits_.try_emplace(state, Visit{cost, before, kind});
    if (!is_new) {
      if (it->second.is_settled || it->second.cost <= cost) return;
      it->second = {cost, before, kind};
    }
    queue_.push({cost, ++order_, state});
  }

  /// Whether dim d can be split by u too.
  bool has_room(const Lists& dims, int d, std::int64_t ways) const {
    return d_.extent(d) % (d_.size(dims[d]) * ways) == 0;
  }

  void expand(const State& state, Cost cost) {
    const Placement p = unpack(state.places);
    const double local = bytes_ / static_cast<double>(d_.ways(p));
    local_moves(state, cost, p);
    sums(state, cost, p, local);
    for (std::size_t d = 0; d < p.dims.size(); ++d) suffix_moves(state, cost, p, static_cast<int>(d), local);
    exchanges(state, cost, p, local);
  }

  // A picosecond each, so that none is made in vain.
  void local_moves(const State& state, Cost cost, const Placement& p) {
    for (int u = 0; u < d_.count(); ++u) {
      if (state.places[u] != kUnused) continue;
      Places next = state.places;
      for (std::size_t d = 0; d < p.dims.size(); ++d) {
        if (!has_room(p.dims, static_cast<int>(d), d_.sizes[u])) continue;
        next[u] = at(static_cast<int>(d), static_cast<int>(p.dims[d].size()));
        reach(state, cost, Kind::slice, 1, next);
      }
      if (!becomes_unreduced(u)) continue;
      next[u] = kUnreduced;
      reach(state, cost, Kind::make_partial, 1, next);
    }
  }

  bool becomes_unreduced(int u) const {
    return std::find(d_.to.unreduced.begin(), d_.to.unreduced.end(), u) != d_.to.unreduced.end();
  }

  void sums(const State& state, Cost cost, const Placement& p, double local) {
    const std::vector<int>& u = p.unreduced;
    for (unsigned subset = 1; subset < 1u << u.size(); ++subset) {
      std::vector<int> of;
      for (std::size_t i = 0; i < u.size(); ++i)
        if (subset >> i & 1) of.push_back(u[i]);
      if (std::any_of(of.begin(), of.end(), [&](int x) { return becomes_unreduced(x); })) continue;
      Places next = state.places;
      for (const int x : of) next[x] = kUnused;
      reach(state, cost, Kind::all_reduce, picoseconds(CollectiveKind::all_reduce, local, set_of(of)), next);
      scatters(state, cost, p, local, of);
    }
  }

  // Several units only in the order in which the goal has them.
  void scatters(const State& state, Cost cost, const Placement& p, double local, std::vector<int> of) {
    for (std::size_t d = 0; d < p.dims.size(); ++d) {
      if (!has_room(p.dims, static_cast<int>(d), d_.size(of))) continue;
      if (of.size() > 1) {
        const std::vector<int>& wanted = d_.to.dims[d];
        const auto rank = [&](int u) { return std::find(wanted.begin(), wanted.end(), u) - wanted.begin(); };
        if (std::any_of(of.begin(), of.end(), [&](int u) { return rank(u) == std::ssize(wanted); })) continue;
        std::sort(of.begin(), of.end(), [&](int a, int b) { return rank(a) < rank(b); });
      }
      Places next = state.places;
      for (std::size_t i = 0; i < of.size(); ++i)
        next[of[i]] = at(static_cast<int>(d), static_cast<int>(p.dims[d].size() + i));
      reach(state, cost, Kind::reduce_scatter, picoseconds(CollectiveKind::reduce_scatter, local, set_of(of)), next);
    }
  }

  void suffix_moves(const State& state, Cost cost, const Placement& p, int d, double local) {
    const std::vector<int>& dim = p.dims[d];
    for (std::size_t k = 1; k <= dim.size(); ++k) {
      const std::vector<int> tail(dim.end() - static_cast<std::ptrdiff_t>(k), dim.end());
      const std::int64_t ways = d_.size(tail);
      Places next = state.places;
      for (const int u : tail) next[u] = kUnused;
      const double gathered = local * static_cast<double>(ways);
      const std::int64_t time = picoseconds(CollectiveKind::all_gather, gathered, set_of(tail));
      const bool is_last = ways == d_.ways(p) && d_.common_ways == 1 && is_split_at_last_;
      reach(state, cost, Kind::all_gather, time + is_last * kWhole, next);
      if (std::all_of(tail.begin(), tail.end(), [&](int u) { return becomes_unreduced(u); }) && is_sum()) {
        for (const int u : tail) next[u] = kUnreduced;
        reach(state, cost, Kind::pad_partial, 1, next);
      }
      const std::int64_t exchange = picoseconds(CollectiveKind::all_to_all, local, set_of(tail));
      for (std::size_t to = 0; to < p.dims.size(); ++to) {
        if (static_cast<int>(to) == d || !has_room(p.dims, static_cast<int>(to), ways)) continue;
        for (std::size_t i = 0; i < tail.size(); ++i)
          next[tail[i]] = at(static_cast<int>(to), static_cast<int>(p.dims[to].size() + i));
        reach(state, cost, Kind::all_to_all, exchange, next);
      }
    }
  }

  bool is_sum() const { return d_.common.kind == ir::ReduceKind::sum || d_.common.kind == ir::ReduceKind::prod; }

  // Two units of equal size, of which one splits a dim, or two of one dim: parts keep their sizes. Any ppermute is
  // some of these; the first pays for all but what a slower link takes longer.
  void exchanges(const State& state, Cost cost, const Placement&, double local) {
    const Places& places = state.places;
    const std::int64_t paid = state.is_permuting ? cheapest_exchange(local) : 0;
    for (int a = 0; a < d_.count(); ++a) {
      for (int b = a + 1; b < d_.count(); ++b) {
        if (places[a] == kUnreduced || places[b] == kUnreduced || places[a] == places[b]) continue;
        const bool is_one_dim = is_in_dim(places[a]) && is_in_dim(places[b]) && dim_of(places[a]) == dim_of(places[b]);
        if (d_.sizes[a] != d_.sizes[b] && !is_one_dim) continue;
        Places next = places;
        std::swap(next[a], next[b]);
        const std::int64_t time = picoseconds(CollectiveKind::ppermute, local, 1U << a | 1U << b);
        reach(state, cost, Kind::ppermute, std::max<std::int64_t>(time - paid, 1), next);
      }
    }
  }

  std::int64_t cheapest_exchange(double local) {
    std::int64_t least = std::int64_t{1} << 62;
    for (int u = 0; u < d_.count(); ++u) least = std::min(least, picoseconds(CollectiveKind::ppermute, local, 1U << u));
    return least;
  }

  const Difference& d_;
  const ir::MeshAtoms& atoms_;
  const double bytes_;
  const Profile& profile_;
  const bool is_split_at_last_;
  absl::flat_hash_map<State, Visit> visits_;
  std::priority_queue<Entry> queue_;
  std::int64_t order_ = 0;
  absl::flat_hash_map<std::pair<unsigned, double>, std::int64_t> known_;
};

/// Units moved one run at a time; every state has heads of the goal's lists and, behind them, tails of the start's.
class Greedy {
 public:
  explicit Greedy(const Difference& difference) : d_(difference), now_(difference.from) {}

  std::vector<Step> run() {
    if (is_permutation()) return {{Kind::ppermute, d_.to}};
    reduce();
    while (slice() || exchange()) {}
    while (gather()) {
      while (slice() || exchange()) {}
    }
    make_partial();
    return std::move(steps_);
  }

 private:
  void step(Kind kind) { steps_.push_back({kind, now_}); }

  bool is_permutation() const {
    if (now_.unreduced != d_.to.unreduced) return false;
    for (std::size_t d = 0; d < now_.dims.size(); ++d)
      if (d_.size(now_.dims[d]) != d_.size(d_.to.dims[d])) return false;
    return !(now_ == d_.to);
  }

  /// The units of the goal's dim d that are still to come, if what is there is its head.
  std::vector<int> missing(std::size_t d) const {
    const std::vector<int>& have = now_.dims[d];
    const std::vector<int>& want = d_.to.dims[d];
    if (have.size() > want.size() || !std::equal(have.begin(), have.end(), want.begin())) return {};
    return {want.begin() + std::ssize(have), want.end()};
  }

  void reduce() {
    for (std::size_t d = 0; d < now_.dims.size(); ++d) {
      std::vector<int> run = missing(d);
      const auto is_partial = [&](int u) {
        return std::find(now_.unreduced.begin(), now_.unreduced.end(), u) != now_.unreduced.end();
      };
      run.erase(std::find_if_not(run.begin(), run.end(), is_partial), run.end());
      if (run.empty()) continue;
      for (const int u : run) std::erase(now_.unreduced, u);
      now_.dims[d].insert(now_.dims[d].end(), run.begin(), run.end());
      step(Kind::reduce_scatter);
    }
    if (now_.unreduced.empty()) return;
    now_.unreduced.clear();
    step(Kind::all_reduce);
  }

  bool is_used(int u) const {
    const auto has = [u](const std::vector<int>& list) { return std::find(list.begin(), list.end(), u) != list.end(); };
    return has(now_.unreduced) || std::any_of(now_.dims.begin(), now_.dims.end(), has);
  }

  bool slice() {
    for (std::size_t d = 0; d < now_.dims.size(); ++d) {
      const std::vector<int> next = missing(d);
      if (next.empty() || is_used(next[0])) continue;
      now_.dims[d].push_back(next[0]);
      step(Kind::slice);
      return true;
    }
    return false;
  }

  bool exchange() {
    for (std::size_t to = 0; to < now_.dims.size(); ++to) {
      const std::vector<int> next = missing(to);
      for (std::size_t d = 0; d < now_.dims.size() && !next.empty(); ++d) {
        std::vector<int>& list = now_.dims[d];
        const auto first = std::find(list.begin(), list.end(), next[0]);
        const std::ptrdiff_t count = list.end() - first;
        if (d == to || count == 0 || count > std::ssize(next) || !std::equal(first, list.end(), next.begin())) continue;
        now_.dims[to].insert(now_.dims[to].end(), first, list.end());
        list.erase(first, list.end());
        step(Kind::all_to_all);
        return true;
      }
    }
    return false;
  }

  /// Of the first dim that holds more than a head of what it should, the last unit.
  bool gather() {
    for (std::size_t d = 0; d < now_.dims.size(); ++d) {
      std::vector<int>& list = now_.dims[d];
      const std::vector<int>& want = d_.to.dims[d];
      if (list.size() <= want.size() && std::equal(list.begin(), list.end(), want.begin())) continue;
      list.pop_back();
      step(Kind::all_gather);
      return true;
    }
    return false;
  }

  void make_partial() {
    if (now_.unreduced == d_.to.unreduced) return;
    now_.unreduced = d_.to.unreduced;
    step(Kind::make_partial);
  }

  const Difference& d_;
  Placement now_;
  std::vector<Step> steps_;
};

}  // namespace

Found shortest_path(const Difference& difference, const ir::MeshAtoms& atoms, double bytes, const Profile& profile) {
  if (difference.count() > kMaxUnits || difference.dims.size() > kMaxRank) return {};
  return Search(difference, atoms, bytes, profile).run();
}

std::vector<Step> greedy_path(const Difference& difference) { return Greedy(difference).run(); }

}  // namespace sheaf::passes
