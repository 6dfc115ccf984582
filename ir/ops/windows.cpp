// Checks, factors and index arithmetic of windows.
#include "ir/ops/windows.h"

#include <limits>

namespace sheaf::ir::ops {

absl::Status check_windows(const Windows& w, Type operand, Type indices) {
  if (!is_int(indices.dtype()))
    return absl::InvalidArgumentError(fmt::format("indices ({}) must be integers", to_string(indices)));
  if (absl::Status s = check_one_dim("index_dim", w.index_dim, indices.rank()); !s.ok()) return s;
  const int num_windowed = static_cast<int>(w.windowed(operand.rank()).size());
  const int window_rank = static_cast<int>(w.window_dims.size()) + indices.rank() - 1;
  for (const absl::Status& s : {check_dims("dims of the operand", concat(w.dropped, w.operand_batch), operand.rank()),
                                check_dims("dims of the operand", concat(w.index_map, w.operand_batch), operand.rank()),
                                check_dims("dims of the indices", concat(w.index_dim, w.indices_batch), indices.rank()),
                                check_dims("window dims", w.window_dims, window_rank)})
    if (!s.ok()) return s;
  if (!std::is_sorted(w.window_dims.begin(), w.window_dims.end()))
    return absl::InvalidArgumentError(fmt::format("window dims {} must ascend", to_string(w.window_dims)));
  if (static_cast<int>(w.window_dims.size()) != num_windowed)
    return absl::InvalidArgumentError(
        fmt::format("window dims {} must be {}, one for each kept dim of the operand ({})", to_string(w.window_dims),
                    num_windowed, to_string(operand)));
  const std::int64_t components = indices.dims()[w.index_dim[0]];
  if (components != static_cast<std::int64_t>(w.index_map.size()))
    return absl::InvalidArgumentError(
        fmt::format("indices dim {} ({}) must hold one start for each of the operand's dims {}", w.index_dim[0],
                    components, to_string(w.index_map)));
  if (w.operand_batch.size() != w.indices_batch.size())
    return absl::InvalidArgumentError(fmt::format("operand_batch={} and indices_batch={} must pair up",
                                                  to_string(w.operand_batch), to_string(w.indices_batch)));
  for (std::size_t i = 0; i < w.operand_batch.size(); ++i) {
    const std::int64_t m = operand.dims()[w.operand_batch[i]], n = indices.dims()[w.indices_batch[i]];
    if (m != n)
      return absl::InvalidArgumentError(fmt::format("operand dim {} ({}) and indices dim {} ({}) must match",
                                                    w.operand_batch[i], m, w.indices_batch[i], n));
  }
  return absl::OkStatus();
}

WindowFactors window_factors(Factors& r, const Windows& w, Type operand, Type indices, const DimList& sizes,
                             const Factor& dropped, const Factor& index_batch) {
  const auto append = [&](std::int64_t size, Factor factor) {
    factor.size = size;
    r.factors.push_back(factor);
    return FactorList{static_cast<int>(r.factors.size()) - 1};
  };
  const int window_rank = static_cast<int>(w.window_dims.size()) + indices.rank() - 1;
  WindowFactors f{TensorFactors(operand.rank()), TensorFactors(indices.rank()), TensorFactors(window_rank)};
  for (std::size_t i = 0; i < w.operand_batch.size(); ++i)
    f.operand[w.operand_batch[i]] = f.indices[w.indices_batch[i]] = {r.add(operand.dims()[w.operand_batch[i]])};
  for (std::int64_t d : w.dropped) f.operand[d] = append(operand.dims()[d], dropped);
  const DimList windowed = w.windowed(operand.rank());
  for (std::size_t k = 0; k < windowed.size(); ++k) {
    const std::int64_t d = windowed[k], n = operand.dims()[d];
    // A window over a whole dim starts at 0, wherever it is told to; one of a single element lies in one part; others
    // need the whole dim.
    if (sizes[d] == n) {
      f.operand[d] = f.window[w.window_dims[k]] = {r.add(n)};
    } else if (sizes[d] == 1) {
      f.operand[d] = append(n, dropped);
      f.window[w.window_dims[k]] = {r.add(1, FactorClass::N)};
    } else {
      f.operand[d] = {r.add(n, FactorClass::N)};
      f.window[w.window_dims[k]] = {r.add(sizes[d], FactorClass::N)};
    }
  }
  const DimList outside = other_dims(w.window_dims, window_rank), of_indices = other_dims(w.index_dim, indices.rank());
  for (std::size_t i = 0; i < outside.size(); ++i) {
    FactorList& list = f.indices[of_indices[i]];
    if (list.empty()) list = append(indices.dims()[of_indices[i]], index_batch);
    f.window[outside[i]] = list;
  }
  f.indices[w.index_dim[0]] = {r.add(indices.dims()[w.index_dim[0]], FactorClass::N)};
  return f;
}

WindowWalk::WindowWalk(const Windows& w, Type operand, Type indices, Type window, DimList sizes, bool clamps)
    : w_(w),
      dims_(operand.dims()),
      sizes_(std::move(sizes)),
      strides_(strides_of(operand.dims())),
      index_strides_(strides_of(indices.dims())),
      windowed_(w.windowed(operand.rank())),
      batch_of_window_(other_dims(w.window_dims, window.rank())),
      batch_of_indices_(other_dims(w.index_dim, indices.rank())),
      clamps_(clamps) {}

std::int64_t WindowWalk::position(const DimList& at, const Literal& indices) const {
  DimList index_at(index_strides_.size(), 0);
  for (std::size_t i = 0; i < batch_of_window_.size(); ++i) index_at[batch_of_indices_[i]] = at[batch_of_window_[i]];
  std::int64_t position = 0;
  for (std::size_t i = 0; i < w_.operand_batch.size(); ++i)
    position += index_at[w_.indices_batch[i]] * strides_[w_.operand_batch[i]];
  for (std::size_t k = 0; k < w_.index_map.size(); ++k) {
    const std::int64_t d = w_.index_map[k], last = dims_[d] - sizes_[d];
    index_at[w_.index_dim[0]] = static_cast<std::int64_t>(k);
    std::int64_t start = index_value(indices, flatten(index_at, index_strides_));
    if (clamps_) start = std::clamp<std::int64_t>(start, 0, last);
    if (start < 0 || start > last) return -1;
    position += start * strides_[d];
  }
  for (std::size_t k = 0; k < windowed_.size(); ++k) position += at[w_.window_dims[k]] * strides_[windowed_[k]];
  return position;
}

// The widest dtype that starts and places need; u64 is cut to i64, whose largest lies beyond all places as well.
WindowStarts::WindowStarts(Value indices, std::int64_t index_dim, DimList extents)
    : x_(indices), index_dim_(index_dim), extents_(std::move(extents)) {
  const DType t = indices.dtype();
  const bool is_short = size_bytes(t) < 4 || t == DType::i32;
  DType wide = is_short ? DType::i32 : DType::i64;
  for (const std::int64_t n : extents_)
    if (position_dtype(n) == DType::i64) wide = DType::i64;
  constexpr double kBeyond = 0x1p62;
  if (t == DType::u64) x_ = x_.builder().emit(min, {x_, number(x_, kBeyond)});
  x_ = convert_to(x_, wide);
}

WindowStarts WindowStarts::with(Value x) const {
  WindowStarts s = *this;
  s.x_ = x;
  return s;
}

Value WindowStarts::per_component(const Values& entries) const {
  if (entries.size() == 1) return entries[0];
  Builder& b = x_.builder();
  Values rows;
  for (const Value v : entries) rows.push_back(reshape_to(v, {1}));
  return broadcast_to(b.emit(concatenate, rows, Concatenate{.dim = {0}}), x_.dims(), {index_dim_});
}

Value WindowStarts::per_component(const DimList& entries) const {
  Literal list(Type(x_.dtype(), {std::ssize(entries)}));
  for (std::int64_t k = 0; k < list.size(); ++k) list.set_int(k, entries[k]);
  Builder& b = x_.builder();
  if (entries.size() == 1) return b.constant(list.as(Type(x_.dtype(), {})));
  return broadcast_to(b.constant(list), x_.dims(), {index_dim_});
}

WindowStarts WindowStarts::wrapped() const {
  if (extents_.empty()) return *this;
  Builder& b = x_.builder();
  const Value is_negative = b.emit(lt, {x_, number(x_, 0)});
  return with(where(is_negative, x_ + per_component(extents_), x_));
}

WindowStarts WindowStarts::clamped(const DimList& sizes) const {
  if (extents_.empty()) return *this;
  DimList last = extents_;
  for (std::size_t k = 0; k < last.size(); ++k) last[k] -= sizes[k];
  Builder& b = x_.builder();
  return with(b.emit(min, {b.emit(max, {x_, number(x_, 0)}), per_component(last)}));
}

WindowStarts WindowStarts::in_part(const Values& offsets) const {
  Values all;
  bool is_moved = false;
  for (const Value v : offsets) {
    is_moved = is_moved || v;
    all.push_back(v ? convert_to(v, x_.dtype()) : number(x_, 0));
  }
  return is_moved ? with(x_ - per_component(all)) : *this;
}

Value WindowStarts::is_outside(const DimList& sizes) const {
  Builder& b = x_.builder();
  DimList last = extents_;
  for (std::size_t k = 0; k < last.size(); ++k) last[k] -= sizes[k];
  const Value is_out = b.emit(or_, {b.emit(lt, {x_, number(x_, 0)}), b.emit(gt, {x_, per_component(last)})});
  return reduce_dims(is_out, ReduceKind::or_, {index_dim_});
}

DimList entries_at(const DimList& list, const DimList& dims) {
  DimList some;
  for (const std::int64_t d : dims) some.push_back(list[d]);
  return some;
}

Values absolute_offsets(const Shard& s, const DimList& dims) {
  Values offsets;
  for (const std::int64_t d : dims) {
    const int f = s.factors.in[0][d][0];
    offsets.push_back(s.is_split(f) && s.factors.factors[f].absolute ? s.offset(s.factors.in[0][d]) : Value());
  }
  return offsets;
}

Value windows_in_part(const Shard& s, const WindowStarts& starts, Gather attrs) {
  attrs.mode = lowering::OutOfBounds::fill;
  attrs.has_fill = true;
  attrs.fill_bits = 0;
  const WindowStarts here = starts.in_part(absolute_offsets(s, attrs.start_index_map));
  return s.b.emit(gather, {s.operands[0], here.value()}, std::move(attrs));
}

std::int64_t index_value(const Literal& indices, std::int64_t i) {
  const std::int64_t v = indices.get_int(i);
  return is_unsigned_int(indices.dtype()) && v < 0 ? std::numeric_limits<std::int64_t>::max() : v;
}

Value gather_windows(Value x, Value indices, const Scatter& a, const DimList& sizes) {
  return x.builder().emit(gather, {x, indices},
                          Gather{.offset_dims = DimList(a.update_window_dims),
                                 .collapsed = a.inserted,
                                 .start_index_map = a.scatter_dims,
                                 .operand_batch = a.operand_batch,
                                 .indices_batch = a.indices_batch,
                                 .index_dim = a.index_dim,
                                 .slice_sizes = sizes,
                                 .mode = lowering::OutOfBounds::fill,
                                 .has_fill = true,
                                 .deterministic = a.deterministic});
}

Value take_along(Value x, Value positions, std::int64_t dim) {
  const int rank = x.rank();
  Shape with_index = positions.dims();
  with_index.push_back(1);
  const DimList others = other_dims({dim}, rank);
  return x.builder().emit(gather, {x, reshape_to(positions, with_index)},
                          Gather{.collapsed = {dim},
                                 .start_index_map = {dim},
                                 .operand_batch = others,
                                 .indices_batch = others,
                                 .index_dim = {rank},
                                 .slice_sizes = DimList(rank, 1),
                                 .mode = lowering::OutOfBounds::promise});
}

DimList scatter_sizes(const Scatter& a, Type operand, Type updates) {
  DimList sizes(operand.rank(), 1);
  const DimList windowed = Windows::of(a).windowed(operand.rank());
  for (std::size_t k = 0; k < windowed.size(); ++k) sizes[windowed[k]] = updates.dims()[a.update_window_dims[k]];
  return sizes;
}

}  // namespace sheaf::ir::ops
