// The left operand of a convolution's product is an array with zeros around it, which nobody stores: each unit of the
// product copies the box of it that its windows meet into scratch, zeros and all, and reads that through the box's own
// strides. Where an element is no more than a vector's part, because each channel is alone, reads need no copy: each
// knows its place along the padded dims, and goes elsewhere for a zero.
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

/// A stride of the padded array, or the position of an element, as steps along its dims.
std::vector<std::int64_t> steps_of(std::int64_t stride, const kir::Contract::Padding& padding);
/// The same as a stride in what lies in memory.
std::int64_t stride_in_memory(std::int64_t stride, const kir::Contract::Padding& padding);
/// The dims along which there is padding.
std::vector<std::size_t> padded_dims(const kir::Contract::Padding& padding);
/// Every position of the left operand is its steps along each dim, of which none goes beyond the padded array, and its
/// columns are no padded dim.
bool keeps_to_dims(const kir::Contract& contract);

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
