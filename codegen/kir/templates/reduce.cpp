// Reduce: one reduction, or several of the same elements at once. Along the innermost dim, lanes run over reduced
// elements ("row"); otherwise they run over kept elements, with the 64 lanes of the numeric contract as rows of scratch
// ("column"). Either way the order of combination is the same.
#include <algorithm>
#include <bit>

#include "codegen/kir/estimate.h"
#include "codegen/kir/reduction.h"
#include "codegen/kir/templates/template.h"
#include "ir/check.h"

namespace sheaf::kir {
namespace {

/// Columns that one unit accumulates: 64 lanes of 64 f32 columns are 16 KB of scratch.
constexpr std::int64_t kColumns = 64;
/// Blocks that keep a GPU busy.
constexpr std::int64_t kManyUnits = 256;

class ReduceTemplate {
 public:
  ReduceTemplate(KernelBuilder& k, const std::vector<Target>& targets)
      : k_(k),
        targets_(targets),
        from_(k.group().nodes[targets[0].node].operands[0]),
        dims_(k.group().dims(from_), reduced_dims_of(k.group(), targets[0].node)) {
    for (const Target& t : targets) reductions_.push_back(reduction_of(k.group(), t.node));
    reduction_ = together(reductions_);
    // The trailing kept dims are the columns.
    for (std::size_t d = dims_.is_reduced.size(); d-- > 0 && !dims_.is_reduced[d];) {
      columns_ *= k.group().dims(from_)[d];
    }
    outer_ = dims_.kept_count / std::max<std::int64_t>(columns_, 1);
    leaves_ = count_leaves(dims_.reduced_count);
    const std::int64_t units = outer_ * ((columns_ + kColumns - 1) / kColumns);
    splits_leaves_ = leaves_ > 1 && (units < k.grain().many_rows || (k.grain().is_gpu() && columns_ > 1));
  }

  void emit() {
    if (dims_.kept_count == 0) return;
    if (splits_leaves_) {
      for (DType part : reduction_.parts) totals_.push_back(k_.temporary(part, dims_.kept_count * leaves_));
    }
    if (columns_ > 1 && k_.grain().is_gpu()) {
      emit_shared_columns();
    } else if (columns_ > 1) {
      emit_columns();
    } else if (splits_leaves_) {
      emit_leaves();
    } else {
      emit_rows();
    }
    if (splits_leaves_) emit_totals();
  }

 private:
  /// What element `flat` of the reduced dims contributes to kept element `kept` (row-major).
  State element(PhaseBuilder& b, Index kept, Index flat, ValueId mask = -1) const {
    IndexPool& pool = b.indices();
    Reader reader(b, k_.group(), k_.buffers);
    const Position at = dims_.position(unflatten(pool, kept, dims_.kept), unflatten(pool, flat, dims_.reduced));
    State state;
    for (std::size_t i = 0; i < targets_.size(); ++i) {
      const ValueId value = reader.read(k_.group().nodes[targets_[i].node].operands[0], at, mask);
      SHEAF_CHECK(reader.ok(), "reduce over a value that is in no buffer yet");
      const std::vector<DType>& parts = reductions_[i].parts;
      state.push_back(b.convert(value, parts[0]));
      if (parts.size() > 1) state.push_back(b.index_value(flat, parts[1]));
    }
    return state;
  }

  void store_result(PhaseBuilder& b, Index kept, const State& state, ValueId mask = -1) const {
    std::size_t end = 0;
    for (std::size_t i = 0; i < targets_.size(); ++i) {
      end += reductions_[i].parts.size();  // an index reduction's result is its index
      b.store(targets_[i].buffer, kept, b.convert(state[end - 1], k_.group().dtype(targets_[i].node)), mask);
    }
  }

  double row_ps() const {
    PhaseBuilder b = k_.begin_phase(1);
    const Index kept = b.axis(b.begin_for("o", dims_.kept_count, LoopKind::serial));
    store_result(b, kept, reduce_row(b, reduction_, dims_.reduced_count, [&](Index r) { return element(b, kept, r); }));
    b.end();
    const Phase phase = KernelBuilder::sketch(b);
    return static_cast<double>(estimate_unit_ps(phase)) / static_cast<double>(dims_.kept_count);
  }

  bool is_staged() const { return k_.grain().is_gpu() && dims_.reduced_count > kWarpRow; }
  int row_threads() const {
    if (!k_.grain().is_gpu()) return 1;
    return is_staged() ? k_.grain().threads : 32;
  }

