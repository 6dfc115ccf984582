// The windows that gather reads and scatter writes. Both name dims alike (StableHLO's dimension numbers), so they share
// one factor rule and one map from an element of the window tensor (gather's result, scatter's updates) to the operand.
#pragma once

#include "ir/ops/rules.h"
#include "ir/shard.h"

namespace sheaf::ir::ops {

struct Windows {
  DimList window_dims;  // dims of the window tensor that run inside a window; its others are those of the indices
  DimList dropped;  // operand dims a window is one element wide in and lacks (collapsed, inserted)
  DimList index_map;  // operand dim that each component of the index vector starts in
  DimList operand_batch, indices_batch;
  DimList index_dim;  // of the index vector, in the indices

  static Windows of(const Gather& a) {
    return {a.offset_dims, a.collapsed, a.start_index_map, a.operand_batch, a.indices_batch, a.index_dim};
  }
  static Windows of(const Scatter& a) {
    return {a.update_window_dims, a.inserted, a.scatter_dims, a.operand_batch, a.indices_batch, a.index_dim};
  }
  /// The operand dims that appear in a window, ascending: dim k of a window is the k-th.
  DimList windowed(int operand_rank) const { return other_dims(concat(dropped, operand_batch), operand_rank); }
};

/// The dims listed make sense for these ranks, and the index vector has an entry for each of index_map.
absl::Status check_windows(const Windows& w, Type operand, Type indices);

/// The factors of (operand, indices) and the window tensor, appended to `r`; `sizes` are a window's, per operand dim.
struct WindowFactors {
  TensorFactors operand, indices, window;
};
WindowFactors window_factors(Factors& r, const Windows& w, Type operand, Type indices, const DimList& sizes,
                             const Factor& dropped, const Factor& index_batch);

/// Where the window tensor's elements lie in the operand.
class WindowWalk {
 public:
  WindowWalk(const Windows& w, Type operand, Type indices, Type window, DimList sizes, bool clamps);
  /// Row-major position in the operand of the element at `at`; -1 when its window is out of range.
  std::int64_t position(const DimList& at, const Literal& indices) const;

 private:
  const Windows w_;
  const Shape dims_;  // of the operand
  const DimList sizes_;
  const DimList strides_, index_strides_;
  const DimList windowed_;
  const DimList batch_of_window_;  // window dims outside windows, ascending ...
  const DimList batch_of_indices_;  // ... and the dims of the indices they are
  const bool clamps_;
};

/// Starts of windows, for each component of the index vectors along `index_dim`, as signed integers that hold every
/// place in dims of these extents (one per component) and beside them; what exceeds those is still out of range.
class WindowStarts {
 public:
  WindowStarts(Value indices, std::int64_t index_dim, DimList extents);
  Value value() const { return x_; }
  std::int64_t index_dim() const { return index_dim_; }
  /// A negative one counts from the end, once.
  WindowStarts wrapped() const;
  /// Moved so that windows of these sizes fit.
  WindowStarts clamped(const DimList& sizes) const;
  /// Where in a part that begins at `offsets`, of rank 0, or null: at 0.
  WindowStarts in_part(const Values& offsets) const;
  /// Of each index vector, whether windows of these sizes do not fit.
  Value is_outside(const DimList& sizes) const;
  /// One entry per component: rank 0 where there is one component, else of the shape of the starts.
  Value per_component(const DimList& entries) const;
  Value per_component(const Values& entries) const;

 private:
  WindowStarts with(Value x) const;
  Value x_;
  std::int64_t index_dim_;
  DimList extents_;
};
/// The entries of `list` for each of the dims.
DimList entries_at(const DimList& list, const DimList& dims);
/// Where this device's part of operand 0 begins along each of the dims, null where that is not split or the position
/// does not matter.
Values absolute_offsets(const Shard& s, const DimList& dims);
/// What a device holds of windows of operand 0, whose dims are split: zeros where a window lies in another part.
Value windows_in_part(const Shard& s, const WindowStarts& starts, Gather attrs);

/// How parts add up of which one has the value and the others zeros.
inline Combine sum_of_one(DType t) { return is_bool(t) ? Combine::or_ : Combine::sum; }

/// Element i of an integer literal; what exceeds i64 is its largest, which is out of range of any dim all the same.
std::int64_t index_value(const Literal& indices, std::int64_t i);

/// What `scatter` with these dimension numbers wrote where: windows of x, with zeros for those out of range.
Value gather_windows(Value x, Value indices, const Scatter& attrs, const DimList& sizes);
/// x at `positions` along `dim`, in range all of them; the other dims agree.
Value take_along(Value x, Value positions, std::int64_t dim);
/// Sizes of scatter's windows per operand dim, 1 where they lack it.
DimList scatter_sizes(const Scatter& attrs, Type operand, Type updates);

}  // namespace sheaf::ir::ops
