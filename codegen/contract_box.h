// The left operand of a convolution's product is an array with zeros around it, which nobody stores: each unit of the
// product copies the box of it that its windows meet into scratch, zeros and all, and reads that through the box's own
// strides.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "codegen/kir/kir.h"

namespace sheaf::codegen {

struct ContractBox {
  std::vector<std::int64_t> extents;  // of each dim of the padded array
  std::vector<std::int64_t> strides;  // from one element to the next in scratch, of `count` elements
  std::int64_t count = 0;
};

/// One row of the padded array at a time, which lies in a copy of all of it: along its last dim that has padding, and
/// the dims inside of that.
ContractBox row_box(const kir::Contract::Padding& padding);

/// A contraction, its dims not merged, by units that have a box each: `batch` ends with a dim of the positions (rows of
/// the image) that a unit computes, of which, as of m, k and n, lhs_strides are the box's. nullopt where no box is
/// small enough, or rows and terms do not walk along the padded array's dims.
struct BoxedContract {
  kir::Contract contract;
  ContractBox box;
};
std::optional<BoxedContract> boxed(const kir::Contract& contract);

}  // namespace sheaf::codegen
