// Lanes are rows of the temporaries, so each step along a row is a run in memory, whichever lane it belongs to.
#include "codegen/kir/templates/columns.h"

#include <algorithm>
#include <utility>

namespace sheaf::kir {

namespace low = ir::lowering;

ColumnTotals::ColumnTotals(const Group& group, std::vector<int> reductions, std::int64_t rows, std::int64_t length,
                           const std::function<BufferId(DType, std::int64_t count)>& temporary)
    : group_(group),
      nodes_(std::move(reductions)),
      rows_(rows),
      length_(length),
      lanes_(std::clamp<std::int64_t>(rows, 1, kLanes)),
      leaves_(count_leaves(rows)) {
  std::vector<Reduction> all;
  for (int node : nodes_) all.push_back(reduction_of(group, node));
  reduction_ = together(all);
  for (DType part : reduction_.parts) totals_.push_back(temporary(part, slots() * length));
}

Index ColumnTotals::slot_row(IndexPool& pool, Index slot, Index step) const {
  const Position at = unflatten(pool, slot, {leaves_, lanes_});
  return pool.add(pool.add(pool.scale(at[0], kLeaf), pool.scale(step, kLanes)), at[1]);
}

void ColumnTotals::begin(PhaseBuilder& b, Index slot) {
  for_each_column(b, {length_},
                  [&](Index c) { store_state(b, totals_, at(b.indices(), slot, c), reduction_.identity(b)); });
}

void ColumnTotals::add(PhaseBuilder& b, Index slot, Index row, Index c, const std::vector<ValueId>& values,
                       ValueId has_before) const {
  State right;
  for (std::size_t i = 0, part = 0; i < values.size(); ++i) {
    right.push_back(b.convert(values[i], reduction_.parts[part++]));
    const bool has_index = group_.as<low::ArgReduce>(nodes_[i]) != nullptr;
    if (has_index) right.push_back(b.index_value(row, reduction_.parts[part++]));
  }
  const Index to = at(b.indices(), slot, c);
  const State none = b.is_true(has_before) ? State(right.size(), -1) : reduction_.identity(b);
  State before;
  for (std::size_t p = 0; p < right.size(); ++p) before.push_back(b.load(totals_[p], to, has_before, none[p]));
  store_state(b, totals_, to, reduction_.combine(b, before, right));
}

void ColumnTotals::add_row(PhaseBuilder& b, Index row, Index c, const std::vector<ValueId>& values) const {
  IndexPool& pool = b.indices();
  const Index leaf = pool.floor_div(row, kLeaf), in_leaf = pool.mod(row, kLeaf), lane = pool.mod(in_leaf, kLanes);
  add(b, pool.add(pool.scale(leaf, lanes_), lane), row, c, values, b.in_range(in_leaf, kLanes, kLeaf));
}

void ColumnTotals::finish(PhaseBuilder& b, const Results& results) const {
  const std::int64_t last = units() - 1, rest = length_ - last * width();
  combine(b, b.indices().scale(b.unit(), width()), {width(), Rest{b.in_range(b.unit(), last, last + 1), rest}},
          results);
}

void ColumnTotals::combine(PhaseBuilder& b, Index first, const ColumnRun& columns, const Results& results) const {
  IndexPool& pool = b.indices();
  const auto column = [&](Index c) { return pool.add(first, c); };
  const Index leaf = b.axis(b.begin_for("leaf", leaves_, LoopKind::serial));
  combine_lane_rows(b, reduction_, totals_, columns, lanes_,
                    [&](Index l, Index c) { return at(pool, pool.add(pool.scale(leaf, lanes_), l), column(c)); });
  b.end();
  combine_leaf_rows(b, reduction_, totals_, columns, leaves_,
                    [&](Index j, Index c) { return at(pool, pool.scale(j, lanes_), column(c)); });
  for_each_column(b, columns, [&](Index c) {
    const State total = load_state(b, totals_, column(c));
    std::vector<ValueId> values;
    std::size_t end = 0;
    for (int node : nodes_) {
      end += group_.as<low::ArgReduce>(node) ? 2 : 1;  // an index reduction's result is its index
      values.push_back(b.convert(total[end - 1], group_.dtype(node)));
    }
    results(column(c), values);
  });
}

}  // namespace sheaf::kir
