// SHEAF_DEBUG_INDEX=1: an index array with a position out of range ends the run instead of being clamped or dropped,
// and so does a promise that does not hold. Without it nothing is emitted, so nothing is paid.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "sheaf/array.h"

namespace sheaf {

/// What a position may be: from -extent, or 0 where negative ones do not count from the end, to extent - window.
struct PositionRange {
  std::int64_t axis = 0, extent = 0, window = 1;
  bool wraps = true;
};

/// Throws RuntimeError if one of the `positions` is out of range; while tracing, the run of what is traced does. The
/// ranges are those of the components along the last dim, or one for all.
void check_positions(std::string_view name, const Array& positions, std::span<const PositionRange> ranges, Loc loc);

/// What a write promises of the places that its index vectors, along the last dim, start windows at: the components are
/// those of the ranges, `batch` the dims of the indices that name separate parts of the array.
struct Promise {
  bool unique = false, sorted = false, clips = false;
  std::vector<std::int64_t> batch = {};
};

/// Whether check_promise does anything.
bool checks_indices();
/// Throws RuntimeError, as above, if the promise does not hold.
void check_promise(std::string_view name, const Array& vectors, std::span<const PositionRange> ranges,
                   const Promise& promise, Loc loc);

}  // namespace sheaf
