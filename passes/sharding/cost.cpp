// Gathers and scatters by doubling and halving: log2 n rounds, in which a device sends (n - 1) / n of the whole, as a
// ring would in n - 1 steps. A sum is a scatter and a gather (R. Thakur, R. Rabenseifner, W. Gropp, Optimization of
// Collective Communication Operations in MPICH, 2005).
#include "passes/sharding/cost.h"

#include <algorithm>
#include <bit>

namespace sheaf::passes {
namespace {

/// Devices that reach each other over links of one kind.
struct Level {
  Link link;
  double ways = 1;
};

/// The fastest first.
std::vector<Level> levels_of(CollectiveKind kind, const ir::MeshAtoms& atoms, const ir::Atoms& axes,
                             const Profile& profile) {
  std::vector<Level> levels;
  for (const int a : axes) {
    const Link link = profile.link(kind, atoms.mesh().axes()[atoms[a].axis].name);
    const auto same = std::find_if(levels.begin(), levels.end(), [&](const Level& l) { return l.link == link; });
    if (same != levels.end()) same->ways *= static_cast<double>(atoms[a].size);
    else levels.push_back({link, static_cast<double>(atoms[a].size)});
  }
  std::sort(levels.begin(), levels.end(), [](const Level& a, const Level& b) {
    return std::pair(-a.link.bandwidth, a.link.latency) < std::pair(-b.link.bandwidth, b.link.latency);
  });
  return levels;
}

CommCost over(const Link& link, double steps, double bytes) {
  return {.bytes = bytes, .seconds = steps * link.latency + bytes / link.bandwidth};
}

/// Rounds in which each device reaches twice as many others as before.
double rounds(double ways) { return static_cast<double>(std::bit_width(static_cast<std::uint64_t>(ways) - 1)); }

}  // namespace

CommCost cost_of(CollectiveKind kind, double payload, const ir::MeshAtoms& atoms, const ir::Atoms& axes,
                 const Profile& profile) {
  const std::vector<Level> levels = levels_of(kind, atoms, axes, profile);
  CommCost cost;
  for (std::size_t i = 0; i < levels.size(); ++i) {
    const Level& l = levels[i];
    const CommCost once = over(l.link, rounds(l.ways), (l.ways - 1) / l.ways * payload);
    switch (kind) {
      case CollectiveKind::all_reduce: cost += once; [[fallthrough]];
      case CollectiveKind::all_gather:
      case CollectiveKind::reduce_scatter:
        cost += once;
        payload /= l.ways;
        break;
      case CollectiveKind::all_to_all: cost += once; break;  // by level; each passes on all that it has
      case CollectiveKind::ppermute:
        if (i + 1 == levels.size()) cost += over(l.link, 1, payload);
        break;
      case CollectiveKind::axis_index: break;
    }
  }
  return cost;
}

double payload_of(const ir::Eqn& e) {
  const auto bytes_of = [](const ir::Values& values) {
    double bytes = 0;
    for (const ir::Value v : values) bytes += static_cast<double>(v.type().bytes());
    return bytes;
  };
  return std::max(bytes_of(e.operands), bytes_of(e.outs()));
}

double seconds_of(const ir::Work& work, DType dtype, const Profile& profile) {
  constexpr double kFlopsPerCall = 16;  // about the length of the polynomials of exp, log and tanh
  const double flops = work.flops + kFlopsPerCall * work.transcendentals;
  return profile.launch + std::max(flops / profile.flops_per_second(dtype), work.bytes / profile.memory);
}

}  // namespace sheaf::passes
