// Tile-transpose on a GPU: a block takes a square tile of two dims. First its threads run along the outer dim and copy
// into the block's memory what lies along that; then they run along the inner one, read the copies instead, and store.
// Rows of a copy are padded, so that neither way two threads of a warp meet in a bank.
#include <algorithm>

#include "codegen/kir/templates/map_nest.h"
#include "ir/check.h"

namespace sheaf::kir {
namespace {

/// Copies in a block's memory; what would be one too many is loaded across.
constexpr std::size_t kMostCopies = 8;
constexpr int kBankBytes = 4;

class TileTemplate {
 public:
  TileTemplate(KernelBuilder& k, const std::vector<Target>& targets, const std::vector<std::int64_t>& tile)
      : k_(k), targets_(targets), loops_(collapse(k, targets, tile)) {
    outer_ = loop_of(loops_, tile[0]);
    inner_ = loop_of(loops_, tile[1]);
    SHEAF_CHECK(outer_ != inner_, "a tile of dims that run as one");
    // A row of a tile should be at least two sectors of memory, whatever the dtype.
    int narrowest = 8;
    for (const Target& t : targets) narrowest = std::min(narrowest, size_bytes(k.group().dtype(t.node)));
    edge_ = narrowest >= 4 ? 32 : 64;
    for (Loop& l : loops_) l.block = 1;
    loops_[outer_].block = loops_[inner_].block = edge_;
  }

  void emit() {
    Shape blocks;
    for (const Loop& l : loops_) blocks.push_back(l.blocks());
    const std::int64_t units = num_elements(blocks);
    PhaseBuilder sketch = k_.begin_phase(units);
    find_loads_across(sketch, blocks);
    KernelBuilder::sketch(sketch);
    PhaseBuilder b = k_.begin_phase(units);
    for (const Across& a : across_) copies_.push_back(b.scratch(a.dtype, edge_ * pitch(a.dtype)));
    copy(b, blocks);
    compute(b, blocks);
    k_.end_phase(b, k_.grain().threads);
  }

 private:
  struct Across {
    std::size_t call;  // which of the body's loads it is
    DType dtype;
  };
  struct Point {
    Index outer, inner;  // in the tile
    Position position;   // in the result
    ValueId mask;        // whether it is in the result
  };

  std::int64_t pitch(DType t) const { return edge_ + std::max(1, kBankBytes / size_bytes(t)); }

  Point point(PhaseBuilder& b, const Shape& blocks, Index outer, Index inner) const {
    IndexPool& pool = b.indices();
    std::vector<Index> at = unflatten(pool, b.unit(), blocks);
    at[outer_] = pool.add(pool.scale(at[outer_], edge_), outer);
    at[inner_] = pool.add(pool.scale(at[inner_], edge_), inner);
    const ValueId mask =
        b.both(b.in_range(at[outer_], 0, loops_[outer_].extent), b.in_range(at[inner_], 0, loops_[inner_].extent));
    return {outer, inner, positions(pool, loops_, at), mask};
  }

  /// A reader that asks `loads(call, buffer, index)` about each load that happens wherever the point exists.
  template <class F>
  Reader reader(PhaseBuilder& b, const Point& p, F loads) const {
    const ValueId everywhere = b.is_true(p.mask) ? -1 : p.mask;
    Reader reader(b, k_.group(), k_.buffers);
    reader.ask_first([=, calls = std::size_t{0}](BufferId buffer, Index index, ValueId mask) mutable -> ValueId {
      const std::size_t call = calls++;
      return mask == everywhere ? loads(call, buffer, index) : -1;
    });
    return reader;
  }

  void find_loads_across(PhaseBuilder& b, const Shape& blocks) {
    const AxisId outer = b.begin_for("o", edge_, LoopKind::serial), inner = b.begin_for("n", edge_, LoopKind::vector);
    const Point p = point(b, blocks, b.axis(outer), b.axis(inner));
    Reader reader = this->reader(b, p, [&, outer, inner](std::size_t call, BufferId buffer, Index index) {
      const IndexPool& pool = b.indices();
      const auto along_inner = pool.stride(index, inner);
      const bool is_across =
          !pool.depends_on_value(index) && pool.stride(index, outer) == 1 && along_inner != 0 && along_inner != 1;
      if (is_across && across_.size() < kMostCopies) across_.push_back({call, b.param_dtype(buffer)});
      return -1;
    });
    read_targets(reader, targets_, p.position, p.mask);
    b.end();
    b.end();
  }

  void copy(PhaseBuilder& b, const Shape& blocks) {
    IndexPool& pool = b.indices();
    const Index i = b.axis(b.begin_for("i", edge_ * edge_, LoopKind::vector));
    const Point p = point(b, blocks, pool.mod(i, edge_), pool.floor_div(i, edge_));
    std::vector<ValueId> values(across_.size(), -1);
    Reader reader = this->reader(b, p, [&](std::size_t call, BufferId buffer, Index index) -> ValueId {
      const int copy = copy_of(call);
      return copy < 0 ? -1 : values[copy] = b.load(buffer, index, p.mask);
    });
    read_targets(reader, targets_, p.position, p.mask);
    for (std::size_t c = 0; c < values.size(); ++c) b.store(copies_[c], in_copy(b, p, static_cast<int>(c)), values[c]);
    b.end();
  }

  void compute(PhaseBuilder& b, const Shape& blocks) {
    IndexPool& pool = b.indices();
    const Index i = b.axis(b.begin_for("i", edge_ * edge_, LoopKind::vector));
    const Point p = point(b, blocks, pool.floor_div(i, edge_), pool.mod(i, edge_));
    Reader reader = this->reader(b, p, [&](std::size_t call, BufferId, Index) -> ValueId {
      const int copy = copy_of(call);
      return copy < 0 ? -1 : b.load(copies_[copy], in_copy(b, p, copy));
    });
    store_targets(reader, targets_, p.position, read_targets(reader, targets_, p.position, p.mask), p.mask);
    b.end();
  }

  Index in_copy(PhaseBuilder& b, const Point& p, int copy) const {
    return b.indices().add(b.indices().scale(p.inner, pitch(across_[copy].dtype)), p.outer);
  }

  int copy_of(std::size_t call) const {
    const auto found = std::find_if(across_.begin(), across_.end(), [&](const Across& a) { return a.call == call; });
    return found == across_.end() ? -1 : static_cast<int>(found - across_.begin());
  }

  KernelBuilder& k_;
  const std::vector<Target>& targets_;
  std::vector<Loop> loops_;
  std::size_t outer_ = 0, inner_ = 0;
  std::int64_t edge_ = 32;
  std::vector<Across> across_;
  std::vector<BufferId> copies_;
};

}  // namespace

void tile_template(KernelBuilder& k, const std::vector<Target>& targets, const std::vector<std::int64_t>& tile) {
  TileTemplate(k, targets, tile).emit();
}

}  // namespace sheaf::kir
