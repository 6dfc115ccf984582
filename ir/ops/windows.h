// Windows into a tensor, as gather and scatter place them: one window per index vector, at the start the vector names.
// Invariant shared by both: window dims in ascending order lie along the sorted window dims of the other tensor, whose
// remaining dims lie along the indices' dims without the index vector's, in order.
#pragma once

#include "ir/ops/rules.h"

namespace sheaf::ir::ops {

/// The dimension numbers of a gather, and of a scatter read as the gather that undoes it.
struct Windows {
  const DimList& window_dims;  // of the windowed tensor: gather's result, scatter's updates
  const DimList& dropped;      // dims of x a window does not have
  const DimList& start_map;    // entry j of the index vector is the start along start_map[j]
  const DimList& x_batch;
  const DimList& indices_batch;
  int index_dim = 0;
};

/// Dims of x a window extends along.
inline DimList window_of(const Windows& w, int rank) { return other_dims(concat(w.dropped, w.x_batch), rank); }
/// Dims of the indices but the index vector's.
inline DimList index_positions(const Windows& w, int rank) { return other_dims({w.index_dim}, rank); }

absl::Status check_windows(const Windows& w, const DimList& index_dim, Type x, Type indices, int windowed_rank);

/// Factors of x, indices and the windowed tensor. `sizes` are the window's extents along every dim of x.
struct WindowFactors { TensorFactors x, indices, windowed; };
WindowFactors window_factors(Factors& r, const Windows& w, Type x, Type indices, const DimList& sizes, Factor dropped,
                             Factor position);

/// Calls f(start, in_range, base): for every index vector in row-major order, the window's start in x (batch dims
/// included), whether it lies inside, and the windowed tensor's index with zeros along the window dims.
template <class F>
void for_each_window(const Windows& w, const Literal& indices, const Shape& x, const DimList& sizes, bool clip, int windowed_rank, F f) {
  const DimList positions = index_positions(w, static_cast<int>(indices.dims().size()));
  const DimList rest = other_dims(w.window_dims, windowed_rank);
  const std::vector<std::int64_t> strides = strides_of(indices.dims());
  Shape counts;
  for (std::int64_t d : positions) counts.push_back(indices.dims()[d]);
  if (num_elements(counts) == 0) return;
  std::vector<std::int64_t> c(counts.size());
  do {
    std::vector<std::int64_t> at(indices.dims().size()), start(x.size()), base(windowed_rank);
    for (std::size_t i = 0; i < c.size(); ++i) {
      at[positions[i]] = c[i];
      base[rest[i]] = c[i];
    }
    for (std::size_t b = 0; b < w.x_batch.size(); ++b) start[w.x_batch[b]] = at[w.indices_batch[b]];
    bool in_range = true;
    for (std::size_t j = 0; j < w.start_map.size(); ++j) {
      at[w.index_dim] = static_cast<std::int64_t>(j);
      const std::int64_t d = w.start_map[j], high = x[d] - sizes[d];
      std::int64_t v = indices.get_int(flatten(at, strides));
      if (is_unsigned_int(indices.dtype()) && v < 0) v = INT64_MAX;
      if (clip) v = std::clamp<std::int64_t>(v, 0, high);
      in_range = in_range && v >= 0 && v <= high;
      start[d] = v;
    }
    f(start, in_range, base);
  } while (next_index(c, counts));
}

}  // namespace sheaf::ir::ops
