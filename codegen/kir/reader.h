// Reads any value of a fusion group at any position: producers are inlined as scalar expressions of composed index
// maps, down to loads of buffers. Invariant: a value read twice at the same position under the same mask is one value.
#pragma once

#include <array>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "codegen/kir/build.h"
#include "codegen/kir/group.h"

namespace sheaf::kir {

using Position = std::vector<Index>;  // one per logical dim

/// The buffer that holds each node row-major, or -1.
using NodeBuffers = std::vector<BufferId>;

/// True for what `Reader` can inline: everything but the heroes that need a nest of their own. Reductions of at most
/// ir::kShortReduction elements are inlined as a tree of reads.
bool is_inlinable(const Group& group, int node);

/// Lives while one loop body is built: what it remembers is valid in that body and inside it only.
class Reader {
 public:
  Reader(PhaseBuilder& builder, const Group& group, const NodeBuffers& buffers)
      : b_(builder), group_(group), buffers_(buffers) {}

  /// The value of `node` at `position`, of the node's dtype; unspecified where the bool `mask` (-1: true) is false.
  ValueId read(int node, const Position& position, ValueId mask = -1);
  /// From now on `node` is `value` at `position`, and may be read nowhere else unless it is inlinable or in a buffer.
  void bind(int node, const Position& position, ValueId value);
  /// Who is asked before a buffer is loaded: gives the value, or -1 where it has none.
  using Loads = std::function<ValueId(BufferId, Index, ValueId mask)>;
  void ask_first(Loads loads) { loads_ = std::move(loads); }
  /// Where the element of `update_slice`'s update at `position` lies in its operand.
  Position window_position(int update_slice, const Position& position);
  /// False once something was read that is neither inlinable, nor in a buffer, nor bound at that position.
  bool ok() const { return ok_; }

  PhaseBuilder& builder() { return b_; }
  const Group& group() const { return group_; }

 private:
  using Key = std::vector<int>;
  ValueId load(int node, const Position& position, ValueId mask);
  ValueId compute(int node, const Position& i, ValueId mask);
  ValueId lower(int node, const ir::lowering::Map& m, const Position& i, ValueId mask);
  ValueId lower(int node, const ir::lowering::View& v, const Position& i, ValueId mask);
  ValueId lower(int node, const ir::lowering::Windows& w, const Position& i, ValueId mask);
  ValueId lower(int node, const ir::lowering::Reshape&, const Position& i, ValueId mask);
  ValueId lower(int node, const ir::lowering::Pad& p, const Position& i, ValueId mask);
  ValueId lower(int node, const ir::lowering::Concatenate& c, const Position& i, ValueId mask);
  ValueId lower(int node, const ir::lowering::Iota& t, const Position& i, ValueId mask);
  ValueId lower(int node, const ir::lowering::RandomBits& r, const Position& i, ValueId mask);
  ValueId lower(int node, const ir::lowering::Gather& g, const Position& i, ValueId mask);
  ValueId lower(int node, const ir::lowering::UpdateSlice& u, const Position& i, ValueId mask);
  ValueId lower(int node, const ir::lowering::Reduce& r, const Position& i, ValueId mask);
  template <class NoNest>
  ValueId lower(int, const NoNest&, const Position&, ValueId) {
    return fail();
  }
  ValueId fail();
  int operand(int node, int k) const { return group_.nodes[node].operands[k]; }
  /// Start index `k` of an index vector, read from `indices` at batch position `batch`, as i64.
  ValueId start(int indices, const Position& batch, int index_dim, std::int64_t k, ValueId mask);

  /// Where the window of an update starts along each of its dims, moved inside, in the batch that position i lies in.
  std::vector<Index> window_starts(int node, const ir::lowering::UpdateSlice& u, const Position& i, ValueId mask);

  PhaseBuilder& b_;
  const Group& group_;
  const NodeBuffers& buffers_;
  absl::flat_hash_map<Key, ValueId> known_;  // node, mask, position...
  absl::flat_hash_map<Key, ValueId> bound_;  // node, position...
  Loads loads_;
  bool ok_ = true;
};

/// Row-major position <-> flat index over `dims`.
Index flatten(IndexPool& pool, const Position& position, const Shape& dims);
Position unflatten(IndexPool& pool, Index flat, const Shape& dims);

/// Threefry-2x32 of `counter` under `key`, as in Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (2011).
std::array<ValueId, 2> threefry2x32(PhaseBuilder& b, std::array<ValueId, 2> key, std::array<ValueId, 2> counter);

}  // namespace sheaf::kir
