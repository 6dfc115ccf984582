// A window sliding along one dim, as convolution and reduce_window share it: the dim is spread and padded, then a
// window of elements a dilation apart starts at every stride-th place where all of it fits.
#pragma once

#include "ir/ops/rules.h"

namespace sheaf::ir::ops {

struct Slide {
  int dim = 0;              // of the operand
  std::int64_t extent = 0;  // of that dim
  std::int64_t size = 1;
  std::int64_t stride = 1, low = 0, high = 0, base_dilation = 1, dilation = 1;

  std::int64_t spread() const { return spread_by(extent, base_dilation); }
  std::int64_t padded() const { return spread() + low + high; }
  std::int64_t span() const { return spread_by(size, dilation); }
  std::int64_t count() const { return padded() < span() ? 0 : (padded() - span()) / stride + 1; }
  /// The windows are the elements.
  bool is_identity() const { return size == 1 && stride == 1 && !needs_padding(); }
  bool needs_padding() const { return low != 0 || high != 0 || base_dilation != 1; }
  /// There is one window, and it is the padded dim.
  bool is_whole() const { return dilation == 1 && size == padded(); }

  /// Over the windows' results, with the taps in opposite order: sums for each element what was made of it.
  Slide backward() const {
    const std::int64_t results = spread_by(count(), stride);
    Slide s{.dim = dim,
            .extent = count(),
            .size = size,
            .stride = base_dilation,
            .low = span() - low - 1,
            .high = 0,
            .base_dilation = stride,
            .dilation = dilation};
    s.high = spread() + span() - 1 - results - s.low;
    return s;
  }
  /// Over the operand with the results as the window: sums for each tap what it met.
  Slide over_results() const {
    const std::int64_t results = spread_by(count(), stride);
    return {.dim = dim,
            .extent = extent,
            .size = count(),
            .stride = dilation,
            .low = low,
            .high = results + span() - spread() - 1 - low,
            .base_dilation = base_dilation,
            .dilation = stride};
  }

  static std::int64_t spread_by(std::int64_t n, std::int64_t by) { return n == 0 ? 0 : (n - 1) * by + 1; }
};
using Slides = std::vector<Slide>;

/// The padded dim or the window has more elements than any array, or ones that cannot be counted.
inline bool is_too_long(const Slide& s) {
  const auto spreads_too_far = [](std::int64_t n, std::int64_t by) { return n > 1 && by > kMaxElements / (n - 1); };
  const auto is_huge = [](std::int64_t n) { return n >= kMaxElements || n <= -kMaxElements; };
  return spreads_too_far(s.extent, s.base_dilation) || spreads_too_far(s.size, s.dilation) || is_huge(s.low) ||
         is_huge(s.high) || is_huge(s.padded()) || is_huge(s.span());
}

/// Sizes, strides and dilations are at least 1, and padding neither crops more than there is nor adds too much.
inline absl::Status check_slide(const Slide& s) {
  if (s.size < 1 || s.stride < 1 || s.base_dilation < 1 || s.dilation < 1)
    return absl::InvalidArgumentError(
        fmt::format("window over dim {}: its size ({}), stride ({}) and dilations ({}, {}) must be at least 1", s.dim,
                    s.size, s.stride, s.base_dilation, s.dilation));
  if (is_too_long(s))
    return absl::InvalidArgumentError(
        fmt::format("padding (low {}, high {}) and dilations ({}, {}) of dim {} give an extent that no array can have",
                    s.low, s.high, s.base_dilation, s.dilation, s.dim));
  if (s.padded() < 0)
    return absl::InvalidArgumentError(
        fmt::format("padding (low {}, high {}) of dim {} leaves {} elements", s.low, s.high, s.dim, s.padded()));
  return absl::OkStatus();
}

/// Each slide is one over x, and x padded for all of them is an array.
inline absl::Status check_slides(Type x, const Slides& slides) {
  Shape padded = x.dims();
  for (const Slide& s : slides) {
    if (absl::Status status = check_slide(s); !status.ok()) return status;
    padded[s.dim] = s.padded();
  }
  if (num_elements(padded) < kMaxElements) return absl::OkStatus();
  return absl::InvalidArgumentError(
      fmt::format("{} padded to {} has too many elements", to_string(x), to_string(padded)));
}

/// x spread and padded as the slides want it; what is new is `fill`.
inline Value pad_for(Value x, const Slides& slides, Value fill) {
  const DimList zeros(x.rank(), 0);
  Pad attrs{.low = zeros, .high = zeros, .interior = zeros};
  bool changes = false;
  for (const Slide& s : slides) {
    attrs.low[s.dim] = s.low;
    attrs.high[s.dim] = s.high;
    attrs.interior[s.dim] = s.base_dilation - 1;
    changes = changes || s.needs_padding();
  }
  return changes ? x.builder().emit(pad, {x, fill}, std::move(attrs)) : x;
}

/// The windows of an x that has been padded: x's dims with the counts, then the windows' sizes in the order of the
/// slides.
inline Value windows_of(Value x, const Slides& slides) {
  SlidingWindows attrs;
  for (const Slide& s : slides) {
    attrs.dims.push_back(s.dim);
    attrs.sizes.push_back(s.size);
    attrs.strides.push_back(s.stride);
    attrs.dilations.push_back(s.dilation);
  }
  return slides.empty() ? x : x.builder().emit(sliding_windows, {x}, std::move(attrs));
}

}  // namespace sheaf::ir::ops
