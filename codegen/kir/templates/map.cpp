// Map: a loop nest over the result's dims, as few as the index maps allow, innermost a vector loop. Where an operand
// runs along another dim than the result does, the plan asks for tiles of both, so that every cache line is used up.
// Where arrays are put one after another, or each into zeros of the whole's dims, a CPU has a nest for each, and no
// element looks for its own among them.
#include <algorithm>
#include <set>

#include "codegen/kir/estimate.h"
#include "codegen/kir/templates/map_nest.h"
#include "ir/check.h"

namespace sheaf::kir {
namespace {

void collect(const Block& block, std::vector<Index>& indices) {
  for (const Stmt& s : block) {
    if (const auto* let = std::get_if<Let>(&s)) {
      if (const auto* load = std::get_if<Load>(&let->expr)) indices.push_back(load->index);
      if (const auto* value = std::get_if<IndexValue>(&let->expr)) indices.push_back(value->index);
      if (const auto* range = std::get_if<InRange>(&let->expr)) indices.push_back(range->index);
    } else if (const auto* store = std::get_if<Store>(&s)) {
      indices.push_back(store->index);
    } else if (const auto* loop = std::get_if<For>(&s)) {
      collect(loop->body, indices);
    }
  }
}

int count_divisions(const IndexPool& pool, Index index) {
  int count = 0;
  for (const Term& t : pool.terms(index)) {
    const Atom& a = pool.atom(t.atom);
    if (a.operand.node >= 0) count += 1 + count_divisions(pool, a.operand);
  }
  return count;
}

void emit_body(PhaseBuilder& b, const KernelBuilder& k, const std::vector<Target>& targets, const Position& position) {
  Reader reader(b, k.group(), k.buffers);
  store_targets(reader, targets, position, read_targets(reader, targets, position));
}

/// The nest with every loop whole, in one unit: what its index maps look like, and what it costs.
Phase sketch(const KernelBuilder& k, const std::vector<Target>& targets, const std::vector<Loop>& loops) {
  PhaseBuilder b = k.begin_phase(1);
  std::vector<Index> at;
  for (std::size_t i = 0; i < loops.size(); ++i) {
    at.push_back(
        b.axis(b.begin_for("i", loops[i].extent, i + 1 == loops.size() ? LoopKind::vector : LoopKind::serial)));
  }
  emit_body(b, k, targets, positions(b.indices(), loops, at));
  for (std::size_t i = 0; i < loops.size(); ++i) b.end();
  return KernelBuilder::sketch(b);
}

/// A GPU divides faster than it runs short loops, but what is the same all along a longer one is worth computing once.
constexpr std::int64_t kShortestRow = 1024;
/// And in such a row every vector has its place.
constexpr std::int64_t kRowMultiple = 16;

void append(Loop& outer, const Loop& inner) {
  outer.dims.insert(outer.dims.end(), inner.dims.begin(), inner.dims.end());
  outer.from.insert(outer.from.end(), inner.from.begin(), inner.from.end());
  outer.extent *= inner.extent;
}

/// Whether the axes of loops i and i + 1 may run as one: no index map gets a division it did not have, or it may.
bool try_merge(bool may_divide, IndexPool& pool, std::vector<Index>& indices, AxisId outer, AxisId inner,
               std::int64_t outer_extent, std::int64_t inner_extent, AxisId merged) {
  const Index both = pool.axis(merged, outer_extent * inner_extent);
  std::vector<Index> replaced;
  for (Index index : indices) {
    replaced.push_back(pool.substitute(index, [&](const Atom& a) -> std::optional<Index> {
      if (a.kind != Atom::Kind::axis) return std::nullopt;
      if (a.id == outer) return pool.floor_div(both, inner_extent);
      if (a.id == inner) return pool.mod(both, inner_extent);
      return std::nullopt;
    }));
    if (!may_divide && count_divisions(pool, replaced.back()) > count_divisions(pool, index)) return false;
  }
  indices = std::move(replaced);
  return true;
}

}  // namespace

std::vector<ValueId> read_targets(Reader& reader, const std::vector<Target>& targets, const Position& position,
                                  ValueId mask) {
  std::vector<ValueId> values;
  for (const Target& t : targets) values.push_back(reader.read(t.node, position, mask));
  SHEAF_CHECK(reader.ok(), "map over a value that is in no buffer yet");
  return values;
}

void store_targets(Reader& reader, const std::vector<Target>& targets, const Position& position,
                   const std::vector<ValueId>& values, ValueId mask) {
  for (std::size_t i = 0; i < targets.size(); ++i) {
    const Target& t = targets[i];
    const Position at = t.window_of < 0 ? position : reader.window_position(t.window_of, position);
    const Shape& dims = reader.group().dims(t.window_of < 0 ? t.node : t.window_of);
    reader.builder().store(t.buffer, flatten(reader.builder().indices(), at, dims), values[i], mask);
  }
}

Position positions(IndexPool& pool, const std::vector<Loop>& loops, const std::vector<Index>& at) {
  Position position;
  for (std::size_t i = 0; i < loops.size(); ++i) {
    const Position inside = unflatten(pool, at[i], loops[i].dims);
    for (std::size_t d = 0; d < inside.size(); ++d) position.push_back(pool.add(inside[d], loops[i].from[d]));
  }
  return position;
}

std::size_t loop_of(const std::vector<Loop>& loops, std::int64_t dim) {
  std::size_t i = 0;
  for (std::int64_t end = std::ssize(loops[0].dims); end <= dim; end += std::ssize(loops[i].dims)) ++i;
  return i;
}

std::vector<Loop> collapse(const KernelBuilder& k, const std::vector<Target>& targets,
                           const std::vector<std::int64_t>& tile, const Part& part) {
  std::vector<Loop> loops;
  for (std::int64_t extent : k.group().dims(targets[0].node)) {
    const bool is_cut = std::ssize(loops) == part.dim;
    const std::int64_t count = is_cut ? part.end - part.begin : extent;
    loops.push_back({.dims = {count}, .from = {is_cut ? part.begin : 0}, .extent = count});
  }
  if (loops.empty()) return loops;
  Phase phase = sketch(k, targets, loops);
  std::vector<Index> indices;
  collect(phase.body, indices);
  std::vector<AxisId> axes;
  for (std::size_t i = 0; i < loops.size(); ++i) axes.push_back(static_cast<AxisId>(i) + 1);
  AxisId next_axis = static_cast<AxisId>(phase.axes.size());
  for (std::size_t i = loops.size() - 1; i-- > 0;) {
    if (!tile.empty() && static_cast<std::int64_t>(i) == tile[0] && loop_of(loops, tile[1]) == i + 1) continue;
    const std::int64_t inner = loops[i + 1].extent;
    const bool may_divide = k.grain().is_gpu() && tile.empty() && (inner < kShortestRow || inner % kRowMultiple != 0);
    if (!try_merge(may_divide, phase.indices, indices, axes[i], axes[i + 1], loops[i].extent, inner, next_axis)) {
      continue;
    }
    append(loops[i], loops[i + 1]);
    axes[i] = next_axis++;
    loops.erase(loops.begin() + static_cast<std::ptrdiff_t>(i) + 1);
    axes.erase(axes.begin() + static_cast<std::ptrdiff_t>(i) + 1);
  }
  return loops;
}

namespace {

/// A vector loop this short wastes its lanes: better to gather along two dims at once.
constexpr std::int64_t kShortestVector = 4;
/// Square tiles of this edge; 64 f32 lines of 64 bytes each way stay in the first-level cache.
constexpr std::int64_t kTile = 64;

void widen_innermost(std::vector<Loop>& loops) {
  while (loops.size() > 1 && loops.back().extent < kShortestVector) {
    append(loops[loops.size() - 2], loops.back());
    loops.pop_back();
  }
}

void choose_tiles(std::vector<Loop>& loops, const std::vector<std::int64_t>& tile) {
  for (Loop& l : loops) l.block = 1;
  for (std::int64_t dim : tile) {
    Loop& l = loops[loop_of(loops, dim)];
    l.block = std::min(kTile, l.extent);
  }
}

/// Bytes of the widest result that one thread of a GPU stores in a unit, in vectors of 16.
constexpr std::int64_t kThreadBytes = 32;

/// A unit is a part of the innermost loop that keeps every thread of a block busy with whole vectors.
void choose_gpu_blocks(const KernelBuilder& k, const std::vector<Target>& targets, std::vector<Loop>& loops) {
  for (Loop& l : loops) l.block = 1;
  if (loops.empty()) return;
  std::int64_t widest = 1;
  for (const Target& t : targets) widest = std::max<std::int64_t>(widest, size_bytes(k.group().dtype(t.node)));
  Loop& l = loops.back();
  const std::int64_t whole = k.grain().threads * kThreadBytes / widest;
  const std::int64_t blocks = std::max<std::int64_t>((l.extent + whole / 2) / whole, 1);
  const std::int64_t even = (l.extent + blocks - 1) / blocks, round = whole / 2;
  l.block = std::min(l.extent, (even + round - 1) / round * round);
}

void choose_cpu_blocks(const Grain& grain, std::vector<Loop>& loops, double element_ps, double total_ps) {
  const bool is_serial = total_ps <= static_cast<double>(grain.serial_ps);
  std::int64_t wanted =
      is_serial ? INT64_MAX : static_cast<std::int64_t>(static_cast<double>(grain.unit_ps) / std::max(element_ps, 1.0));
  wanted = std::max<std::int64_t>(wanted, 256);
  for (std::size_t i = loops.size(); i-- > 0;) {
    Loop& l = loops[i];
    const bool is_vector = i + 1 == loops.size();
    l.block = std::clamp<std::int64_t>(wanted, 1, l.extent);
    if (l.block < l.extent) {
      l.block = (l.extent + l.blocks() - 1) / l.blocks();  // even units
      if (is_vector) l.block = std::min(l.extent, (l.block + kLanes - 1) / kLanes * kLanes);
    }
    wanted = l.block < l.extent ? 1 : wanted / l.extent;
  }
}

void choose_blocks(const KernelBuilder& k, const std::vector<Target>& targets, std::vector<Loop>& loops) {
  if (k.grain().is_gpu()) return choose_gpu_blocks(k, targets, loops);
  std::int64_t count = 1;
  for (const Loop& l : loops) count *= l.extent;
  const auto total_ps = static_cast<double>(estimate_unit_ps(sketch(k, targets, loops)));
  choose_cpu_blocks(k.grain(), loops, total_ps / static_cast<double>(count), total_ps);
}

class Nest {
 public:
  Nest(PhaseBuilder& b, const KernelBuilder& k, const std::vector<Target>& targets, const std::vector<Loop>& loops)
      : b_(b), k_(k), targets_(targets), loops_(loops) {
    Shape blocks;
    for (const Loop& l : loops) blocks.push_back(l.blocks());
    unit_ = unflatten(b.indices(), b.unit(), blocks);
  }