  void emit_rows() {
    const Blocking blocking = choose_blocking(k_.grain(), dims_.kept_count, row_ps());
    PhaseBuilder b = k_.begin_phase(blocking.units());
    Stage stage;
    for_each_item(b, blocking, b.unit(), "o", [&](Index kept) {
      store_result(b, kept,
                   reduce_row(
                       b, reduction_, dims_.reduced_count, [&](Index r) { return element(b, kept, r); },
                       is_staged() ? &stage : nullptr));
    });
    k_.end_phase(b, row_threads());
  }

  /// One unit per leaf of each row.
  void emit_leaves() {
    PhaseBuilder b = k_.begin_phase(dims_.kept_count * leaves_);
    const Position unit = unflatten(b.indices(), b.unit(), {dims_.kept_count, leaves_});
    Stage stage;
    for_each_leaf(b, unit[1], [&](std::int64_t count) {
      const Index base = b.indices().scale(unit[1], kLeaf);
      const State state = reduce_leaf(
          b, reduction_, base, count, [&](Index r) { return element(b, unit[0], r); }, is_staged() ? &stage : nullptr);
      for (std::size_t p = 0; p < state.size(); ++p) b.store(totals_[p], b.unit(), state[p]);
    });
    k_.end_phase(b, row_threads());
  }

  /// Two versions of the body where the last leaf is short.
  void for_each_leaf(PhaseBuilder& b, Index leaf, const std::function<void(std::int64_t count)>& body) const {
    const std::int64_t last = leaves_ - 1, rest = dims_.reduced_count - last * kLeaf;
    if (rest == kLeaf || leaves_ == 1) return body(rest);
    b.begin_if(b.in_range(leaf, 0, last));
    body(kLeaf);
    b.end();
    b.begin_if(b.in_range(leaf, last, last + 1));
    body(rest);
    b.end();
  }

  void emit_totals() {
    const Blocking blocking = choose_blocking(k_.grain(), dims_.kept_count, static_cast<double>(leaves_) * 1000);
    PhaseBuilder b = k_.begin_phase(blocking.units());
    Stage stage;
    for_each_item(b, blocking, b.unit(), "o", [&](Index kept) {
      store_result(b, kept, combine_leaves(b, reduction_, totals_, b.indices().scale(kept, leaves_), leaves_));
    });
    k_.end_phase(b);
  }

  void emit_columns() {
    const std::int64_t block = std::min(kColumns, columns_), blocks = (columns_ + block - 1) / block;
    const std::int64_t leaf_units = splits_leaves_ ? leaves_ : 1;
    PhaseBuilder sketch = k_.begin_phase(1);
    emit_column_unit(sketch, {sketch.indices().constant(0), sketch.indices().constant(0), sketch.indices().constant(0)},
                     block, blocks);
    const auto unit_ps = static_cast<double>(estimate_unit_ps(KernelBuilder::sketch(sketch)));
    const Blocking blocking = choose_blocking(k_.grain(), outer_ * blocks * leaf_units, unit_ps);
    PhaseBuilder b = k_.begin_phase(blocking.units());
    for_each_item(b, blocking, b.unit(), "o", [&](Index item) {
      emit_column_unit(b, unflatten(b.indices(), item, {outer_, blocks, leaf_units}), block, blocks);
    });
    k_.end_phase(b);
  }

  // ---- columns on a GPU: thread i of a block is in column i mod width and lane i / width, lanes beyond in further
  // rounds.

  struct SharedColumns {
    std::int64_t width, lanes, rows;  // rows x width threads; lanes of the contract that hold anything
    std::int64_t threads() const { return rows * width; }
  };

  /// As wide as keeps the GPU busy, but whole sectors of memory.
  SharedColumns shape_of_block() const {
    const std::int64_t narrowest = std::max<std::int64_t>(8, 32 / size_bytes(k_.group().dtype(from_)));
    std::int64_t width = std::min<std::int64_t>(columns_, 32);
    while (width > narrowest && outer_ * leaf_units() * ((columns_ + width - 1) / width) < kManyUnits) width /= 2;
    const auto count = static_cast<std::uint64_t>(std::min<std::int64_t>(dims_.reduced_count, kLanes));
    const auto lanes = static_cast<std::int64_t>(std::bit_ceil(std::max<std::uint64_t>(count, 1)));
    const auto most = static_cast<std::uint64_t>(k_.grain().threads / width);
    return {width, lanes, std::min(lanes, static_cast<std::int64_t>(std::bit_floor(most)))};
  }

  std::int64_t leaf_units() const { return splits_leaves_ ? leaves_ : 1; }

  void emit_shared_columns() {
    const SharedColumns shape = shape_of_block();
    const std::int64_t blocks = (columns_ + shape.width - 1) / shape.width;
    PhaseBuilder b = k_.begin_phase(outer_ * blocks * leaf_units());
    const Position at = unflatten(b.indices(), b.unit(), {outer_, blocks, leaf_units()});
    for_each_leaf(b, at[2], [&](std::int64_t count) { emit_shared_columns(b, shape, at, count); });
    k_.end_phase(b, static_cast<int>(shape.threads()));
  }

