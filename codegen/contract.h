// How a contraction runs on a CPU: the path, the register tile, the blocks, and the units that threads share out.
// Invariant: a plan is a function of the contraction and the CPU level only, never of the thread count; and each
// element of the result is one chain of multiply-adds in the order of k whatever the plan, so the bits do not depend on
// it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "codegen/contract_box.h"
#include "codegen/cpu_target.h"
#include "codegen/kir/kir.h"

namespace sheaf::codegen {

/// Where what follows a contraction finds its sums: nothing follows in its units; or it is done to each tile or block
/// of sums before they are stored anywhere; or to each unit's part of the result, which is stored as well.
enum class EpilogueOf : std::uint8_t { none, sums, result };

struct ContractPlan {
  /// The contraction with mergeable dims merged, and lhs and rhs exchanged if `is_swapped`.
  kir::Contract contract;
  bool is_swapped = false;
  std::int64_t batches = 1, rows = 1, columns = 1, terms = 1;

  DType computed = DType::f32;  // what a lane of sums holds: f32, f64, u32, u64, or u8 for bool
  int lanes = 1;  // per register
  /// Where the machine multiplies and adds several narrow terms in a lane at once, a packed lane holds as many of them
  /// side by side, and terms that are not there as zeros: two bf16, two 16-bit integers, or four bytes.
  int lane_terms = 1;
  DType packed = DType::f32;  // what a packed lane holds: a term in `computed`, or the u32 of several
  int tile_rows = 1;  // of the register tile
  int tile_vectors = 1;  // its columns, in registers

  /// Direct: operands are read where they lie, but a right one in panels if it is `shared`. Otherwise blocks of both
  /// are packed first. Direct rows are of one dim; the other dims of m have become batch dims. Blocks of terms are then
  /// `block_terms` elements of the dim of k that follows `blocked_dims`, and whole dims after it; there is one block
  /// for each element of the blocked dims, or the outermost dim is parted where there are none.
  bool is_direct = false;
  /// Streamed: few rows, all of which are packed first, once for all threads, against a right operand that is read
  /// where it lies and once only: some terms of many columns at a time; or, `is_turned`, where columns lie along their
  /// terms, all terms of a vector of columns, turned in registers.
  bool is_streamed = false;
  bool is_turned = false;
  /// Direct: lhs has the columns too, of each term its own; they were the innermost dim of the batch.
  bool has_lhs_columns = false;
  /// Direct: as many positions of a dim that was one of m share a tile, each with its rows, so far apart.
  int tile_groups = 1;
  std::int64_t lhs_group_stride = 0, out_group_stride = 0;
  bool has_columns_first = false;  // units: column blocks outermost, then batch, then row blocks
  std::int64_t block_rows = 1, block_columns = 1;  // of one unit, whole tiles
  std::int64_t row_blocks = 1, column_blocks = 1;
  std::int64_t block_terms = 1, term_blocks = 1;  // of k at a time
  int blocked_dims = 0;
  std::int64_t unit_batches = 1;  // that a unit computes, all for one block of terms after the other
  /// Where columns of what follows are added up, in lanes (docs/numerics.md), a unit has all rows of some lanes of a
  /// leaf, `lane_rows` of each. Direct: its block is of lanes, and it takes a row of each after the other. Packed: rows
  /// are numbered lane by lane, in `contract.m` as well. 0: rows are taken as they lie.
  std::int64_t lane_rows = 0;
  std::int64_t unit_rows = 0;  // from one row block to the next
  /// Operands that phases before the last pack, once for all threads, each into a temporary parameter of its own, the
  /// first of which is the kernel's own last but as many. Where there are none a unit packs what it needs, a block of
  /// terms at a time, into scratch.
  struct SharedPacking {
    bool is_lhs = false;
    std::int64_t bytes = 0;
    bool is_image = false;  // all of the array with zeros around it, as it lies otherwise: the first one, if any
  };
  std::vector<SharedPacking> shared;
  /// Direct: of the array with zeros around it, what a unit copies into scratch and reads there. The unit's batch
  /// elements are the innermost dim of the batch, of which, as of m, k and n, lhs_strides are the box's.
  std::optional<ContractBox> box;
  /// Direct, with columns of lhs: the zeros around it are nowhere. Its strides are those of the padded array.
  bool reads_around = false;
  /// Packed or streamed: sums are collected in a block of their own, because the result's layout or dtype cannot hold
  /// them, or an epilogue is done to them there.
  bool has_sum_block = false;
  EpilogueOf epilogue = EpilogueOf::none;
  std::int64_t sum_stride = 0;  // in scratch, from a row of sums to the next
  std::int64_t lhs_bytes = 0, rhs_bytes = 0, sum_bytes = 0;  // of scratch, in this order, each a multiple of 64

  /// As in Phase. The last phase computes, in units of a block of the result: batch outermost (unless columns are),
  /// then column blocks, then row blocks. Those before it pack `shared`, a block of terms of a block per unit.
  struct Phase {
    std::int64_t units = 1, unit_ps = 1, scratch_bytes = 0;
  };
  std::vector<Phase> phases;

  std::int64_t packed_lanes(std::int64_t count) const { return (count + lane_terms - 1) / lane_terms; }
  /// Bytes are multiplied as unsigned by signed, whatever they are: those of lhs are moved by 128, and a row of the
  /// tile that is 128 everywhere sums what that adds.
  bool has_offset_row() const { return lane_terms == 4 && contract.lhs == contract.rhs; }
  bool has_image() const { return !shared.empty() && shared.front().is_image; }
  bool has_panels() const { return shared.size() > (has_image() ? 1U : 0U); }
  bool is_empty() const { return batches * rows * columns == 0; }
  std::int64_t tile_columns() const { return std::int64_t{tile_vectors} * lanes; }
  bool takes_lanes() const { return is_direct && lane_rows > 0; }
  std::int64_t rows_of_unit() const {
    return takes_lanes() ? block_rows * lane_rows : block_rows < rows ? block_rows : rows;
  }
  /// Columns that an epilogue is done to at once begin at a multiple of this, and end at one or with the last column.
  std::int64_t epilogue_columns() const { return is_turned ? lanes : tile_columns(); }
};

/// The plan has no epilogue where it could not be done unit by unit; it is then a phase of its own. `adds_columns`:
/// what follows adds up columns.
ContractPlan plan_contract(const kir::Contract& contract, const CpuTarget& target,
                           EpilogueOf epilogue = EpilogueOf::none, bool adds_columns = false);
/// With the kernel's epilogue.
ContractPlan plan_contract(const kir::Kernel& kernel, const CpuTarget& target);

/// A phase that writes the parameter `copy` from the parameter `operand` alone. Copies of equal `layout` of the same
/// contents are equal, whatever kernel makes them.
struct PackedOperand {
  int phase = 0, operand = 0, copy = 0;
  std::int64_t bytes = 0;
  std::string layout;
};
std::vector<PackedOperand> packed_operands(const kir::Kernel& kernel, const CpuTarget& target);

}  // namespace sheaf::codegen
