// Short names for the equations that derivative rules emit most. Each emits in the builder its operand belongs to, and
// nothing at all where the operand already is the result.
#pragma once

#include "ir/builder.h"
#include "ir/ops/attrs.h"
#include "ir/ops/dims.h"

namespace sheaf::ir::ops {

using Samples = std::vector<std::string_view>;

inline Value convert_to(Value x, DType dtype) {
  return x.dtype() == dtype ? x : x.builder().emit(convert, {x}, Convert{.to = dtype});
}

inline Value reshape_to(Value x, const Shape& dims) {
  return x.dims() == dims ? x : x.builder().emit(reshape, {x}, Reshape{.shape = dims});
}

/// Dim d of x becomes dim dims[d] of the result.
inline Value broadcast_to(Value x, const Shape& shape, const DimList& dims) {
  if (x.dims() == shape && dims == dim_range(0, x.rank())) return x;
  return x.builder().emit(broadcast, {x}, Broadcast{.shape = shape, .dims = dims});
}

/// Dim d of the result is dim perm[d] of x.
inline Value permute(Value x, const DimList& perm) {
  if (perm == dim_range(0, x.rank())) return x;
  return x.builder().emit(transpose, {x}, Transpose{.perm = perm});
}

/// Elements [start, limit) along one dim.
inline Value slice_dim(Value x, int dim, std::int64_t start, std::int64_t limit) {
  if (start == 0 && limit == x.dims()[dim]) return x;
  Slice attrs{.start = DimList(x.rank(), 0), .limit = x.dims(), .stride = DimList(x.rank(), 1)};
  attrs.start[dim] = start;
  attrs.limit[dim] = limit;
  return x.builder().emit(slice, {x}, std::move(attrs));
}

/// `low` elements of `fill` before and `high` after along one dim.
inline Value pad_dim(Value x, int dim, std::int64_t low, std::int64_t high, double fill) {
  if (low == 0 && high == 0) return x;
  const DimList zeros(x.rank(), 0);
  Pad attrs{.low = zeros, .high = zeros, .interior = zeros};
  attrs.low[dim] = low;
  attrs.high[dim] = high;
  return x.builder().emit(pad, {x, x.builder().constant(x.dtype(), fill)}, std::move(attrs));
}

inline Value reduce_dims(Value x, ReduceKind kind, const DimList& dims) {
  return dims.empty() ? x : x.builder().emit(reduce, {x}, Reduce{.kind = kind, .dims = dims});
}

inline Value greater(Value x, Value y) { return x.builder().emit(gt, {x, y}); }
inline Value where(Value mask, Value x, Value y) { return x.builder().emit(select, {mask, x, y}); }

/// For each element the product of the others along the last dim.
Value product_of_others(Value x);

/// x where the mask holds, else 0.
inline Value where_or_zero(Value mask, Value x) { return where(mask, x, x.builder().zeros(x.type())); }

}  // namespace sheaf::ir::ops
