// Contractions of halves, and of f32 that may be rounded to TF32, on tensor cores, by mma.sync (sm_80 and later) or, of
// halves, wgmma (sm_90a): a block computes a tile of the result, both operands pass through shared memory some terms at
// a time, a few stages ahead of the products. Invariant: tile and splits are functions of the contraction and the
// target alone, so a program gives the same bits in every run.
#pragma once

#include <span>
#include <string>

#include "codegen/cuda/emit.h"

namespace sheaf::codegen {

/// What a block computes: [rows, columns], `terms` at a time, of which each warp has its own part.
struct MmaTile {
  int rows = 128, columns = 128, terms = 32;
  int warp_rows = 64, warp_columns = 32;
  int stages = 4;  // in shared memory at once
  double speed = 1;  // of the products, relative to the others
  bool is_wgmma = false;  // four warps multiply together, out of shared memory; each keeps 16 rows
  int halves = 1;  // that an operand's element is as wide as: 2 for f32

  int threads() const { return rows / warp_rows * (columns / warp_columns) * 32; }
  // In shared memory, which is counted in halves.
  int lhs_halves() const { return rows * terms * halves; }
  int stage_halves() const { return (rows + columns) * terms * halves; }
};
/// Of operands of that dtype.
std::span<const MmaTile> mma_tiles(DType dtype = DType::bf16);

struct MmaPlan {
  kir::Contract contract;  // dims merged, operands exchanged if `is_swapped`
  bool is_swapped = false;
  MmaTile tile = {};
  /// So many blocks share the terms of an element, `split_terms` (a multiple of the tile's) each. Their sums are added
  /// in order by a second launch.
  int splits = 1;
  std::int64_t split_terms = 0;
  bool has_copies = false;  // of what prologues read: stages have room for them

  void split(int into);
};

/// True for what plan_mma has a plan for.
bool has_mma(const kir::Contract& contract, const Target& target);
MmaPlan plan_mma(const kir::Kernel& kernel, const Target& target);
void emit_mma(const kir::Kernel& kernel, const MmaPlan& plan, const std::string& symbol, CudaText& out);

}  // namespace sheaf::codegen