  /// Columns from at[1] * width of kept row at[0]; the `count` elements from leaf at[2] on.
  void emit_shared_columns(PhaseBuilder& b, const SharedColumns& shape, const Position& at, std::int64_t count) {
    IndexPool& pool = b.indices();
    const std::int64_t threads = shape.threads(), rounds = shape.lanes / shape.rows;
    const Index first = pool.scale(at[1], shape.width), row = pool.scale(at[0], columns_);
    std::vector<BufferId> own;  // of each thread, a state for each round
    for (DType part : reduction_.parts) own.push_back(b.scratch(part, rounds * threads));
    const auto each = [&](std::int64_t extent, const std::function<void(Index thread)>& body) {
      body(b.axis(b.begin_for("t", extent, LoopKind::vector)));
      b.end();
    };
    const auto each_round = [&](std::int64_t extent, const std::function<void(Index round, Index thread)>& body) {
      const Index round = b.axis(b.begin_for("m", extent, LoopKind::unroll));
      each(threads, [&](Index t) { body(round, t); });
      b.end();
    };
    const auto at_round = [&](Index round, Index t) { return pool.add(pool.scale(round, threads), t); };
    const auto column = [&](Index t) { return pool.add(first, pool.mod(t, shape.width)); };
    const auto exists = [&](Index t) { return b.in_range(column(t), 0, columns_); };
    /// The next elements, one for each lane below `lanes`, from `from` on.
    const auto add = [&](Index from, std::int64_t lanes) {
      each_round((lanes + shape.rows - 1) / shape.rows, [&](Index round, Index t) {
        const Index lane = pool.add(pool.scale(round, shape.rows), pool.floor_div(t, shape.width));
        const ValueId is_lane = b.in_range(lane, 0, lanes);
        const State right = element(b, pool.add(row, column(t)), pool.add(from, lane), b.both(exists(t), is_lane));
        const State left = load_state(b, own, at_round(round, t));
        State sum = reduction_.combine(b, left, right);
        for (std::size_t p = 0; p < sum.size(); ++p) sum[p] = b.op(ir::ScalarOp::select, is_lane, sum[p], left[p]);
        store_state(b, own, at_round(round, t), sum);
      });
    };
    each_round(rounds, [&](Index round, Index t) { store_state(b, own, at_round(round, t), reduction_.identity(b)); });
    const Index base = pool.scale(at[2], kLeaf);
    if (const std::int64_t whole = count / shape.lanes; whole > 0) {
      const Index r = b.axis(b.begin_for("r", whole, LoopKind::serial));
      add(pool.add(base, pool.scale(r, shape.lanes)), shape.lanes);
      b.end();
    }
    if (const std::int64_t rest = count % shape.lanes; rest > 0) add(pool.add(base, count - rest), rest);
    for (std::int64_t half = rounds / 2; half >= 1; half /= 2) {
      each_round(half, [&](Index round, Index t) {
        const State right = load_state(b, own, at_round(pool.add(round, half), t));
        store_state(b, own, at_round(round, t), reduction_.combine(b, load_state(b, own, at_round(round, t)), right));
      });
    }
    std::vector<BufferId> shared;
    for (DType part : reduction_.parts) shared.push_back(b.scratch(part, threads));
    each(threads, [&](Index t) { store_state(b, shared, t, load_state(b, own, t)); });
    for (std::int64_t half = shape.rows / 2; half >= 1; half /= 2) {
      each(half * shape.width, [&](Index t) {
        const State right = load_state(b, shared, pool.add(t, half * shape.width));
        store_state(b, shared, t, reduction_.combine(b, load_state(b, shared, t), right));
      });
    }
    each(shape.width, [&](Index t) {
      const Index kept = pool.add(row, column(t));
      const State total = load_state(b, shared, t);
      if (!splits_leaves_) return store_result(b, kept, total, exists(t));
      const Index to = pool.add(pool.scale(kept, leaves_), at[2]);
      for (std::size_t p = 0; p < total.size(); ++p) b.store(totals_[p], to, total[p], exists(t));
    });
  }

  // ---- columns on a CPU ----

  void emit_column_unit(PhaseBuilder& b, const Position& at, std::int64_t block, std::int64_t blocks) {
    const std::int64_t last = blocks - 1, rest = columns_ - last * block;
    emit_column_block(b, at, {block, Rest{b.in_range(at[1], last, blocks), rest}});
  }

