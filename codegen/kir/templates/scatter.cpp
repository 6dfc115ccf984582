// Scatter: the operand is copied unless the result takes its place, then the updates are applied in row-major order,
// one after the other for each destination. Batch dims and window dims that no index moves are independent of that
// order: they are the units and the vector lanes. On a GPU the updates are sorted by destination first, and each
// destination has a thread; where no order shows in the result, each update has one.
#include <algorithm>
#include <bit>
#include <limits>
#include <span>

#include "codegen/kir/estimate.h"
#include "codegen/kir/templates/merge_sort.h"
#include "ir/check.h"

namespace sheaf::kir {
namespace {

namespace low = ir::lowering;
using ir::ScalarOp;
using Dims = std::vector<std::int64_t>;

int find(const Dims& list, std::int64_t d) {
  const auto it = std::find(list.begin(), list.end(), d);
  return it == list.end() ? -1 : static_cast<int>(it - list.begin());
}

std::optional<ScalarOp> combine_op(low::Scatter::Combine combine) {
  using enum low::Scatter::Combine;
  switch (combine) {
    case set: return std::nullopt;
    case add: return ScalarOp::add;
    case mul: return ScalarOp::mul;
    case min: return ScalarOp::min;
    case max: return ScalarOp::max;
  }
  return std::nullopt;
}

/// Of fewer updates in a row than this, a GPU too applies one after the other.
constexpr std::int64_t kWorthSorting = 16;

class ScatterTemplate {
 public:
  ScatterTemplate(KernelBuilder& k, Target target)
      : k_(k),
        g_(k.group()),
        target_(target),
        scatter_(*g_.as<low::Scatter>(target.node)),
        operands_(g_.nodes[target.node].operands),
        dims_(g_.dims(target.node)),
        update_dims_(g_.dims(operands_[2])) {
    // Which operand dim each window dim of the updates runs along.
    for (std::size_t d = 0; d < dims_.size(); ++d) {
      const auto dim = static_cast<std::int64_t>(d);
      if (find(scatter_.inserted_dims, dim) < 0 && find(scatter_.operand_batch, dim) < 0) window_dims_.push_back(dim);
    }
    for (std::size_t d = 0; d < update_dims_.size(); ++d) {
      (is_independent(static_cast<std::int64_t>(d)) ? free_ : ordered_).push_back(static_cast<std::int64_t>(d));
    }
  }

  void emit() {
    if (num_elements(update_dims_) == 0) return;
    const std::int64_t lanes = free_.empty() ? 1 : update_dims_[free_.back()];
    std::int64_t rows = 1, steps = 1;  // independent rows of lanes; ordered steps of each
    for (std::size_t i = 0; i + 1 < free_.size(); ++i) rows *= update_dims_[free_[i]];
    for (std::int64_t d : ordered_) steps *= update_dims_[d];
    if (k_.grain().is_gpu() && has_any_order()) return emit_unordered();
    if (k_.grain().is_gpu() && steps >= kWorthSorting) return emit_sorted(steps);
    const std::int64_t block = std::min<std::int64_t>(lanes, kLanes), blocks = (lanes + block - 1) / block;
    const double item_ps = static_cast<double>(steps) * (3000 + 30.0 * static_cast<double>(block));
    const Blocking blocking = choose_blocking(k_.grain(), rows * blocks, item_ps);
    PhaseBuilder b = k_.begin_phase(blocking.units());
    b_ = &b;
    for_each_item(b, blocking, b.unit(), "o", [&](Index item) {
      const Position at = unflatten(b.indices(), item, {rows, blocks});
      const std::int64_t last = blocks - 1, rest = lanes - last * block;
      if (rest == block) return apply_updates(at, block, block, steps);
      b.begin_if(b.in_range(at[1], 0, last));
      apply_updates(at, block, block, steps);
      b.end();
      b.begin_if(b.in_range(at[1], last, last + 1));
      apply_updates(at, block, rest, steps);
      b.end();
    });
    k_.end_phase(b);
  }

 private:
  int window_of(std::int64_t update_dim) const { return find(scatter_.update_window_dims, update_dim); }

  /// The indices dim that a non-window dim of the updates runs along.
  std::int64_t indices_dim_of(std::int64_t update_dim) const {
    std::int64_t rank_among_others = 0;
    for (std::int64_t d = 0; d < update_dim; ++d) rank_among_others += window_of(d) < 0;
    return rank_among_others >= scatter_.index_vector_dim ? rank_among_others + 1 : rank_among_others;
  }

