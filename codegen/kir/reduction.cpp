// Identities and combiners per kind and dtype, and the leaf and tree loops. Every template that reduces goes through
// here or repeats the same order with its lanes in scratch.
#include "codegen/kir/reduction.h"

#include <algorithm>
#include <limits>

#include "ir/check.h"

namespace sheaf::kir {
namespace {

using ir::ReduceKind;
using ir::ScalarBuilder;
using ir::ScalarOp;

/// The value that max (or min) never prefers: -inf, the lowest integer, false.
std::uint64_t extreme_bits(DType t, bool is_lowest) {
  if (is_float(t)) {
    return ir::to_bits(t,
                       is_lowest ? -std::numeric_limits<double>::infinity() : std::numeric_limits<double>::infinity());
  }
  if (is_bool(t)) return is_lowest ? 0 : 1;
  const int bits = size_bytes(t) * 8;
  const std::uint64_t all = bits == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << bits) - 1;
  if (is_unsigned_int(t)) return is_lowest ? 0 : all;
  return is_lowest ? std::uint64_t{1} << (bits - 1) : all >> 1;
}

Reduction one_part(ScalarOp op, DType t, std::uint64_t identity) {
  return {{t}, {identity}, {ir::scalar_primitive(op, t)}};
}

}  // namespace

void store_state(PhaseBuilder& b, const std::vector<BufferId>& buffers, Index at, const State& state) {
  for (std::size_t p = 0; p < state.size(); ++p) b.store(buffers[p], at, state[p]);
}

State load_state(PhaseBuilder& b, const std::vector<BufferId>& buffers, Index at) {
  State state;
  for (BufferId buffer : buffers) state.push_back(b.load(buffer, at));
  return state;
}

State Reduction::identity(PhaseBuilder& b) const {
  State state;
  for (std::size_t p = 0; p < parts.size(); ++p) state.push_back(b.constant(parts[p], identity_bits[p]));
  return state;
}

State Reduction::combine(PhaseBuilder& b, const State& left, const State& right) const {
  State args = left, result;
  args.insert(args.end(), right.begin(), right.end());
  for (const ir::ScalarFn& fn : combine_fns) result.push_back(b.call(fn, args));
  return result;
}

Reduction make_reduction(ReduceKind kind, DType dtype) {
  const DType t = accumulator(dtype);
  const std::uint64_t all_ones = extreme_bits(t, true) | extreme_bits(t, false);
  switch (kind) {
    case ReduceKind::sum: return one_part(is_bool(t) ? ScalarOp::or_ : ScalarOp::add, t, 0);
    case ReduceKind::prod: return one_part(is_bool(t) ? ScalarOp::and_ : ScalarOp::mul, t, ir::to_bits(t, 1));
    case ReduceKind::max: return one_part(is_bool(t) ? ScalarOp::or_ : ScalarOp::max, t, extreme_bits(t, true));
    case ReduceKind::min: return one_part(is_bool(t) ? ScalarOp::and_ : ScalarOp::min, t, extreme_bits(t, false));
    case ReduceKind::and_: return one_part(ScalarOp::and_, t, all_ones);
    case ReduceKind::or_: return one_part(ScalarOp::or_, t, 0);
  }
  SHEAF_CHECK(false);
  return {};
}

