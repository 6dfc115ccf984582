// A list scheduler that goes from the end backwards, as the latency hiding scheduler of XLA does: once all readers of a
// collective have their places, its own work is before them, and what else has none yet goes between, until that takes
// as long as the collective does. Of what may come next the later one in the program comes.
#include "passes/overlap.h"

#include <algorithm>
#include <functional>
#include <set>
#include <utility>

#include "ir/cost.h"
#include "ir/op.h"
#include "ir/ops/attrs.h"
#include "ir/schedule.h"
#include "ir/work.h"
#include "passes/emit.h"
#include "passes/flights.h"
#include "passes/memory.h"
#include "passes/sharding/cost.h"

namespace sheaf::passes {

using namespace ir;
using lowering::Collective;

namespace {

/// An equation of the plan.
struct Node {
  std::optional<Collective> meets = {};
  double seconds = 0;
  std::vector<int> needs = {};  // each once
  int needed_by = 0;  // of those, how many have no place yet
};

double seconds_of(const Eqn& e, const std::optional<Collective>& meets, const MeshAtoms& atoms,
                  const Profile& profile) {
  if (e.op != &ops::kernel) return 0;
  if (meets) return cost_of(meets->kind, payload_of(e), atoms, atoms.of(meets->axes), profile).seconds;
  return seconds_of(work_of(e), e.out().dtype(), profile);
}

/// What has effects keeps its order, and nobody begins to communicate before it: a device that fails in it fails
/// before.
std::vector<Node> nodes_of(const Function& f, const MeshAtoms& atoms, const Profile& profile) {
  std::vector<Node> nodes(f.eqns().size());
  ValueTable<int> maker(f, -1);
  int last_effect = -1;
  for (int k = 0; k < std::ssize(nodes); ++k) {
    const Eqn& e = *f.eqns()[k];
    Node& node = nodes[k];
    node.meets = collective_of(e);
    node.seconds = seconds_of(e, node.meets, atoms, profile);
    for (const Value v : e.operands)
      if (maker[v] >= 0) node.needs.push_back(maker[v]);
    if ((e.effects != Effects::none || node.meets) && last_effect >= 0) node.needs.push_back(last_effect);
    if (e.effects != Effects::none) last_effect = k;
    std::ranges::sort(node.needs);
    node.needs.erase(std::unique(node.needs.begin(), node.needs.end()), node.needs.end());
    for (const int before : node.needs) ++nodes[before].needed_by;
    for (const Value v : e.outs()) maker[v] = k;
  }
  return nodes;
}

/// Bytes of the arena that are in use, going backwards: a value takes room from its last reader to its maker.
class Room {
 public:
  explicit Room(const Function& f) : in_use_(f, 0), is_elsewhere_(f, 0) {
    for (const Value v : f.params()) is_elsewhere_[v] = 1;
    for (const Value v : f.results()) is_elsewhere_[v] = 1;
    for (const Eqn* e : f.eqns())
      if (e->op != &ops::kernel) is_elsewhere_[e->out()] = 1;
  }
  void read(const Eqn& e) {
    for (const Value v : e.operands) bytes_ += std::exchange(in_use_[v], size(v)) == 0 ? size(v) : 0;
  }
  void make(const Eqn& e) {
    for (const Value v : e.outs()) bytes_ -= std::exchange(in_use_[v], 0);
  }
  std::int64_t bytes_reading(const Eqn& e) const {
    std::int64_t bytes = bytes_;
    for (const Value v : e.operands) bytes += in_use_[v] == 0 ? size(v) : 0;
    return bytes;
  }

 private:
  std::int64_t size(Value v) const { return is_elsewhere_[v] ? 0 : v.type().bytes(); }

  ValueTable<std::int64_t> in_use_;
  ValueTable<char> is_elsewhere_;
  std::int64_t bytes_ = 0;
};

/// `most_bytes` of the arena, as far as that is up to what is under way; 0: as many as it takes.
class Backwards {
 public:
  Backwards(const Function& f, std::vector<Node> nodes, std::int64_t most_bytes)
      : f_(f), nodes_(std::move(nodes)), most_bytes_(most_bytes), room_(f) {}

  std::vector<int> order() {
    for (int k = 0; k < std::ssize(nodes_); ++k)
      if (nodes_[k].needed_by == 0) add(k);
    while (order_.size() < nodes_.size()) {
      begin_flights();
      place(next());
    }
    std::ranges::reverse(order_);
    return std::move(order_);
  }

 private:
  struct InFlight {
    int node;
    double covered_at;  // on the clock: as much is done meanwhile as it takes
  };

  void add(int k) { (nodes_[k].meets ? arrivals_ : steps_).insert(k); }

  bool is_like(int a, int b) const {
    return nodes_[a].meets->kind == nodes_[b].meets->kind && nodes_[a].meets->axes == nodes_[b].meets->axes;
  }

  // The latest first. What it reads stays in memory from here on.
  void begin_flights() {
    for (auto it = arrivals_.begin(); it != arrivals_.end();) {
      count_work(1 + std::ssize(in_flight_));
      const int k = *it;
      const auto alike =
          std::ranges::count_if(in_flight_, [&](const InFlight& other) { return is_like(other.node, k); });
      if (alike == most_under_way(nodes_[k].meets->kind)) {
        ++it;
        continue;
      }
      in_flight_.push_back({k, clock_ + nodes_[k].seconds});
      room_.read(*f_.eqns()[k]);
      it = arrivals_.erase(it);
    }
  }