  /// Columns from at[1] * width on, of kept row at[0]; all leaves, or leaf at[2] alone.
  void emit_column_block(PhaseBuilder& b, const Position& at, const ColumnRun& columns) {
    IndexPool& pool = b.indices();
    const std::int64_t width = columns.width;
    const Index first = pool.add(pool.scale(at[0], columns_), pool.scale(at[1], width));
    const auto kept = [&](Index c) { return pool.add(first, c); };
    const std::int64_t lanes = std::min<std::int64_t>(kLanes, std::max<std::int64_t>(dims_.reduced_count, 1));
    std::vector<BufferId> scratch, totals;
    for (DType part : reduction_.parts) scratch.push_back(b.scratch(part, lanes * width));
    if (splits_leaves_) {
      for_each_leaf(b, at[2], [&](std::int64_t count) {
        column_leaf(b, scratch, columns, pool.scale(at[2], kLeaf), count, kept);
        for_each_column(b, columns, [&](Index c) {
          const Index to = pool.add(pool.scale(kept(c), leaves_), at[2]);
          for (std::size_t p = 0; p < scratch.size(); ++p) b.store(totals_[p], to, b.load(scratch[p], c));
        });
      });
      return;
    }
    if (leaves_ == 1) {
      column_leaf(b, scratch, columns, pool.constant(0), dims_.reduced_count, kept);
      for_each_column(b, columns, [&](Index c) { store_result(b, kept(c), load_state(b, scratch, c)); });
      return;
    }
    for (DType part : reduction_.parts) totals.push_back(b.scratch(part, leaves_ * width));
    const auto leaf_into_totals = [&](Index leaf, std::int64_t count) {
      column_leaf(b, scratch, columns, pool.scale(leaf, kLeaf), count, kept);
      for_each_column(b, columns, [&](Index c) {
        store_state(b, totals, pool.add(pool.scale(leaf, width), c), load_state(b, scratch, c));
      });
    };
    const std::int64_t whole = dims_.reduced_count / kLeaf;
    const Index leaf = b.axis(b.begin_for("leaf", whole, LoopKind::serial));
    leaf_into_totals(leaf, kLeaf);
    b.end();
    if (whole < leaves_) leaf_into_totals(pool.constant(whole), dims_.reduced_count - whole * kLeaf);
    combine_leaf_rows(b, reduction_, totals, columns, leaves_,
                      [&](Index row, Index c) { return pool.add(pool.scale(row, width), c); });
    for_each_column(b, columns, [&](Index c) { store_result(b, kept(c), load_state(b, totals, c)); });
  }

  /// scratch[l][c] for 64 lanes l, then the lane tree; the result is scratch[0][c]. Lanes past `count` would hold the
  /// identity, and combining with it changes nothing, so they do not exist.
  void column_leaf(PhaseBuilder& b, const std::vector<BufferId>& scratch, const ColumnRun& columns, Index base,
                   std::int64_t count, const std::function<Index(Index)>& kept) {
    IndexPool& pool = b.indices();
    const std::int64_t lanes = std::min<std::int64_t>(kLanes, std::max<std::int64_t>(count, 1));
    const auto each = [&](std::int64_t rows, const std::function<void(Index l, Index c)>& body) {
      const Index l = b.axis(b.begin_for("l", rows, LoopKind::serial));
      for_each_column(b, columns, [&](Index c) { body(l, c); });
      b.end();
    };
    const auto at = [&](Index l, Index c) { return pool.add(pool.scale(l, columns.width), c); };
    const auto add = [&](std::int64_t rows, Index first) {
      each(rows, [&](Index l, Index c) {
        const State right = element(b, kept(c), pool.add(first, l));
        store_state(b, scratch, at(l, c), reduction_.combine(b, load_state(b, scratch, at(l, c)), right));
      });
    };
    each(lanes, [&](Index l, Index c) { store_state(b, scratch, at(l, c), reduction_.identity(b)); });
    if (const std::int64_t rounds = count / kLanes; rounds > 0) {
      const Index r = b.axis(b.begin_for("r", rounds, LoopKind::serial));
      add(kLanes, pool.add(base, pool.scale(r, kLanes)));
      b.end();
    }
    if (const std::int64_t rest = count % kLanes; rest > 0) add(rest, pool.add(base, count - rest));
    combine_lane_rows(b, reduction_, scratch, columns, lanes, at);
  }

  KernelBuilder& k_;
  std::vector<Target> targets_;
  int from_;  // what the first one reduces; all have its dims
  std::vector<Reduction> reductions_;  // of each
  Reduction reduction_;  // together
  ReducedDims dims_;
  std::int64_t columns_ = 1, outer_ = 1, leaves_ = 1;
  bool splits_leaves_ = false;
  std::vector<BufferId> totals_;
};

}  // namespace

void reduce_template(KernelBuilder& k, const std::vector<Target>& targets) { ReduceTemplate(k, targets).emit(); }

}  // namespace sheaf::kir