Reduction make_arg_reduction(bool is_max, DType dtype, std::int64_t count) {
  const DType value = is_bool(dtype) ? DType::i32 : accumulator(dtype);
  const DType index = count <= INT32_MAX ? DType::i32 : DType::i64;
  ScalarBuilder b[2];
  Reduction r{{value, index}, {extreme_bits(value, is_max), extreme_bits(index, false)}, {}};
  for (int part = 0; part < 2; ++part) {
    ScalarBuilder& s = b[part];
    const auto x = s.arg(0, value), i = s.arg(1, index), y = s.arg(2, value), j = s.arg(3, index);
    const auto is_better = s.emit(is_max ? ScalarOp::gt : ScalarOp::lt, y, x);
    auto is_right = is_better;
    auto is_tie = s.emit(ScalarOp::eq, x, y);
    if (is_float(value)) {
      const auto x_nan = s.emit(ScalarOp::ne, x, x), y_nan = s.emit(ScalarOp::ne, y, y);
      is_right = s.emit(ScalarOp::or_, is_better, s.emit(ScalarOp::and_, y_nan, s.emit(ScalarOp::not_, x_nan)));
      is_tie = s.emit(ScalarOp::or_, is_tie, s.emit(ScalarOp::and_, x_nan, y_nan));
    }
    is_right = s.emit(ScalarOp::or_, is_right, s.emit(ScalarOp::and_, is_tie, s.emit(ScalarOp::lt, j, i)));
    r.combine_fns.push_back(
        s.finish(part == 0 ? s.emit(ScalarOp::select, is_right, y, x) : s.emit(ScalarOp::select, is_right, j, i)));
  }
  return r;
}

Reduction reduction_of(const Group& group, int node) {
  const int from = group.nodes[node].operands[0];
  if (const auto* reduce = group.as<ir::lowering::Reduce>(node)) return make_reduction(reduce->kind, group.dtype(from));
  const auto* arg = group.as<ir::lowering::ArgReduce>(node);
  return make_arg_reduction(arg->is_max, group.dtype(from), group.dims(from)[arg->dim]);
}

Reduction together(const std::vector<Reduction>& reductions) {
  Reduction all;
  for (const Reduction& r : reductions) {
    all.parts.insert(all.parts.end(), r.parts.begin(), r.parts.end());
    all.identity_bits.insert(all.identity_bits.end(), r.identity_bits.begin(), r.identity_bits.end());
  }
  std::vector<DType> args = all.parts;
  args.insert(args.end(), all.parts.begin(), all.parts.end());
  int first = 0;
  for (const Reduction& r : reductions) {
    const auto count = static_cast<int>(r.parts.size()), total = static_cast<int>(all.parts.size());
    for (ir::ScalarFn fn : r.combine_fns) {
      fn.args = args;
      for (ir::ScalarNode& n : fn.nodes)
        if (n.op == ScalarOp::arg) n.index += n.index < count ? first : first + total - count;
      all.combine_fns.push_back(std::move(fn));
    }
    first += count;
  }
  return all;
}

std::vector<std::int64_t> reduced_dims_of(const Group& group, int node) {
  if (const auto* reduce = group.as<ir::lowering::Reduce>(node)) return reduce->dims;
  return {group.as<ir::lowering::ArgReduce>(node)->dim};
}

std::int64_t reduced_count(const Shape& dims, const std::vector<std::int64_t>& reduced) {
  std::int64_t count = 1;
  for (std::int64_t d : reduced) count *= dims[d];
  return count;
}

ReducedDims::ReducedDims(const Shape& dims, const std::vector<std::int64_t>& reduced_dims)
    : is_reduced(dims.size(), false) {
  for (std::int64_t d : reduced_dims) is_reduced[d] = true;
  for (std::size_t d = 0; d < dims.size(); ++d) {
    (is_reduced[d] ? reduced : kept).push_back(dims[d]);
    (is_reduced[d] ? reduced_count : kept_count) *= dims[d];
  }
}

std::vector<Index> ReducedDims::position(const std::vector<Index>& kept_at,
                                         const std::vector<Index>& reduced_at) const {
  std::vector<Index> at;
  std::size_t k = 0, r = 0;
  for (bool reduces : is_reduced) at.push_back(reduces ? reduced_at[r++] : kept_at[k++]);
  return at;
}

