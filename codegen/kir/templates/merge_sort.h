// Sort on a GPU: each thread finds where its element goes in the merge of two runs, by bisection of the other run.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "codegen/kir/templates/template.h"

namespace sheaf::kir {

/// x < y, lexicographically over the keys, in the order of ir::lowering::Sort.
ValueId is_less(PhaseBuilder& b, std::span<const ValueId> x, std::span<const ValueId> y);

/// What is sorted: `rows` times `length` elements of several parts, the first of which are keys.
struct SortedRows {
  std::int64_t rows = 1, length = 1;
  std::size_t num_keys = 1;
  std::vector<DType> parts = {};
  /// Element i of a row, unspecified where `exists` is false.
  std::function<std::vector<ValueId>(PhaseBuilder& b, Index row, Index i, ValueId exists)> read = {};
  /// Takes what is element i of the sorted row.
  std::function<void(PhaseBuilder& b, Index row, Index i, std::span<const ValueId> element, ValueId exists)> store = {};
};

/// A block sorts a chunk of a row in its memory; then pairs of sorted runs merge, a phase for each doubling. Stable.
void merge_sort(KernelBuilder& k, const SortedRows& rows);

}  // namespace sheaf::kir