  void emit(std::size_t i) {
    if (i == loops_.size()) return emit_body(b_, k_, targets_, positions(b_.indices(), loops_, at_));
    const Loop& l = loops_[i];
    const std::int64_t last = l.blocks() - 1, rest = l.extent - last * l.block;
    const ValueId is_last = b_.in_range(unit_[i], last, last + 1);
    if (rest == l.block || !k_.grain().is_gpu()) return emit_loop(i, l.block, {is_last, rest});
    // The threads of a GPU's block take their shares of a loop whose length the compiler knows.
    b_.begin_if(b_.in_range(unit_[i], 0, last));
    emit_loop(i, l.block, {is_last, l.block});
    b_.end();
    b_.begin_if(is_last);
    emit_loop(i, rest, {is_last, rest});
    b_.end();
  }

 private:
  void emit_loop(std::size_t i, std::int64_t extent, const Rest& rest) {
    IndexPool& pool = b_.indices();
    const Index base = pool.scale(unit_[i], loops_[i].block);
    if (extent == 1) {
      at_.push_back(base);
      emit(i + 1);
    } else {
      const bool is_vector = i + 1 == loops_.size();
      const AxisId axis = b_.begin_part("i", extent, is_vector ? LoopKind::vector : LoopKind::serial, rest);
      at_.push_back(pool.add(base, b_.axis(axis)));
      emit(i + 1);
      b_.end();
    }
    at_.pop_back();
  }

