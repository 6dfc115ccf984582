// What it costs to compute beside a product what makes its operands or follows its sums, by sizes alone.
#pragma once

#include "ir/op.h"
#include "ir/target.h"

namespace sheaf::passes {

/// How large the contraction e is, as a batch of products of matrices.
struct ProductSize {
  double batch = 1, rows = 1, columns = 1, terms = 1;

  explicit ProductSize(const ir::Eqn& e);
  bool is_empty() const { return batch * rows * columns * terms == 0; }
  bool is_small() const;  // done by our own kernels
};

/// Whether what follows e elementwise is done to its sums. On a CPU that is so of every product but those of one
/// column, whose rows are what lies side by side, and of sliding windows, whose blocks are none of rows and columns. On
/// a GPU it is so where a kernel of our own is as good as the library's with the passes over memory that it saves: of
/// small products always; of large ones only on tensor cores, and only while their terms are few.
bool takes_epilogue(const ir::Eqn& e, const ir::Target& target);

/// Whether the rows of what follows the product e elementwise are added up, or otherwise reduced, where they are made.
/// A CPU does that where all of them are, and are so many that the lanes of the order of sums (docs/numerics.md), which
/// go to memory, are few beside them; where all lanes have as many, so that no two units share one; and where the left
/// operand lies row by row, so that nothing is lost by taking rows lane by lane.
bool adds_columns(const ir::Eqn& e, const ir::Eqn& reduce, const ir::Target& target);

/// What it costs to make `made`, which operand k of the product e is or is a view of, where the product's tiles are
/// filled, again for each tile that reads an element; and what it costs to store it first. Both in bytes that memory
/// could move meanwhile.
///   w: i8[4096, 4096] -> bf16, x [8, 4096] w      16 MiB read once | 16 MiB read, 32 MiB written, 32 MiB read
class PrologueCost {
 public:
  PrologueCost(const ir::Eqn& e, int k, ir::Value made);
  /// Of what `made` is made of: a value in memory, and an equation.
  void reads(ir::Value v);
  void computes(const ir::Eqn& m);
  bool pays() const;

 private:
  double all_reads(double bytes) const;

  double stored_, times_read_ = 1, sources_ = 0, operations_ = 0;
};

}  // namespace sheaf::passes
