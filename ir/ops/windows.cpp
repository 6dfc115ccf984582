// Checks and factors of windows.
#include "ir/ops/windows.h"

namespace sheaf::ir::ops {

absl::Status check_windows(const Windows& w, const DimList& index_dim, Type x, Type indices, int windowed_rank) {
  if (!is_int(indices.dtype())) return absl::InvalidArgumentError(fmt::format("indices must be integers, not {}", to_string(indices)));
  if (index_dim.size() != 1) return absl::InvalidArgumentError("index_dim must be one dim");
  if (absl::Status s = check_dims("index_dim", index_dim, indices.rank()); !s.ok()) return s;
  for (const auto& [what, list, rank] :
       {std::tuple<std::string_view, const DimList*, int>("collapsed dims", &w.dropped, x.rank()),
        {"indexed dims", &w.start_map, x.rank()}, {"batch dims", &w.x_batch, x.rank()},
        {"batch dims of the indices", &w.indices_batch, indices.rank()}, {"window dims", &w.window_dims, windowed_rank}})
    if (absl::Status s = check_dims(what, *list, rank); !s.ok()) return s;
  if (absl::Status s = check_dims("collapsed and batch dims", concat(w.dropped, w.x_batch), x.rank()); !s.ok()) return s;
  if (!std::is_sorted(w.window_dims.begin(), w.window_dims.end()))
    return absl::InvalidArgumentError(fmt::format("window dims {} must ascend", to_string(w.window_dims)));
  if (w.x_batch.size() != w.indices_batch.size() || lists(w.indices_batch, w.index_dim))
    return absl::InvalidArgumentError(fmt::format("batch dims {} and {} must pair up", to_string(w.x_batch), to_string(w.indices_batch)));
  for (std::size_t b = 0; b < w.x_batch.size(); ++b)
    if (x.dims()[w.x_batch[b]] != indices.dims()[w.indices_batch[b]])
      return absl::InvalidArgumentError(fmt::format("dim {} of {} and dim {} of the indices {} must match", w.x_batch[b], to_string(x),
                                                    w.indices_batch[b], to_string(indices)));
  if (indices.dims()[w.index_dim] != static_cast<std::int64_t>(w.start_map.size()))
    return absl::InvalidArgumentError(fmt::format("the index vector, dim {} of {}, must have one entry for each of the indexed dims {}",
                                                  w.index_dim, to_string(indices), to_string(w.start_map)));
  if (w.window_dims.size() != window_of(w, x.rank()).size())
    return absl::InvalidArgumentError(fmt::format("window dims {} must be as many as the dims {} of {} a window extends along",
                                                  to_string(w.window_dims), to_string(window_of(w, x.rank())), to_string(x)));
  if (windowed_rank != static_cast<int>(w.window_dims.size()) + indices.rank() - 1)
    return absl::InvalidArgumentError(fmt::format("window dims {} and the dims of the indices {} need rank {}, not {}", to_string(w.window_dims),
                                                  to_string(indices), w.window_dims.size() + indices.rank() - 1, windowed_rank));
  return absl::OkStatus();
}

WindowFactors window_factors(Factors& r, const Windows& w, Type x, Type indices, const DimList& sizes, Factor dropped, Factor position) {
  WindowFactors t;
  t.x.resize(x.rank());
  t.indices.resize(indices.rank());
  const DimList window = window_of(w, x.rank()), positions = index_positions(w, indices.rank());
  t.windowed.resize(w.window_dims.size() + positions.size());
  for (std::size_t b = 0; b < w.x_batch.size(); ++b)
    t.x[w.x_batch[b]] = t.indices[w.indices_batch[b]] = {r.add(x.dims()[w.x_batch[b]])};
  for (std::int64_t d : w.dropped) t.x[d] = {r.add(x.dims()[d], dropped.cls, dropped.combine, dropped.absolute)};
  for (std::size_t i = 0; i < window.size(); ++i) {
    const std::int64_t d = window[i];
    if (sizes[d] == x.dims()[d]) {
      t.x[d] = t.windowed[w.window_dims[i]] = {r.add(sizes[d])};
    } else {
      t.x[d] = {r.add(x.dims()[d], FactorClass::N)};
      t.windowed[w.window_dims[i]] = {r.add(sizes[d], FactorClass::N)};
    }
  }
  const DimList rest = other_dims(w.window_dims, static_cast<int>(t.windowed.size()));
  for (std::size_t i = 0; i < positions.size(); ++i) {
    FactorList& f = t.indices[positions[i]];
    if (f.empty()) f = {r.add(indices.dims()[positions[i]], position.cls, position.combine)};
    t.windowed[rest[i]] = f;
  }
  t.indices[w.index_dim] = {r.add(indices.dims()[w.index_dim], FactorClass::N)};
  return t;
}

}  // namespace sheaf::ir::ops
