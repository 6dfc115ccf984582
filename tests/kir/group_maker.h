// Fusion groups made by hand, for tests of templates and emitters.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "codegen/kir/reader.h"
#include "codegen/kir/reduction.h"
#include "ir/ops/attrs.h"
#include "ir/scalar.h"

namespace sheaf::kir {

class GroupMaker {
 public:
  Group group;

  int input(DType t, Shape dims) {
    group.num_inputs = static_cast<int>(group.nodes.size()) + 1;
    return push(std::nullopt, {}, ir::Type(t, std::move(dims)));
  }
  int node(ir::Lowering lowering, std::vector<int> operands, DType t, Shape dims) {
    return push(std::move(lowering), std::move(operands), ir::Type(t, std::move(dims)));
  }
  int map(const ir::ScalarFn& fn, std::vector<int> operands, const Shape& dims) {
    return node(ir::lowering::Map{fn}, std::move(operands), fn.result_dtype(), dims);
  }
  int map(ir::ScalarOp op, std::vector<int> operands, const Shape& dims) {
    const DType t = group.dtype(operands[0]);
    return map(ir::scalar_primitive(op, t), std::move(operands), dims);
  }
  int reduce(ir::ReduceKind kind, int operand, std::vector<std::int64_t> over) {
    const Shape& dims = group.dims(operand);
    Shape kept;
    for (std::size_t d = 0; d < dims.size(); ++d) {
      if (std::find(over.begin(), over.end(), static_cast<std::int64_t>(d)) == over.end()) kept.push_back(dims[d]);
    }
    return node(ir::lowering::Reduce{kind, over}, {operand}, group.dtype(operand), kept);
  }
  /// Puts operand dim d at result dim to[d].
  int broadcast(int operand, const std::vector<int>& to, const Shape& dims) {
    const std::size_t rank = group.dims(operand).size();
    return node(ir::lowering::View{to, std::vector<std::int64_t>(rank, 1), std::vector<std::int64_t>(rank, 0)},
                {operand}, group.dtype(operand), dims);
  }

 private:
  int push(std::optional<ir::Lowering> lowering, std::vector<int> operands, ir::Type type) {
    const int id = static_cast<int>(group.nodes.size());
    group.nodes.push_back({std::move(lowering), std::move(operands), type, 0, id});
    return id;
  }
};

/// A plan that fits a group: by its nests, the row template where all reductions run over the same last dims.
inline ir::ops::Kernel plan_for(const Group& g) {
  ir::ops::Kernel plan{.name = "test", .schedule = ir::Schedule::map};
  std::vector<std::pair<Shape, std::vector<std::int64_t>>> reductions;
  for (int n = g.num_inputs; n < std::ssize(g.nodes); ++n) {
    if (is_inlinable(g, n)) continue;
    if (g.as<ir::lowering::Sort>(n)) plan.schedule = ir::Schedule::sort;
    if (g.as<ir::lowering::Scatter>(n)) plan.schedule = ir::Schedule::scatter;
    if (g.as<ir::lowering::Reduce>(n) || g.as<ir::lowering::ArgReduce>(n))
      reductions.emplace_back(g.dims(g.nodes[n].operands[0]), reduced_dims_of(g, n));
  }
  if (reductions.empty()) return plan;
  bool is_row = true;
  for (const auto& [dims, over] : reductions) {
    is_row &=
        dims == reductions[0].first && over == reductions[0].second && reduced_count(dims, over) <= ir::kLongestRow;
    for (std::int64_t i = 0; i < std::ssize(over); ++i) is_row &= over[i] == std::ssize(dims) - std::ssize(over) + i;
  }
  plan.schedule = is_row ? ir::Schedule::row : ir::Schedule::reduce;
  return plan;
}

/// exp(x - max) / sum of it, along the last dim.
inline Group softmax(const Shape& dims, DType t) {
  GroupMaker m;
  const int x = m.input(t, dims);
  const int last = static_cast<int>(dims.size()) - 1;
  std::vector<int> kept;
  for (int d = 0; d < last; ++d) kept.push_back(d);
  const int max = m.broadcast(m.reduce(ir::ReduceKind::max, x, {last}), kept, dims);
  const int e = m.map(*ir::scalar_function("exp", t), {m.map(ir::ScalarOp::sub, {x, max}, dims)}, dims);
  const int sum = m.broadcast(m.reduce(ir::ReduceKind::sum, e, {last}), kept, dims);
  m.group.results = {m.map(ir::ScalarOp::div, {e, sum}, dims)};
  return m.group;
}

}  // namespace sheaf::kir
