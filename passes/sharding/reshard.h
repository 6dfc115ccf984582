// How a value gets from one sharding to another: the cheapest sequence of moves under a profile, found as a shortest
// path over the ways to place the mesh's atoms on dims. Invariant: before and after every move the value divides
// evenly, and equal questions have equal answers.
#pragma once

#include <absl/container/flat_hash_map.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ir/builder.h"
#include "ir/sharding.h"
#include "passes/sharding/cost.h"

namespace sheaf::passes {

struct ReshardMove {
  enum class Kind : std::uint8_t {
    slice,           // atoms that nothing used are appended to dims: each device keeps its part
    all_gather,      // the last atoms of a dim go
    all_to_all,      // the last atoms of a dim go to the end of another
    ppermute,        // other atoms, or other places for them, in parts of equal size
    all_reduce,      // unreduced atoms go
    reduce_scatter,  // unreduced atoms go to the end of a dim
    make_partial,    // an atom that nothing used becomes unreduced: all devices but the first drop their value
    pad_partial,     // the last atoms of a dim become unreduced: each device's part amid what changes nothing
  };
  Kind kind = Kind::slice;
  ir::Sharding result = {};
  ir::Atoms axes = {};  // of the collective, major to minor; for local moves the atoms that come or go
  int dim = -1;         // that loses or gains the axes
  int to_dim = -1;      // of all_to_all: that gains them
  double payload = 0;   // of the collective, as cost_of takes it
  CommCost cost = {};

  bool is_collective() const { return kind >= Kind::all_gather && kind <= Kind::reduce_scatter; }
};
std::string_view name(ReshardMove::Kind kind);

struct ReshardPlan {
  ir::Sharding from = {};
  std::vector<ReshardMove> moves = {};
  CommCost cost = {};
  int collectives = 0;
  std::int64_t placements = 0;  // looked at
  bool is_greedy = false;  // too many placements to look at all
  /// The whole value is on every device on the way from one split form to another.
  bool gathers_all = false;
};

/// "all_to_all x 0->1, slice [_, (x, y)]"; "" for none.
std::string to_string(const ReshardPlan& plan, const ir::MeshAtoms& atoms);

/// Remembers its answers; of one mesh and profile, which outlive it.
class ReshardPlanner {
 public:
  ReshardPlanner(const ir::MeshAtoms& atoms, const Profile& profile) : atoms_(atoms), profile_(profile) {}

  /// Both must divide `dims`. The plan lives as long as the planner.
  const ReshardPlan& plan(const Shape& dims, DType dtype, const ir::Sharding& from, const ir::Sharding& to);
  std::int64_t placements() const { return placements_; }  // looked at so far, to test that work is linear

 private:
  using Key = std::tuple<Shape, int, ir::Sharding, ir::Sharding>;
  const ir::MeshAtoms& atoms_;
  const Profile& profile_;
  absl::flat_hash_map<Key, std::unique_ptr<const ReshardPlan>> plans_;
  std::int64_t placements_ = 0;
};

/// One question.
ReshardPlan plan_reshard(const Shape& dims, DType dtype, const ir::MeshAtoms& atoms, const ir::Sharding& from,
                         const ir::Sharding& to, const Profile& profile);

/// The plan's equations on what one device holds. Gathers emitted where the builder's `how` tells of transposition are
/// those of the backward pass (passes/sharding/reasons.h).
ir::Value emit_reshard(ir::Builder& b, ir::Value local, const ReshardPlan& plan, const ir::MeshAtoms& atoms);

}  // namespace sheaf::passes
