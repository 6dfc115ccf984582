// SHEAF_DEBUG_INDEX=1: an index array with a position out of range ends the run instead of being clamped or dropped.
// Without it nothing is emitted, so nothing is paid.
#pragma once

#include <span>
#include <string_view>

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

}  // namespace sheaf
