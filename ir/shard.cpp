// Positions of a device's share: coordinates of the mesh, times sizes.
#include "ir/shard.h"

#include <limits>

#include "ir/ops/rules.h"

namespace sheaf::ir {

DType position_dtype(std::int64_t n) { return n <= std::numeric_limits<std::int32_t>::max() ? DType::i32 : DType::i64; }

Value Shard::part(int factor) const {
  if (!is_split(factor)) return b.constant(DType::i32, 0);
  return b.emit(ops::axis_index, {}, ops::AxisIndex{.axes = axes(factor)});
}

Value Shard::offset(const FactorList& dim) const {
  const DType dtype = position_dtype(size_of(dim));
  Value at;
  std::int64_t minor = 1;  // elements of the dim for each of this factor
  for (std::size_t i = dim.size(); i-- > 0;) {
    const int f = dim[i];
    if (is_split(f)) {
      const Value here = ops::convert_to(part(f), dtype) * static_cast<double>(local_size(f) * minor);
      at = at ? at + here : here;
    }
    minor *= factors.factors[f].size;
  }
  return at ? at : b.constant(dtype, 0);
}

Value Shard::is_first(const std::vector<int>& among) const {
  Atoms all;
  for (const int f : among) all.insert(all.end(), atoms[f].begin(), atoms[f].end());
  if (all.empty()) return b.constant(DType::bool_, 1);
  const Value place = b.emit(ops::axis_index, {}, ops::AxisIndex{.axes = mesh.names(all)});
  return b.emit(ops::eq, {place, b.constant(DType::i32, 0)});
}

Value Shard::all_parts(Value x, int factor, std::int64_t dim) const {
  if (!is_split(factor)) return x;
  return b.emit(ops::all_gather, {x},
                ops::AllGather{.axes = axes(factor), .size = ways(factor), .dim = dim, .tiled = true});
}

std::int64_t Shard::size_of(const FactorList& dim) const {
  std::int64_t n = 1;
  for (const int f : dim) n *= factors.factors[f].size;
  return n;
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