  /// A step, or a collective in flight that starts now.
  int next() const {
    count_work(1 + std::ssize(in_flight_));
    if (in_flight_.empty()) return *steps_.begin();
    const InFlight& first = *std::ranges::min_element(
        in_flight_, std::less(), [](const InFlight& x) { return std::pair(x.covered_at, -x.node); });
    if (steps_.empty()) return first.node;
    const int step = *steps_.begin();
    if (most_bytes_ > 0 && room_.bytes_reading(*f_.eqns()[step]) > most_bytes_) return first.node;
    int latest = step;
    for (const InFlight& x : in_flight_) {
      if (x.covered_at > clock_) continue;
      if (std::ranges::any_of(arrivals_, [&](int k) { return is_like(k, x.node); })) return x.node;  // another waits
      latest = std::max(latest, x.node);
    }
    return latest;
  }

  void place(int k) {
    const Node& node = nodes_[k];
    const Eqn& e = *f_.eqns()[k];
    if (node.meets) {
      const auto it = std::ranges::find(in_flight_, k, &InFlight::node);
      clock_ = std::max(clock_, it->covered_at);
      in_flight_.erase(it);
    } else {
      clock_ += node.seconds;
      room_.read(e);
      steps_.erase(k);
    }
    room_.make(e);
    order_.push_back(k);
    for (const int before : node.needs)
      if (--nodes_[before].needed_by == 0) add(before);
  }

  using LatestFirst = std::set<int, std::greater<>>;

  const Function& f_;
  std::vector<Node> nodes_;
  const std::int64_t most_bytes_;
  Room room_;
  LatestFirst steps_, arrivals_;  // whose readers all have their places
  std::vector<InFlight> in_flight_;
  double clock_ = 0;  // backwards
  std::vector<int> order_;
};

bool meets(const Function& f) {
  return std::ranges::any_of(f.eqns(), [](const Eqn* e) {
    return collective_of(*e) || std::ranges::any_of(e->regions, [](const FunctionRef& r) { return meets(*r); });
  });
}

/// The equations of f in this order, with regions[k] in place of those of the step that equation k is, if there are
/// any.
FunctionRef in_order(const Function& f, std::span<const int> order,
                     const std::vector<std::vector<FunctionRef>>& regions) {
  Builder b(f.name());
  ValueTable<Value> made(f);
  const Values params = clone_params(b, f, Mask(f.params().size(), true));
  for (std::size_t i = 0; i < params.size(); ++i) made[f.params()[i]] = params[i];
  for (const int k : order) {
    const Eqn& e = *f.eqns()[k];
    Values operands, outs;
    for (const Value v : e.operands) operands.push_back(made[v]);
    b.set_loc(e.loc, e.how);
    if (e.op == &ops::kernel) {
      auto attributes = std::make_shared<ops::Kernel>(e.attrs<ops::Kernel>());
      attributes->in_order = true;
      const FunctionRef body = regions[k].empty() ? e.regions[0] : with_regions(*e.regions[0], regions[k]);
      outs = b.emit_all(e.op, std::move(operands), std::move(attributes), {body});
    } else {
      outs = b.clone(e, std::move(operands));
    }
    for (int j = 0; j < e.num_out(); ++j) made[e.out(j)] = outs[j];
  }
  Values results;
  for (const Value r : f.results()) results.push_back(made[r]);
  return b.finish(std::move(results));
}

FunctionRef reordered(const FunctionRef& f, const MeshAtoms& atoms, const Profile& profile, std::int64_t most_bytes) {
  if (!meets(*f)) return f;
  bool has_changed = false;
  std::vector<std::vector<FunctionRef>> regions(f->eqns().size());
  for (std::size_t k = 0; k < regions.size(); ++k) {
    const Eqn& e = *f->eqns()[k];
    if (e.op != &ops::kernel || e.attrs<ops::Kernel>().schedule != Schedule::host) continue;
    for (const FunctionRef& region : host_step(*e.regions[0]).regions) {
      regions[k].push_back(reordered(region, atoms, profile, most_bytes));
      has_changed |= regions[k].back() != region;
    }
  }
  const std::vector<int> order = Backwards(*f, nodes_of(*f, atoms, profile), most_bytes).order();
  has_changed |= !std::ranges::is_sorted(order);
  return has_changed ? in_order(*f, order, regions) : f;
}

/// Of the arena, where the devices' memory is limited; else 0.
std::int64_t limit_of(const Function& f, const Profile& profile) {
  constexpr double kUsable = 0.95;
  if (profile.capacity == 0) return 0;
  double bytes = kUsable * profile.capacity;
  for (const Value v : f.params()) bytes -= static_cast<double>(v.type().bytes());
  for (const Value v : f.results()) bytes -= static_cast<double>(v.type().bytes());
  return std::max<std::int64_t>(static_cast<std::int64_t>(bytes), 1);
}

}  // namespace

FunctionRef overlap(const FunctionRef& f, const Profile& profile) {
  if (!f->mesh()) return f;
  const MeshAtoms atoms(f->mesh());
  const std::int64_t limit = limit_of(*f, profile);
  for (const std::int64_t quarters : {4, 3, 2}) {  // how the arena is filled, only the memory plan tells
    const std::int64_t most_bytes = limit / 4 * quarters + (limit > 0);
    const FunctionRef made = reordered(f, atoms, profile, most_bytes);
    if (made == f) return f;
    if (limit == 0 || assign_memory(made, {}).arena_bytes <= limit) return made->on_mesh(f->mesh());
  }
  return f;
}

FunctionRef overlap(const FunctionRef& f, const Target& target) { return overlap(f, chosen_profile(target)); }

}  // namespace sheaf::passes
