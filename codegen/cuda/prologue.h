// How elements of a contraction's operand that does not lie in memory come to be: a kernel's prologue, whose statements
// stand where a tile is filled. Nothing of the operand is ever stored elsewhere, and it is made again for every tile.
// What it is made of may have been copied into shared memory before, by the thread that makes it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "codegen/kir/kir.h"

namespace sheaf::codegen {

class Prologue {
 public:
  /// Of operand 0 or 1, which has one.
  Prologue(const kir::Kernel& kernel, int operand);

  /// Names of integers. `inner` is the position among the terms or along the other dim, whichever has the neighbours.
  struct Place {
    std::string batch, outer, inner;
  };
  /// Where copies of what pieces are made of lie: bytes from `from` on, and which of them this piece is.
  struct Copies {
    std::string from, piece;
    std::int64_t pieces = 0;
  };

  /// How many neighbours, a power of two up to `most`, are made at once, as a piece: all that they are made of in runs
  /// is then read in runs.
  int width(int most) const;
  /// Of what a piece is made of, as far as it can be copied; 0: nothing can.
  std::int64_t copied_bytes(int width) const;
  /// Statements that ask for these copies, where `is_there` holds.
  std::string copy(const Place& place, int width, const Copies& to) const;
  /// Statements that set `to`.v[0] to `to`.v[width - 1] to the element at a place and to its neighbours.
  std::string make(const Place& place, int width, const std::string& to, const Copies* copies) const;

 private:
  /// The address of each run's copy.
  std::vector<std::string> addresses(int width, const Copies& copies) const;

  const kir::Kernel& kernel_;
  int operand_;
  const kir::Phase& phase_;
};

}  // namespace sheaf::codegen
