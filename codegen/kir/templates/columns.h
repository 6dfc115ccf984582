// Totals of columns whose rows pass one by one: a row of totals for each lane of the order of reductions
// (docs/numerics.md), in temporaries, which a phase of its own combines in the end.
#pragma once

#include <algorithm>
#include <functional>
#include <vector>

#include "codegen/kir/reader.h"
#include "codegen/kir/reduction.h"

namespace sheaf::kir {

class ColumnTotals {
 public:
  /// Of `reductions`, nodes of the group over all rows of an array of `rows` times `length` elements. `temporary` makes
  /// a parameter of the kernel.
  ColumnTotals(const Group& group, std::vector<int> reductions, std::int64_t rows, std::int64_t length,
               const std::function<BufferId(DType, std::int64_t count)>& temporary);

  /// Of each leaf, its lanes: rows slot_row(slot, 0), slot_row(slot, 1), ... as far as there are any.
  std::int64_t slots() const { return leaves_ * lanes_; }
  std::int64_t rows_of_slot() const { return (std::min(rows_, kLeaf) + kLanes - 1) / kLanes; }
  Index slot_row(IndexPool& pool, Index slot, Index step) const;
  /// Every slot has the same number of rows.
  bool are_even() const { return rows_ < kLanes || rows_ % (leaves_ == 1 ? kLanes : kLeaf) == 0; }

  /// A slot of no rows yet.
  void begin(PhaseBuilder& b, Index slot);
  /// Element c of row `row`, which is one of the slot: a value for each of the reductions' operands. `has_before`:
  /// where it is false, the row is the slot's first, and no matter what is there.
  void add(PhaseBuilder& b, Index slot, Index row, Index c, const std::vector<ValueId>& values,
           ValueId has_before = -1) const;
  /// The same of any row, where the rows of each slot come in their order.
  void add_row(PhaseBuilder& b, Index row, Index c, const std::vector<ValueId>& values) const;

  /// The phase that ends them: its units, and its body, in which `results` has each column's totals, one for each of
  /// the reductions.
  using Results = std::function<void(Index c, const std::vector<ValueId>& totals)>;
  std::int64_t units() const { return (length_ + width() - 1) / width(); }
  void finish(PhaseBuilder& b, const Results& results) const;

 private:
  static constexpr std::int64_t kWidth = 256;  // columns of a unit

  std::int64_t width() const { return std::min(length_, kWidth); }
  Index at(IndexPool& pool, Index slot, Index c) const { return pool.add(pool.scale(slot, length_), c); }
  void combine(PhaseBuilder& b, Index first, const ColumnRun& columns, const Results& results) const;

  const Group& group_;
  std::vector<int> nodes_;
  std::int64_t rows_, length_;
  std::int64_t lanes_, leaves_;
  Reduction reduction_;  // of all nodes together
  std::vector<BufferId> totals_;  // of [leaves x lanes, length]
};

}  // namespace sheaf::kir