namespace {

/// The 64 lanes of one leaf.
class Leaf {
 public:
  Leaf(PhaseBuilder& b, const Reduction& reduction) : b_(b), reduction_(reduction) {
    for (DType part : reduction.parts) lanes_.push_back(b.local(part, kLanes));
    b.begin_for("l", kLanes, LoopKind::vector, kLanes);
    assign(reduction.identity(b));
    b.end();
  }

  /// Elements [base, base + count), of which the first is lane 0's.
  void add(Index base, std::int64_t count, const ElementFn& element) {
    IndexPool& pool = b_.indices();
    if (const std::int64_t rows = count / kLanes; rows > 0) {
      const Index row = b_.axis(b_.begin_for("r", rows, LoopKind::serial));
      add_row(pool.add(base, pool.scale(row, kLanes)), kLanes, element);
      b_.end();
    }
    if (const std::int64_t rest = count % kLanes; rest > 0) add_row(pool.add(base, count - rest), rest, element);
  }

  State total() { return b_.lane_reduce(lanes_, reduction_.combine_fns); }

 private:
  void add_row(Index first, std::int64_t extent, const ElementFn& element) {
    const Index l = b_.axis(b_.begin_for("l", extent, LoopKind::vector, kLanes));
    const State right = element(b_.indices().add(first, l));
    State left;
    for (LocalId lane : lanes_) left.push_back(b_.get(lane));
    assign(reduction_.combine(b_, left, right));
    b_.end();
  }
  void assign(const State& state) {
    for (std::size_t p = 0; p < lanes_.size(); ++p) b_.assign(lanes_[p], state[p]);
  }

  PhaseBuilder& b_;
  const Reduction& reduction_;
  std::vector<LocalId> lanes_;
};

/// The stage's buffers for a state of these parts.
std::vector<BufferId> buffers_of(PhaseBuilder& b, Stage& stage, const std::vector<DType>& parts) {
  std::vector<BufferId> found;
  for (DType part : parts) {
    auto it = std::find_if(stage.buffers.begin(), stage.buffers.end(), [&](const auto& buffer) {
      return buffer.first == part && std::find(found.begin(), found.end(), buffer.second) == found.end();
    });
    if (it == stage.buffers.end()) it = stage.buffers.insert(it, {part, b.scratch(part, stage.elements)});
    found.push_back(it->second);
  }
  return found;
}

void add_staged(PhaseBuilder& b, const Reduction& reduction, Leaf& leaf, Index base, std::int64_t count,
                const ElementFn& element, Stage& stage) {
  IndexPool& pool = b.indices();
  const std::vector<BufferId> buffers = buffers_of(b, stage, reduction.parts);
  const auto add = [&](Index first, std::int64_t extent) {
    const Index e = b.axis(b.begin_for("e", extent, LoopKind::vector));
    store_state(b, buffers, e, element(pool.add(first, e)));
    b.end();
    leaf.add(pool.constant(0), extent, [&](Index at) { return load_state(b, buffers, at); });
  };
  if (const std::int64_t times = count / stage.elements; times > 0) {
    const Index s = b.axis(b.begin_for("s", times, LoopKind::serial));
    add(pool.add(base, pool.scale(s, stage.elements)), stage.elements);
    b.end();
  }
  if (const std::int64_t rest = count % stage.elements; rest > 0) add(pool.add(base, count - rest), rest);
}

}  // namespace

State reduce_leaf(PhaseBuilder& b, const Reduction& reduction, Index base, std::int64_t count, const ElementFn& element,
                  Stage* stage) {
  Leaf leaf(b, reduction);
  if (stage) {
    add_staged(b, reduction, leaf, base, count, element, *stage);
  } else {
    leaf.add(base, count, element);
  }
  return leaf.total();
}

