// Lists of dims as the sheets handle them: checks with readable errors, complements, permutations. Invariant: a list
// that passed check_dims names each dim of its tensor at most once.
#pragma once

#include <absl/status/status.h>
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "ir/attrs.h"

namespace sheaf::ir::ops {

using DimList = std::vector<std::int64_t>;
using ir::to_string;     // of types ...
using sheaf::to_string;  // ... and of lists, which those would hide

inline bool lists(const DimList& dims, std::int64_t d) { return std::find(dims.begin(), dims.end(), d) != dims.end(); }

/// Every entry is a dim of a tensor of that rank, and none is listed twice. `what` opens the message: "lhs dims".
inline absl::Status check_dims(std::string_view what, const DimList& dims, int rank) {
  for (std::size_t i = 0; i < dims.size(); ++i) {
    if (dims[i] < 0 || dims[i] >= rank)
      return absl::InvalidArgumentError(
          fmt::format("{} {} must lie in [0, {}), {} is outside", what, to_string(dims), rank, dims[i]));
    if (std::find(dims.begin(), dims.begin() + i, dims[i]) != dims.begin() + i)
      return absl::InvalidArgumentError(fmt::format("{} {} must not repeat {}", what, to_string(dims), dims[i]));
  }
  return absl::OkStatus();
}

/// Exactly one dim of a tensor of that rank.
inline absl::Status check_one_dim(std::string_view field, const DimList& dim, int rank) {
  if (dim.size() != 1)
    return absl::InvalidArgumentError(fmt::format("{} must be one dim, not {}", field, to_string(dim)));
  return check_dims(field, dim, rank);
}

/// One entry per dim of a tensor of that rank. `field` opens the message: "perm".
inline absl::Status check_length(std::string_view field, const DimList& list, int rank) {
  if (static_cast<int>(list.size()) == rank) return absl::OkStatus();
  return absl::InvalidArgumentError(
      fmt::format("{} {} must have one entry for each of the {} dims", field, to_string(list), rank));
}

/// No negative extent.
inline absl::Status check_shape(const DimList& shape) {
  for (std::int64_t n : shape)
    if (n < 0) return absl::InvalidArgumentError(fmt::format("shape {} must not be negative", to_string(shape)));
  return absl::OkStatus();
}

/// a, then b.
inline DimList concat(DimList a, const DimList& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

/// The dims of a tensor of that rank that `dims` does not list, ascending.
inline DimList other_dims(const DimList& dims, int rank) {
  DimList others;
  for (int d = 0; d < rank; ++d)
    if (!lists(dims, d)) others.push_back(d);
  return others;
}

/// `count` consecutive dims from `first`.
inline DimList dim_range(int first, int count) {
  DimList dims;
  for (int d = 0; d < count; ++d) dims.push_back(first + d);
  return dims;
}

/// The permutation that undoes `perm`.
inline DimList inverse(const DimList& perm) {
  DimList inverse(perm.size());
  for (std::size_t d = 0; d < perm.size(); ++d) inverse[perm[d]] = static_cast<std::int64_t>(d);
  return inverse;
}

}  // namespace sheaf::ir::ops
