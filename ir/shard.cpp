// Positions of a device's share: coordinates of the mesh, times sizes.
#include "ir/shard.h"

#include "ir/ops/attrs.h"

namespace sheaf::ir {

Value Shard::part(int factor) const {
  if (!is_split(factor)) return b.constant(DType::i32, 0);
  return b.emit(ops::axis_index, {}, ops::AxisIndex{.axes = axes(factor)});
}

Value Shard::offset(const FactorList& dim) const {
  Value at;
  std::int64_t minor = 1;  // elements of the dim for each of this factor
  for (std::size_t i = dim.size(); i-- > 0;) {
    const int f = dim[i];
    if (is_split(f)) {
      const Value here = part(f) * static_cast<double>(local_size(f) * minor);
      at = at ? at + here : here;
    }
    minor *= factors.factors[f].size;
  }
  return at ? at : b.constant(DType::i32, 0);
}

std::int64_t Shard::local_size(const FactorList& dim) const {
  std::int64_t n = 1;
  for (const int f : dim) n *= local_size(f);
  return n;
}

Shape Shard::local_dims(const TensorFactors& tensor) const {
  Shape dims;
  for (const FactorList& dim : tensor) dims.push_back(local_size(dim));
  return dims;
}

}  // namespace sheaf::ir