  /// Different positions along this dim of the updates never meet in one destination.
  bool is_independent(std::int64_t update_dim) const {
    if (const int w = window_of(update_dim); w >= 0) return find(scatter_.scatter_dims, window_dims_[w]) < 0;
    return find(scatter_.indices_batch, indices_dim_of(update_dim)) >= 0;
  }

  void apply_updates(const Position& at, std::int64_t block, std::int64_t width, std::int64_t steps) {
    IndexPool& pool = b_->indices();
    Position update(update_dims_.size());
    Shape row_dims, step_dims;
    for (std::size_t i = 0; i + 1 < free_.size(); ++i) row_dims.push_back(update_dims_[free_[i]]);
    for (std::int64_t d : ordered_) step_dims.push_back(update_dims_[d]);
    const Position row_at = unflatten(pool, at[0], row_dims);
    for (std::size_t i = 0; i < row_at.size(); ++i) update[free_[i]] = row_at[i];
    const Index step = b_->axis(b_->begin_for("u", steps, LoopKind::serial));
    const Position step_at = unflatten(pool, step, step_dims);
    for (std::size_t i = 0; i < step_at.size(); ++i) update[ordered_[i]] = step_at[i];
    if (free_.empty()) {
      apply_update(update);
    } else {
      const Index lane = b_->axis(b_->begin_for("w", width, LoopKind::vector));
      update[free_.back()] = pool.add(pool.scale(at[1], block), lane);
      apply_update(update);
      b_->end();
    }
    b_->end();
  }

  void apply_update(const Position& update) {
    Reader reader(*b_, g_, k_.buffers);
    const Destination to = destination(reader, update, -1);
    const ValueId value = read_update(reader, update);
    b_->store(target_.buffer, to.flat, combined(b_->load(target_.buffer, to.flat, to.inside), value), to.inside);
  }

  struct Destination {
    Index flat;
    ValueId inside;  // whether it is: nothing is accessed otherwise
  };

  /// Where the update at `update` goes, unspecified where `mask` is false.
  Destination destination(Reader& reader, const Position& update, ValueId mask) {
    IndexPool& pool = b_->indices();
    Position batch(g_.dims(operands_[1]).size());
    for (std::size_t d = 0; d < update_dims_.size(); ++d) {
      if (window_of(static_cast<std::int64_t>(d)) < 0) batch[indices_dim_of(static_cast<std::int64_t>(d))] = update[d];
    }
    Position to(dims_.size());
    ValueId inside = -1;
    for (std::size_t d = 0; d < dims_.size(); ++d) {
      const auto dim = static_cast<std::int64_t>(d);
      const int window = find(window_dims_, dim);
      const std::int64_t size = window < 0 ? 1 : update_dims_[scatter_.update_window_dims[window]];
      to[d] = window < 0 ? pool.constant(0) : update[scatter_.update_window_dims[window]];
      if (const int k = find(scatter_.operand_batch, dim); k >= 0) to[d] = batch[scatter_.indices_batch[k]];
      const int k = find(scatter_.scatter_dims, dim);
      if (k < 0) continue;
      Position at = batch;
      if (scatter_.index_vector_dim < static_cast<int>(at.size())) at[scatter_.index_vector_dim] = pool.constant(k);
      const ValueId start = read_start(reader, at, mask);
      const ValueId fits = b_->op(ScalarOp::and_, b_->op(ScalarOp::ge, start, i64_constant(0)),
                                  b_->op(ScalarOp::le, start, i64_constant(dims_[d] - size)));
      inside = b_->both(inside, fits);
      const std::int64_t last = std::max<std::int64_t>(dims_[d] - size, 0);
      to[d] = pool.add(to[d], b_->index_of(start, {0, last}));  // outside: masked, never accessed
    }
    return {flatten(pool, to, dims_), inside};
  }

  ValueId read_start(Reader& reader, const Position& at, ValueId mask) {
    const ValueId start = reader.read(operands_[1], at, mask);
    SHEAF_CHECK(reader.ok(), "scatter at indices that are in no buffer yet");
    if (b_->dtype(start) != DType::u64) return b_->convert(start, DType::i64);
    return b_->convert(b_->op(ScalarOp::min, start, b_->constant(DType::u64, INT64_MAX)), DType::i64);
  }

  ValueId read_update(Reader& reader, const Position& update) {
    const ValueId value = reader.read(operands_[2], update);
    SHEAF_CHECK(reader.ok(), "scatter of a value that is in no buffer yet");
    return value;
  }

  // ---- in any order ----