State combine_leaves(PhaseBuilder& b, const Reduction& reduction, const std::vector<BufferId>& buffers, Index base,
                     std::int64_t count) {
  IndexPool& pool = b.indices();
  for (; count > 1; count = (count + 1) / 2) {
    const Index j = b.axis(b.begin_for("j", count / 2, LoopKind::serial));
    const Index left = pool.add(base, pool.scale(j, 2));
    const State combined =
        reduction.combine(b, load_state(b, buffers, left), load_state(b, buffers, pool.add(left, 1)));
    store_state(b, buffers, pool.add(base, j), combined);
    b.end();
    if (count % 2)
      store_state(b, buffers, pool.add(base, count / 2), load_state(b, buffers, pool.add(base, count - 1)));
  }
  return load_state(b, buffers, base);
}

void for_each_column(PhaseBuilder& b, const ColumnRun& columns, const std::function<void(Index)>& body) {
  const Rest all{.extent = columns.width};
  body(b.axis(b.begin_part("c", columns.width, LoopKind::vector, columns.rest.value_or(all))));
  b.end();
}

namespace {

/// Row `to` of each column becomes the combination of rows `left` and `right`.
void combine_rows(PhaseBuilder& b, const Reduction& reduction, const std::vector<BufferId>& buffers,
                  const ColumnRun& columns, const RowAt& at, Index to, Index left, Index right) {
  for_each_column(b, columns, [&](Index c) {
    const State combined =
        reduction.combine(b, load_state(b, buffers, at(left, c)), load_state(b, buffers, at(right, c)));
    store_state(b, buffers, at(to, c), combined);
  });
}

}  // namespace

// Lanes past `count` would hold the identity, and combining with it changes nothing.
void combine_lane_rows(PhaseBuilder& b, const Reduction& reduction, const std::vector<BufferId>& buffers,
                       const ColumnRun& columns, std::int64_t count, const RowAt& at) {
  for (std::int64_t half = kLanes / 2; half >= 1; half /= 2) {
    const std::int64_t rows = std::min(half, count - half);
    if (rows <= 0) continue;
    const Index l = b.axis(b.begin_for("l", rows, LoopKind::serial));
    combine_rows(b, reduction, buffers, columns, at, l, l, b.indices().add(l, half));
    b.end();
  }
}

void combine_leaf_rows(PhaseBuilder& b, const Reduction& reduction, const std::vector<BufferId>& buffers,
                       const ColumnRun& columns, std::int64_t count, const RowAt& at) {
  IndexPool& pool = b.indices();
  for (; count > 1; count = (count + 1) / 2) {
    const Index j = b.axis(b.begin_for("j", count / 2, LoopKind::serial)), left = pool.scale(j, 2);
    combine_rows(b, reduction, buffers, columns, at, j, left, pool.add(left, 1));
    b.end();
    if (count % 2 == 0) continue;
    for_each_column(b, columns, [&](Index c) {
      const Index last = pool.constant(count - 1), to = pool.constant(count / 2);
      store_state(b, buffers, at(to, c), load_state(b, buffers, at(last, c)));
    });
  }
}

State reduce_row(PhaseBuilder& b, const Reduction& reduction, std::int64_t count, const ElementFn& element,
                 Stage* stage) {
  IndexPool& pool = b.indices();
  const std::int64_t leaves = count_leaves(count), whole = count / kLeaf;
  if (leaves == 1) return reduce_leaf(b, reduction, pool.constant(0), count, element, stage);
  std::vector<BufferId> totals;
  for (DType part : reduction.parts) totals.push_back(b.scratch(part, leaves));
  const Index leaf = b.axis(b.begin_for("leaf", whole, LoopKind::serial));
  store_state(b, totals, leaf, reduce_leaf(b, reduction, pool.scale(leaf, kLeaf), kLeaf, element, stage));
  b.end();
  if (whole < leaves) {
    const Index base = pool.constant(whole * kLeaf);
    store_state(b, totals, pool.constant(whole),
                reduce_leaf(b, reduction, base, count - whole * kLeaf, element, stage));
  }
  return combine_leaves(b, reduction, totals, pool.constant(0), leaves);
}

}  // namespace sheaf::kir
