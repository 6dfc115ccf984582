// Rows of a dim that a device needs beside its own part, where the dim is split: an op with windows, shifts or padding
// along it runs on its part once what the neighbours hold of its windows has come (docs/design-notes.md).
#pragma once

#include "ir/ops/rules.h"
#include "ir/shard.h"

namespace sheaf::ir::ops {

/// What each part of a result reads of a dim: `length` places from starts[part] on. Element i of the dim lies at place
/// i * spread; every other place, within the dim or beyond it, is a fill.
struct Footprint {
  std::vector<std::int64_t> starts = {};  // one per part
  std::int64_t length = 0;
  std::int64_t spread = 1;

  /// Part r of `count` windows, one every `stride` places, each of `span` places: the first begins at `first`.
  static Footprint of_windows(const Shard& s, int results, std::int64_t first, std::int64_t stride, std::int64_t span,
                              std::int64_t spread = 1);
};

/// x with the footprint along `dim`, which is split as `factor` is. Only rows that some device reads are
/// sent.
Value with_halo(const Shard& s, Value x, int dim, int factor, const Footprint& want, Value fill);

/// The entry of `per_part` for this device's part of the factor: rank 0.
Value at_part(const Shard& s, int factor, const std::vector<std::int64_t>& per_part, DType dtype);

/// Whether there is a row of this factor for each part, and so for its neighbours.
bool splits_rows(const Eqn& e, const Factors& factors, int factor, std::int64_t ways);

}  // namespace sheaf::ir::ops