  /// Integers come to the same in any order; floats where the user does not mind. Bytes have no instruction.
  bool has_any_order() const {
    if (scatter_.is_unique) return true;
    const DType t = g_.dtype(target_.node);
    return scatter_.combine != low::Scatter::Combine::set && size_bytes(t) > 1 && (is_int(t) || !scatter_.is_ordered);
  }

  /// One element of one update for each unit; units that meet update in one step.
  void emit_unordered() {
    PhaseBuilder b = k_.begin_phase(num_elements(update_dims_));
    b_ = &b;
    const Position update = unflatten(b.indices(), b.unit(), update_dims_);
    Reader reader(b, g_, k_.buffers);
    const Destination to = destination(reader, update, -1);
    const ValueId value = read_update(reader, update);
    if (scatter_.is_unique) {
      b.store(target_.buffer, to.flat, combined(b.load(target_.buffer, to.flat, to.inside), value), to.inside);
    } else {
      b.update(target_.buffer, to.flat, *combine_op(scatter_.combine), value, to.inside);
    }
    k_.end_phase(b);
  }

  ValueId combined(ValueId before, ValueId update) {
    const std::optional<ScalarOp> op = combine_op(scatter_.combine);
    const ValueId args[] = {before, update};
    return op ? b_->call(ir::scalar_primitive(*op, b_->dtype(update)), args) : update;
  }

  // ---- sorted by destination ----

  using Combine = low::Scatter::Combine;

  static Shape extents(const Shape& dims, const Dims& of) {
    Shape all;
    for (std::int64_t d : of) all.push_back(dims[d]);
    return all;
  }

  void put(Position& update, const Dims& dims, Index flat) const {
    const Position at = unflatten(b_->indices(), flat, extents(update_dims_, dims));
    for (std::size_t i = 0; i < dims.size(); ++i) update[dims[i]] = at[i];
  }

  /// `steps` updates of each row, in order; independent elements of each.
  void emit_sorted(std::int64_t steps) {
    for (std::int64_t d : free_) (window_of(d) < 0 ? batch_ : lanes_).push_back(d);
    const std::int64_t rows = num_elements(extents(update_dims_, batch_));
    const DType key = num_elements(dims_) < INT32_MAX ? DType::i32 : DType::i64;
    const DType number = steps < INT32_MAX ? DType::i32 : DType::i64;
    const BufferId keys = k_.temporary(key, rows * steps), numbers = k_.temporary(number, rows * steps);
    SortedRows sorted{.rows = rows, .length = steps, .num_keys = 1, .parts = {key, number}};
    sorted.read = [&](PhaseBuilder& b, Index row, Index i, ValueId exists) -> std::vector<ValueId> {
      b_ = &b;
      Position update(update_dims_.size(), b.indices().constant(0));
      put(update, batch_, row);
      put(update, ordered_, i);
      Reader reader(b, g_, k_.buffers);
      const Destination to = destination(reader, update, exists);
      const ValueId flat = b.index_value(to.flat, key);
      const ValueId nowhere = nowhere_of(key);
      return {b.is_true(to.inside) ? flat : b.op(ScalarOp::select, to.inside, flat, nowhere), b.index_value(i, number)};
    };
    sorted.store = [&](PhaseBuilder& b, Index row, Index i, std::span<const ValueId> element, ValueId exists) {
      const Index at = b.indices().add(b.indices().scale(row, steps), i);
      b.store(keys, at, element[0], exists);
      b.store(numbers, at, element[1], exists);
    };
    merge_sort(k_, sorted);
    const std::int64_t lanes = num_elements(extents(update_dims_, lanes_));
    PhaseBuilder b = k_.begin_phase(rows * steps * lanes);
    b_ = &b;
    const Position unit = unflatten(b.indices(), b.unit(), {rows, steps, lanes});
    apply_run(keys, numbers, {.row = unit[0], .at = unit[1], .lane = unit[2], .steps = steps});
    k_.end_phase(b);
  }

  /// The key of what goes nowhere, behind all others.
  ValueId nowhere_of(DType key) const {
    return b_->constant(key, static_cast<std::uint64_t>(key == DType::i32 ? INT32_MAX : INT64_MAX));
  }

  struct Run {
    Index row, at, lane;  // of sorted updates
    std::int64_t steps;
  };

