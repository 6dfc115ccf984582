// Cutting and joining are reshapes and transpositions around padding: each stack is one pass over its operand.
#include "ir/ops/attention_blocks.h"

#include <algorithm>
#include <limits>

namespace sheaf::ir::ops {
namespace {

constexpr std::int64_t kBlock = 256;        // rows and columns: products of this length run at full speed
constexpr std::int64_t kWindowBlock = 128;  // a window leaves out more blocks of short ones
constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

// In as few blocks of equal length as that allows.
std::pair<std::int64_t, std::int64_t> cut(std::int64_t length, std::int64_t most) {
  const std::int64_t blocks = std::max<std::int64_t>(ceil_div(length, most), 1);
  return {ceil_div(length, blocks), blocks};
}

Shape joined(const Shape& a, std::initializer_list<std::int64_t> b) { return concat(a, DimList(b)); }

// x with these dims, and those in the order of perm. Dims of 1 take no part in it, so that without any to cut or join a
// product can read the result where x lies.
Value rearranged(Value x, const Shape& dims, const DimList& perm) {
  const auto without_ones = [&](const DimList& list) {
    DimList places;
    for (const std::int64_t d : list)
      if (dims[d] != 1) places.push_back(d);
    return places;
  };
  const DimList places = without_ones(dim_range(0, static_cast<int>(dims.size())));
  Shape some, all;
  DimList order;
  for (const std::int64_t d : places) some.push_back(dims[d]);
  for (const std::int64_t d : without_ones(perm))
    order.push_back(std::find(places.begin(), places.end(), d) - places.begin());
  for (const std::int64_t d : perm) all.push_back(dims[d]);
  return reshape_to(permute(reshape_to(x, some), order), all);
}

// The given dims to the front, the others after them in order.
Value to_front(Value x, const DimList& dims) { return permute(x, concat(dims, other_dims(dims, x.rank()))); }
Value from_front(Value x, const DimList& dims) { return permute(x, inverse(concat(dims, other_dims(dims, x.rank())))); }

Value first(Value x, int dim, std::int64_t count) { return slice_dim(x, dim, 0, count); }

Value up_to(Value x, int dim, std::int64_t length, double fill) {
  return pad_dim(x, dim, 0, length - x.dims()[dim], fill);
}

// The i32[m] start of a block in the m dims of a stack that have more than one, which `dims` then names.
Value start_of(Value stack, const Values& at, DimList& dims) {
  Values starts;
  for (std::size_t d = 0; d < at.size(); ++d) {
    if (stack.dims()[d] == 1 || !at[d]) continue;
    dims.push_back(static_cast<std::int64_t>(d));
    starts.push_back(at[d]);
  }
  if (starts.size() < 2) return starts.empty() ? Value() : starts[0];
  return stack.builder().emit(concatenate, starts, Concatenate{.dim = {0}});
}

}  // namespace

AttentionGrid AttentionGrid::of(const Eqn& e) {
  const AttentionSizes n(e);
  const Attention& a = e.attrs<Attention>();
  const std::int64_t most = a.before >= 0 || a.after >= 0 ? kWindowBlock : kBlock;
  AttentionGrid grid{};
  std::tie(grid.rows, grid.row_blocks) = cut(n.queries, most);
  std::tie(grid.columns, grid.column_blocks) = cut(n.keys, most);
  return grid;
}

BlockedAttention::BlockedAttention(const Eqn& e, const Values& operands, const AttentionGrid& grid)
    : a_(with_near_window(e)),
      roles_(a_),
      operands_(operands),
      n_(e),
      grid_(grid),
      dtype_(accumulator(e.in(0).dtype())) {}

Shape BlockedAttention::stack_dims(std::int64_t count, std::initializer_list<std::int64_t> last) const {
  return concat(concat({count}, n_.batch), joined({n_.key_heads}, last));
}

// [batch.., T, N, F] -> [row blocks, batch.., K, G rows, F]
Value BlockedAttention::stack_rows(Value x) const {
  const int nb = batch();
  const std::int64_t features = x.dims().back();
  x = up_to(wide(x), nb, grid_.rows * grid_.row_blocks, 0);
  const Shape cut = joined(n_.batch, {grid_.row_blocks, grid_.rows, n_.key_heads, n_.group, features});
  DimList perm = concat({nb}, dim_range(0, nb));
  perm.insert(perm.end(), {nb + 2, nb + 3, nb + 1, nb + 4});
  return reshape_to(rearranged(x, cut, perm), stack_dims(grid_.row_blocks, {stacked_rows(), features}));
}

Value BlockedAttention::unstack_rows(Value x) const {
  const int nb = batch();
  const std::int64_t features = x.dims().back();
  const Shape cut = stack_dims(grid_.row_blocks, {n_.group, grid_.rows, features});
  DimList perm = dim_range(1, nb);
  perm.insert(perm.end(), {0, nb + 3, nb + 1, nb + 2, nb + 4});
  x = reshape_to(rearranged(x, cut, perm), joined(n_.batch, {grid_.rows * grid_.row_blocks, n_.heads(), features}));
  return first(x, nb, n_.queries);
}

// [batch.., S, K, F] -> [column blocks, batch.., K, columns, F]
Value BlockedAttention::stack_columns(Value x) const {
  const int nb = batch();
  const std::int64_t features = x.dims().back();
  x = up_to(wide(x), nb, grid_.columns * grid_.column_blocks, 0);
  const Shape cut = joined(n_.batch, {grid_.column_blocks, grid_.columns, n_.key_heads, features});
  DimList perm = concat({nb}, dim_range(0, nb));
  perm.insert(perm.end(), {nb + 2, nb + 1, nb + 3});
  return rearranged(x, cut, perm);
}

Value BlockedAttention::unstack_columns(Value x) const {
  const int nb = batch();
  const std::int64_t features = x.dims().back();
  DimList perm = dim_range(1, nb);
  perm.insert(perm.end(), {0, nb + 2, nb + 1, nb + 3});
  x = reshape_to(rearranged(x, x.dims(), perm),
                 joined(n_.batch, {grid_.columns * grid_.column_blocks, n_.key_heads, features}));
  return first(x, nb, n_.keys);
}

// [batch.., N, T] -> [row blocks, batch.., K, G rows]
Value BlockedAttention::stack_sums(Value x, double fill) const {
  const int nb = batch();
  x = up_to(wide(x), nb + 1, grid_.rows * grid_.row_blocks, fill);
  x = reshape_to(x, joined(n_.batch, {n_.key_heads, n_.group, grid_.row_blocks, grid_.rows}));
  return reshape_to(to_front(x, {nb + 2}), stack_dims(grid_.row_blocks, {stacked_rows()}));
}

Value BlockedAttention::unstack_sums(Value x) const {
  const int nb = batch();
  x = from_front(reshape_to(x, stack_dims(grid_.row_blocks, {n_.group, grid_.rows})), {nb + 2});
  x = reshape_to(x, joined(n_.batch, {n_.heads(), grid_.rows * grid_.row_blocks}));
  return first(x, nb + 1, n_.queries);
}

// [batch.., N, T, S] -> [row blocks, column blocks, batch.., K, G, rows, columns]
Value BlockedAttention::stack_scores(Value x) const {
  if (!x) return x;
  const int nb = batch();
  if (!is_bool(x.dtype())) x = wide(x);
  const bool has_heads = x.dims()[nb] == n_.heads(), has_rows = x.dims()[nb + 1] == n_.queries,
             has_columns = x.dims()[nb + 2] == n_.keys;
  if (has_rows) x = up_to(x, nb + 1, grid_.rows * grid_.row_blocks, 0);
  if (has_columns) x = up_to(x, nb + 2, grid_.columns * grid_.column_blocks, 0);
  Shape dims(x.dims().begin(), x.dims().begin() + nb);
  const auto cut_dim = [&](bool is_there, std::int64_t outer, std::int64_t inner) {
    dims.insert(dims.end(), {is_there ? outer : 1, is_there ? inner : 1});
  };
  cut_dim(has_heads, n_.key_heads, n_.group);
  cut_dim(has_rows, grid_.row_blocks, grid_.rows);
  cut_dim(has_columns, grid_.column_blocks, grid_.columns);
  return to_front(reshape_to(x, dims), {nb + 2, nb + 4});
}

Value BlockedAttention::unstack_scores(Value x, const Shape& dims) const {
  const int nb = batch();
  x = from_front(x, {nb + 2, nb + 4});
  Shape cut(x.dims().begin(), x.dims().begin() + nb);
  for (int d = nb; d < x.rank(); d += 2) cut.push_back(x.dims()[d] * x.dims()[d + 1]);
  x = reshape_to(x, cut);
  return first(first(x, nb + 1, dims[nb + 1]), nb + 2, dims[nb + 2]);
}

Value BlockedAttention::scaled(Value query) const {
  const Value x = stack_rows(query);
  return a_.scale == 1 ? x : x * a_.scale;
}

Value BlockedAttention::lse() const {
  const Value x = wide(operands_[roles_.lse]);
  Builder& b = x.builder();
  const Value is_none = b.emit(eq, {x, b.constant(dtype_, -kInfinity)});
  return stack_sums(where(is_none, b.full(x.type(), kInfinity), x), kInfinity);
}

// [batch.., K, G, rows, columns], any of them 1 -> [C.., R, columns]
Value BlockedAttention::spread(Value x) const {
  const int nb = batch();
  Shape dims = x.dims();
  if (dims[nb + 1] != n_.group || dims[nb + 2] != grid_.rows) {
    const bool is_one = dims[nb + 1] == 1 && dims[nb + 2] == 1;
    dims[nb + 1] = is_one ? 1 : n_.group;
    dims[nb + 2] = is_one ? 1 : grid_.rows;
    x = broadcast_to(x, dims, dim_range(0, x.rank()));
  }
  dims[nb + 2] *= dims[nb + 1];
  dims.erase(dims.begin() + nb + 1);
  x = reshape_to(x, dims);
  const Shape full = joined(n_.batch, {n_.key_heads, stacked_rows(), grid_.columns});
  return broadcast_to(x, full, dim_range(0, x.rank()));
}

Value BlockedAttention::gathered(Value x, const Shape& block) const {
  x = reshape_to(x, joined(n_.batch, {n_.key_heads, n_.group, grid_.rows, grid_.columns}));
  DimList summed;
  for (int d = 0; d < x.rank(); ++d)
    if (block[d] != x.dims()[d]) summed.push_back(d);
  return reshape_to(reduce_dims(x, ReduceKind::sum, summed), block);
}

Value BlockedAttention::product(Value x, int of_x, Value y, int of_y) const {
  const int c = batch() + 1;
  return x.builder().emit(dot, {x, y},
                          Dot{.lhs = {c + of_x},
                              .rhs = {c + of_y},
                              .lhs_batch = dim_range(0, c),
                              .rhs_batch = dim_range(0, c),
                              .precision = a_.precision});
}

Value BlockedAttention::beside(Value sums, Value matrix) const {
  return broadcast_to(sums, matrix.dims(), dim_range(0, sums.rank()));
}

Value BlockedAttention::scores(Value query, Value key, Value bias, Value mask, const AttentionPlace& at) const {
  Builder& b = query.builder();
  Value x = product(query, 1, key, 1);
  if (bias) x = x + spread(bias);
  Value keep = meeting(b, at);
  if (keep) keep = broadcast_to(keep, x.dims(), dim_range(batch() + 1, 2));
  if (mask) keep = keep ? b.emit(and_, {keep, spread(mask)}) : spread(mask);
  return keep ? where(keep, x, b.full(x.type(), -kInfinity)) : x;
}

// bool[R, columns]; null where all meet. The distance from query to key, against what the place makes of its bounds.
Value BlockedAttention::meeting(Builder& b, const AttentionPlace& at) const {
  const Shape dims{stacked_rows(), grid_.columns};
  const Value t = reshape_to(b.emit(iota, {}, Iota{.shape = {n_.group, grid_.rows}, .dim = {1}, .dtype = DType::i32}),
                             {stacked_rows()});
  const Value s = b.emit(iota, {}, Iota{.shape = {grid_.columns}, .dim = {0}, .dtype = DType::i32});
  const Value row = broadcast_to(t, dims, {0}), column = broadcast_to(s, dims, {1});
  const auto start = [&](Value i, std::int64_t length) {
    return i ? reshape_to(i, {}) * static_cast<double>(length) : b.constant(DType::i32, 0);
  };
  const Value first_row = start(at.row, grid_.rows), first_column = start(at.column, grid_.columns);
  Value keep;
  const auto require = [&](const OpDef& relation, Value x, Value bound) {
    const Value holds = b.emit(relation, {x, broadcast_to(bound, dims, {})});
    keep = keep ? b.emit(and_, {keep, holds}) : holds;
  };
  if (a_.after >= 0) require(le, column - row, first_row - first_column + static_cast<double>(a_.after));
  if (a_.before >= 0) require(ge, column - row, first_row - first_column - static_cast<double>(a_.before));
  if (grid_.columns * grid_.column_blocks > n_.keys) require(lt, column, static_cast<double>(n_.keys) - first_column);
  return keep;
}

bool BlockedAttention::meet_somewhere(std::int64_t row_block, std::int64_t column_block) const {
  const std::int64_t t = row_block * grid_.rows, s = column_block * grid_.columns;
  const std::int64_t last_t = std::min(t + grid_.rows, n_.queries) - 1,
                     last_s = std::min(s + grid_.columns, n_.keys) - 1;
  if (t > last_t || s > last_s) return false;
  return (a_.after < 0 || s - last_t <= a_.after) && (a_.before < 0 || t - last_s <= a_.before);
}

std::vector<std::pair<std::int64_t, std::int64_t>> BlockedAttention::places() const {
  std::vector<std::pair<std::int64_t, std::int64_t>> places;
  for (std::int64_t i = 0; i < grid_.row_blocks; ++i)
    for (std::int64_t j = 0; j < grid_.column_blocks; ++j)
      if (meet_somewhere(i, j)) places.emplace_back(i, j);
  return places;
}

Value block_of(Value stack, const Values& at) {
  if (!stack) return stack;
  DimList dims;
  const Value start = start_of(stack, at, dims);
  const Shape block(stack.dims().begin() + std::ssize(at), stack.dims().end());
  if (!start) return reshape_to(stack, block);
  DynamicSlice attrs{.dims = {}, .sizes = DimList(dims.size(), 1), .batch = {}, .starts_batch = {}, .index_dim = {0}};
  attrs.dims.assign(dims.begin(), dims.end());
  return reshape_to(stack.builder().emit(dynamic_slice, {stack, start}, std::move(attrs)), block);
}

Value with_block(Value stack, Value block, const Values& at) {
  DimList dims;
  const Value start = start_of(stack, at, dims);
  const Shape update = concat(DimList(at.size(), 1), block.dims());
  if (!start) return reshape_to(block, stack.dims());
  DynamicUpdateSlice attrs{.dims = {}, .batch = {}, .starts_batch = {}, .index_dim = {0}};
  attrs.dims.assign(dims.begin(), dims.end());
  return stack.builder().emit(dynamic_update_slice, {stack, reshape_to(block, update), start}, std::move(attrs));
}

}  // namespace sheaf::ir::ops
