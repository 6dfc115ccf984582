// Contractions in plain arithmetic, for every dtype: a block computes a tile of the result, its threads a few rows and
// columns each, from operands in shared memory. Invariant: every element is one chain of multiply-adds in the order of
// k, as kir::Contract says, so the bits equal the CPU's; terms are never split.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "codegen/cuda/emit.h"

namespace sheaf::codegen {

/// 16 threads along the columns, `thread_rows` along the rows, each with some groups of `kVector` neighbours either way
/// (two of 8 bytes, four of anything narrower).
struct SimtTile {
  int thread_rows = 16, row_groups = 2, column_groups = 2;
  int terms = 16;  // in shared memory at a time
  int blocks = 1;  // of a multiprocessor, for which registers must do; a compiler left to choose takes more, and spills
  double speed = 1;
};
std::span<const SimtTile> simt_tiles();

struct SimtPlan {
  kir::Contract contract;  // dims merged, operands exchanged if `is_swapped`
  bool is_swapped = false;
  bool has_copies = false;  // the target copies asynchronously
  SimtTile tile = {};
};

SimtPlan plan_simt(const kir::Contract& contract, const Target& target);
void emit_simt(const kir::Kernel& kernel, const SimtPlan& plan, const std::string& symbol, CudaText& out);

}  // namespace sheaf::codegen
