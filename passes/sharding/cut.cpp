// Dinic's algorithm on a network in which each value is two nodes joined by an edge of its cost; all other edges take
// any flow.
#include "passes/sharding/cut.h"

#include <algorithm>
#include <limits>

namespace sheaf::passes {
namespace {

constexpr std::int64_t kAny = std::numeric_limits<std::int64_t>::max() / 4;

class Network {
 public:
  explicit Network(int nodes) : edges_of_(nodes) {}

  void connect(int from, int to, std::int64_t room) {
    edges_of_[from].push_back(static_cast<int>(edges_.size()));
    edges_.push_back({to, room});
    edges_of_[to].push_back(static_cast<int>(edges_.size()));
    edges_.push_back({from, 0});
  }

  /// As much as goes from one to the other.
  void fill(int source, int sink) {
    while (find_levels(source)[sink] >= 0) {
      next_.assign(edges_of_.size(), 0);
      while (push(source, sink)) {}
    }
  }

  /// Distance from the source over edges with room; -1: none.
  const std::vector<int>& find_levels(int source) {
    levels_.assign(edges_of_.size(), -1);
    levels_[source] = 0;
    std::vector<int> queue = {source};
    for (std::size_t i = 0; i < queue.size(); ++i)
      for (const int e : edges_of_[queue[i]]) {
        if (edges_[e].room == 0 || levels_[edges_[e].to] >= 0) continue;
        levels_[edges_[e].to] = levels_[queue[i]] + 1;
        queue.push_back(edges_[e].to);
      }
    return levels_;
  }

 private:
  struct Edge {
    int to = 0;
    std::int64_t room = 0;  // for more flow; the edge behind each one of even number leads back
  };

  // Along one path that leads away from the source at each step; false: there is none left.
  bool push(int source, int sink) {
    std::vector<int> path;
    for (int at = source; at != sink;) {
      if (const int e = step_from(at); e >= 0) {
        path.push_back(e);
        at = edges_[e].to;
      } else if (path.empty()) {
        return false;
      } else {
        levels_[at] = -1;
        at = edges_[path.back() ^ 1].to;
        path.pop_back();
      }
    }
    std::int64_t flow = kAny;
    for (const int e : path) flow = std::min(flow, edges_[e].room);
    for (const int e : path) {
      edges_[e].room -= flow;
      edges_[e ^ 1].room += flow;
    }
    return true;
  }

  int step_from(int at) {
    for (std::size_t& next = next_[at]; next < edges_of_[at].size(); ++next) {
      const Edge& e = edges_[edges_of_[at][next]];
      if (e.room > 0 && levels_[e.to] == levels_[at] + 1) return edges_of_[at][next];
    }
    return -1;
  }

  std::vector<Edge> edges_;
  std::vector<std::vector<int>> edges_of_;
  std::vector<int> levels_;
  std::vector<std::size_t> next_;  // per node, of its edges: those before have no way to the sink
};

}  // namespace

std::vector<bool> cheapest_cut(const std::vector<UnmadeSum>& sums) {
  const int count = static_cast<int>(sums.size()), source = 2 * count, sink = source + 1;
  Network network(sink + 1);
  for (int i = 0; i < count; ++i) {
    network.connect(2 * i, 2 * i + 1, std::min(sums[i].cost, kAny - 1));
    if (sums[i].begins) network.connect(source, 2 * i, kAny);
    if (sums[i].is_taken_whole) network.connect(2 * i + 1, sink, kAny);
    for (const int to : sums[i].flows_to) network.connect(2 * i + 1, 2 * to, kAny);
  }
  network.fill(source, sink);
  const std::vector<int>& levels = network.find_levels(source);
  std::vector<bool> cut(count);
  for (int i = 0; i < count; ++i) cut[i] = levels[2 * i] >= 0 && levels[2 * i + 1] < 0;
  return cut;
}

}  // namespace sheaf::passes
