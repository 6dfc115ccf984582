// Attention's operands cut into blocks of queries (rows) and of keys (columns). Invariant: the queries of all heads
// that meet the same key head are rows of one matrix, so that every product is a plain one, [C.., R, F] by [C..,
// columns, F], C being the batch dims and the key heads; everything is in the dtype that accumulates.
#pragma once

#include "ir/ops/attention.h"

namespace sheaf::ir::ops {

struct AttentionGrid {
  std::int64_t rows, row_blocks, columns, column_blocks;

  static AttentionGrid whole(const AttentionSizes& n) { return {n.queries, 1, n.keys, 1}; }
  /// By the numbers of queries and keys alone, so that no sum depends on the batch or the heads beside it.
  static AttentionGrid of(const Eqn& e);
};

/// A place in the grid: i32[1] each; null: the only one.
struct AttentionPlace {
  Value row, column;
};

class BlockedAttention {
 public:
  BlockedAttention(const Eqn& e, const Values& operands, const AttentionGrid& grid);

  // Stacks count blocks by their first dims: one for rows [.., C.., R, F] and their sums [.., C.., R], one for columns
  // [.., C.., columns, F], two for scores [.., batch.., K, G, rows, columns], each of which is 1 where the bias's is.
  Value stack_rows(Value x) const;
  Value stack_columns(Value x) const;
  Value stack_sums(Value x, double fill) const;
  Value stack_scores(Value x) const;
  Value unstack_rows(Value stack) const;
  Value unstack_columns(Value stack) const;
  Value unstack_sums(Value stack) const;
  Value unstack_scores(Value stack, const Shape& dims) const;

  // The operands as stacks, null where there are none. Queries are scaled; lse is +inf for rows that meet no key, so
  // that their weights exp(score - lse) are zeros.
  Value query() const { return scaled(operands_[0]); }
  Value key() const { return stack_columns(operands_[1]); }
  Value value() const { return stack_columns(operands_[2]); }
  Value bias() const { return stack_scores(operand(roles_.bias)); }
  Value mask() const { return stack_scores(operand(roles_.mask)); }
  Value lse() const;
  Value scaled(Value query) const;
  /// Of the operands that a derivative is linear in, the k-th.
  Value linear(int k) const { return operand(roles_.linear + k); }

  /// The scores of one block of queries and keys, -inf where they do not meet: [C.., R, columns]. bias and mask are
  /// blocks as well, or null.
  Value scores(Value query, Value key, Value bias, Value mask, const AttentionPlace& at) const;
  /// A block of a bias for each row and column, and the adjoint of that.
  Value spread(Value block) const;
  Value gathered(Value scores, const Shape& block) const;
  /// x and y multiplied over dim `of_x` of the last two of x and dim `of_y` of those of y.
  Value product(Value x, int of_x, Value y, int of_y) const;
  /// A sum of each row, beside that row's elements.
  Value beside(Value sums, Value matrix) const;

  /// Blocks in which some query meets some key; no other is read.
  std::vector<std::pair<std::int64_t, std::int64_t>> places() const;
  bool meet_somewhere(std::int64_t row_block, std::int64_t column_block) const;

  /// Of what a query gives: one value, one sum.
  Type rows_type() const { return Type(dtype_, stack_dims(grid_.row_blocks, {stacked_rows(), n_.values})); }
  Type sums_type() const { return Type(dtype_, stack_dims(grid_.row_blocks, {stacked_rows()})); }
  const AttentionGrid& grid() const { return grid_; }

 private:
  Value operand(int k) const { return k < 0 ? Value() : operands_[k]; }
  Value meeting(Builder& b, const AttentionPlace& at) const;
  /// The shape of a stack of `count` blocks [C.., last..].
  Shape stack_dims(std::int64_t count, std::initializer_list<std::int64_t> last) const;
  std::int64_t stacked_rows() const { return n_.group * grid_.rows; }
  Value wide(Value x) const { return convert_to(x, dtype_); }
  int batch() const { return static_cast<int>(n_.batch.size()); }

  Attention a_;
  AttentionRoles roles_;
  const Values& operands_;
  AttentionSizes n_;
  AttentionGrid grid_;
  DType dtype_;
};

/// The block of a stack at a place in its first dims, as many as `at` has entries; where those are 1 it is the only
/// one. Null of null.
Value block_of(Value stack, const Values& at);
/// The stack with another block there.
Value with_block(Value stack, Value block, const Values& at);

}  // namespace sheaf::ir::ops