  /// A thread at one end of a run of equal keys applies all of it; of `set`, only the last update matters.
  void apply_run(BufferId keys, BufferId numbers, const Run& run) {
    IndexPool& pool = b_->indices();
    const Index first = pool.scale(run.row, run.steps), here = pool.add(first, run.at);
    const bool is_set = scatter_.combine == Combine::set;
    const ValueId key = b_->load(keys, here);
    const ValueId has_next = is_set ? b_->in_range(run.at, 0, run.steps - 1) : b_->in_range(run.at, 1, run.steps);
    const ValueId next = b_->load(keys, pool.add(here, is_set ? 1 : -1), has_next);
    const ValueId is_end = b_->op(ScalarOp::or_, b_->op(ScalarOp::not_, has_next), b_->op(ScalarOp::ne, next, key));
    b_->begin_if(b_->op(ScalarOp::and_, is_end, b_->op(ScalarOp::ne, key, nowhere_of(b_->dtype(key)))));
    Position update(update_dims_.size());
    put(update, batch_, run.row);
    put(update, lanes_, run.lane);
    Index to = b_->index_of(key, {0, std::max<std::int64_t>(num_elements(dims_) - 1, 0)});
    for (std::int64_t d : lanes_) {
      const std::int64_t dim = window_dims_[window_of(d)];
      std::int64_t stride = 1;
      for (std::size_t i = static_cast<std::size_t>(dim) + 1; i < dims_.size(); ++i) stride *= dims_[i];
      to = pool.add(to, pool.scale(update[d], stride));
    }
    const auto read = [&](Index at) {
      put(update, ordered_, b_->index_of(b_->load(numbers, at), {0, run.steps - 1}));
      Reader reader(*b_, g_, k_.buffers);
      return read_update(reader, update);
    };
    if (is_set) {
      b_->store(target_.buffer, to, read(here));
    } else {
      const LocalId sum = b_->local(g_.dtype(target_.node));
      b_->assign(sum, b_->load(target_.buffer, to));
      const ValueId count = length_of_run(keys, first, run, key);
      const Index k = b_->axis(b_->begin_limited("k", run.steps, count));
      const Index at =
          b_->index_of(b_->op(ScalarOp::add, b_->index_value(run.at), b_->index_value(k)), {0, run.steps - 1});
      const ValueId value = read(pool.add(first, at));
      b_->assign(sum, combined(b_->get(sum), value));
      b_->end();
      b_->store(target_.buffer, to, b_->get(sum));
    }
    b_->end();
  }

  /// By bisection of what is left of the row, as i64.
  ValueId length_of_run(BufferId keys, Index first, const Run& run, ValueId key) {
    const ValueId begin = b_->index_value(run.at);
    const LocalId low = b_->local(DType::i64), high = b_->local(DType::i64);
    b_->assign(low, begin);
    b_->assign(high, i64_constant(run.steps));
    b_->begin_for("step", std::bit_width(static_cast<std::uint64_t>(run.steps)), LoopKind::serial);
    const ValueId from = b_->get(low), to = b_->get(high), is_open = b_->op(ScalarOp::lt, from, to);
    const ValueId middle = b_->op(ScalarOp::shr_logical, b_->op(ScalarOp::add, from, to), i64_constant(1));
    const Index at = b_->index_of(b_->op(ScalarOp::min, middle, i64_constant(run.steps - 1)), {0, run.steps - 1});
    const ValueId is_equal = b_->op(ScalarOp::eq, b_->load(keys, b_->indices().add(first, at)), key);
    const ValueId rises = b_->op(ScalarOp::and_, is_open, is_equal);
    const ValueId falls = b_->op(ScalarOp::and_, is_open, b_->op(ScalarOp::not_, is_equal));
    b_->assign(low, b_->op(ScalarOp::select, rises, b_->op(ScalarOp::add, middle, i64_constant(1)), from));
    b_->assign(high, b_->op(ScalarOp::select, falls, middle, to));
    b_->end();
    return b_->op(ScalarOp::sub, b_->get(low), begin);
  }

  ValueId i64_constant(std::int64_t v) const { return b_->constant(DType::i64, static_cast<std::uint64_t>(v)); }

  KernelBuilder& k_;
  const Group& g_;
  Target target_;
  const low::Scatter& scatter_;
  const std::vector<int>& operands_;
  const Shape& dims_;
  const Shape& update_dims_;
  Dims window_dims_;      // operand dims, in order; entry w belongs to update_window_dims[w]
  Dims free_, ordered_;   // dims of the updates
  Dims batch_, lanes_;    // of the free ones, on a GPU: those that indices have too, and those of windows
  PhaseBuilder* b_ = nullptr;
};

}  // namespace

void scatter_template(KernelBuilder& k, Target target, bool is_in_place) {
  if (!is_in_place) map_template(k, {{k.group().nodes[target.node].operands[0], target.buffer}});
  ScatterTemplate(k, target).emit();
}

}  // namespace sheaf::kir