  PhaseBuilder& b_;
  const KernelBuilder& k_;
  const std::vector<Target>& targets_;
  const std::vector<Loop>& loops_;
  Position unit_;
  std::vector<Index> at_;
};

}  // namespace

namespace {

void emit_nest(KernelBuilder& k, const std::vector<Target>& targets, const std::vector<std::int64_t>& tile,
               const Part& part) {
  std::vector<Loop> loops = collapse(k, targets, tile, part);
  if (!tile.empty()) {
    choose_tiles(loops, tile);
  } else {
    widen_innermost(loops);
    choose_blocks(k, targets, loops);
  }
  std::int64_t units = 1;
  for (const Loop& l : loops) units *= l.blocks();
  PhaseBuilder b = k.begin_phase(units);
  Nest(b, k, targets, loops).emit(0);
  k.end_phase(b);
}

/// Where, along one dim, the operands of the concatenations and paddings end that the targets read in place.
struct Ends {
  std::int64_t dim = -1;
  std::set<std::int64_t> at;
  bool has_padding = false;  // which may overlap
};

/// The one dim that a padding pads, without gaps; -1 for others.
std::int64_t padded_dim(const Group& g, int node) {
  const auto& pad = *g.as<ir::lowering::Pad>(node);
  const Shape &from = g.dims(g.nodes[node].operands[0]), &to = g.dims(node);
  std::int64_t dim = -1;
  for (std::int64_t d = 0; d < std::ssize(to); ++d) {
    if (from[d] == to[d] && pad.low[d] == 0) continue;
    if (dim >= 0 || pad.interior[d] != 0) return -1;
    dim = d;
  }
  return dim;
}

/// Where `node` puts its operands along the dim, if it puts them side by side.
Ends ends_of(const Group& g, int node) {
  Ends ends;
  const std::vector<int>& operands = g.nodes[node].operands;
  if (const auto* c = g.as<ir::lowering::Concatenate>(node)) {
    ends.dim = c->dim;
    std::int64_t end = 0;
    for (int o : operands) ends.at.insert(end += g.dims(o)[ends.dim]);
  } else if (const auto* pad = g.as<ir::lowering::Pad>(node); pad && padded_dim(g, node) >= 0) {
    ends.dim = padded_dim(g, node);
    ends.has_padding = true;
    const std::int64_t extent = g.dims(node)[ends.dim], begin = pad->low[ends.dim];
    for (const std::int64_t at : {begin, begin + g.dims(operands[0])[ends.dim], extent})
      ends.at.insert(std::clamp<std::int64_t>(at, 0, extent));
  }
  return ends;
}

Ends ends_of(const Group& g, const std::vector<Target>& targets) {
  Ends ends;
  std::vector<int> work;
  std::vector<bool> is_seen(g.nodes.size());
  for (const Target& t : targets) work.push_back(t.node);
  while (!work.empty()) {
    const int node = work.back();
    work.pop_back();
    if (is_seen[node] || g.dims(node) != g.dims(targets[0].node)) continue;
    is_seen[node] = true;
    const std::vector<int>& operands = g.nodes[node].operands;
    if (g.as<ir::lowering::Map>(node)) work.insert(work.end(), operands.begin(), operands.end());
    const Ends of_node = ends_of(g, node);
    if (of_node.dim < 0 || (ends.dim >= 0 && ends.dim != of_node.dim)) continue;
    ends.dim = of_node.dim;
    ends.at.insert(of_node.at.begin(), of_node.at.end());
    ends.has_padding |= of_node.has_padding;
  }
  return ends;
}

/// A part of fewer elements, or of shorter runs in memory, is not worth a nest.
constexpr std::int64_t kSmallestPart = 1024, kShortestRun = 16;
/// And of windows that overlap there would be one for each element of a window.
constexpr std::ptrdiff_t kMostPadded = 8;

/// What each nest covers: what one operand of a concatenation does, or everything.
std::vector<Part> parts_of(const Group& g, const std::vector<Target>& targets) {
  const Shape& dims = g.dims(targets[0].node);
  const Ends ends = ends_of(g, targets);
  if (ends.dim < 0 || targets[0].window_of >= 0) return {Part{}};
  std::int64_t run = 1;  // elements along the dims after the one that is cut
  for (std::size_t d = static_cast<std::size_t>(ends.dim) + 1; d < dims.size(); ++d) run *= dims[d];
  std::vector<Part> parts;
  for (std::int64_t end : ends.at) {
    const std::int64_t begin = parts.empty() ? 0 : parts.back().end;
    if (end > begin) parts.push_back({ends.dim, begin, end});
  }
  const bool are_worth_it =
      (std::ssize(parts) <= kMostPadded || !ends.has_padding) &&
      num_elements(dims) >= kSmallestPart * std::ssize(parts) &&
      std::all_of(parts.begin(), parts.end(), [&](const Part& p) { return (p.end - p.begin) * run >= kShortestRun; });
  return are_worth_it ? parts : std::vector{Part{}};
}

}  // namespace

void map_template(KernelBuilder& k, const std::vector<Target>& targets, const std::vector<std::int64_t>& tile) {
  if (k.group().nodes[targets[0].node].type.num_elements() == 0) return;
  if (k.grain().is_gpu() && !tile.empty()) return tile_template(k, targets, tile);
  const bool is_whole = k.grain().is_gpu() || !tile.empty();
  for (const Part& part : is_whole ? std::vector{Part{}} : parts_of(k.group(), targets))
    emit_nest(k, targets, tile, part);
}

void update_template(KernelBuilder& k, Target target, bool is_in_place) {
  const std::vector<int>& operands = k.group().nodes[target.node].operands;
  if (!is_in_place) map_template(k, {{operands[0], target.buffer}});
  map_template(k, {{operands[1], target.buffer, target.node}});
}

}  // namespace sheaf::kir
