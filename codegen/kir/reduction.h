// What the reduction templates share: the state a reduction carries, and the split of an operand's dims into kept and
// reduced. The order in which states combine is fixed by docs/numerics.md and kept by every template.
#pragma once

#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "codegen/kir/build.h"
#include "codegen/kir/group.h"

namespace sheaf::kir {

using State = std::vector<ValueId>;  // one value per part

/// A reduction's state: one part, or a value and its index (argmax). The identity starts every lane.
struct Reduction {
  std::vector<DType> parts;
  std::vector<std::uint64_t> identity_bits;
  std::vector<ir::ScalarFn> combine_fns;  // part i of (left parts..., right parts...)

  State identity(PhaseBuilder& b) const;
  State combine(PhaseBuilder& b, const State& left, const State& right) const;
};
/// A state in memory, one buffer per part.
State load_state(PhaseBuilder& b, const std::vector<BufferId>& buffers, Index at);
void store_state(PhaseBuilder& b, const std::vector<BufferId>& buffers, Index at, const State& state);

Reduction make_reduction(ir::ReduceKind kind, DType dtype);
/// State {value, index}: NaN wins, then the larger (smaller) value, then the lower index.
Reduction make_arg_reduction(bool is_max, DType dtype, std::int64_t count);
/// Of a node whose lowering is Reduce or ArgReduce.
Reduction reduction_of(const Group& group, int node);
/// Several at once: the state is theirs, one after the other.
Reduction together(const std::vector<Reduction>& reductions);
/// The dims of the operand it reduces.
std::vector<std::int64_t> reduced_dims_of(const Group& group, int node);

std::int64_t reduced_count(const Shape& dims, const std::vector<std::int64_t>& reduced);

/// The dims of a reduction's operand, parted.
struct ReducedDims {
  ReducedDims(const Shape& dims, const std::vector<std::int64_t>& reduced_dims);
  /// The operand's position from those over the kept dims and over the reduced dims.
  std::vector<Index> position(const std::vector<Index>& kept_at, const std::vector<Index>& reduced_at) const;

  Shape kept, reduced;
  std::vector<bool> is_reduced;     // by operand dim
  std::int64_t kept_count = 1, reduced_count = 1;
};

/// The state that one element contributes: element `flat` (row-major over the reduced dims) at kept position `kept`.
using ElementFn = std::function<State(Index flat)>;

/// A GPU reduces a row of at most this many elements by a warp; for a longer one, all threads of a block make elements
/// that two of its warps then add up.
inline constexpr std::int64_t kWarpRow = 1024;
/// Scratch through which all threads of a block hand elements to the lanes that add them up, so many at a time; the
/// reductions of a phase take turns.
struct Stage {
  std::int64_t elements = 2048;
  std::vector<std::pair<DType, BufferId>> buffers = {};
};

/// Reduces elements [base, base + count), count <= kLeaf, in the 64-lane order. Without a stage who adds up an element
/// also makes it.
State reduce_leaf(PhaseBuilder& b, const Reduction& reduction, Index base, std::int64_t count, const ElementFn& element,
                  Stage* stage = nullptr);
/// Combines the `count` states at buffers[part][base + i] pairwise, in place, until one is left; returns it.
State combine_leaves(PhaseBuilder& b, const Reduction& reduction, const std::vector<BufferId>& buffers, Index base,
                     std::int64_t count);
/// Where row `row` of states, one for each of a run of columns, has its column c: of one buffer per part.
using RowAt = std::function<Index(Index row, Index column)>;
/// Columns side by side; in the unit of the last ones, fewer.
struct ColumnRun {
  std::int64_t width = 1;
  std::optional<Rest> rest = std::nullopt;
};
/// body(c) in lanes over the columns.
void for_each_column(PhaseBuilder& b, const ColumnRun& columns, const std::function<void(Index column)>& body);
/// What reduce_leaf does with its lanes, and combine_leaves with totals, for each column of `count` rows; the result is
/// row 0.
void combine_lane_rows(PhaseBuilder& b, const Reduction& reduction, const std::vector<BufferId>& buffers,
                       const ColumnRun& columns, std::int64_t count, const RowAt& at);
void combine_leaf_rows(PhaseBuilder& b, const Reduction& reduction, const std::vector<BufferId>& buffers,
                       const ColumnRun& columns, std::int64_t count, const RowAt& at);
/// Reduces any number of elements inside one unit, leaf by leaf.
State reduce_row(PhaseBuilder& b, const Reduction& reduction, std::int64_t count, const ElementFn& element,
                 Stage* stage = nullptr);

constexpr std::int64_t count_leaves(std::int64_t count) { return count == 0 ? 1 : (count + kLeaf - 1) / kLeaf; }

}  // namespace sheaf::kir
