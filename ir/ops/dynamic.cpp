// Slices at starts known only at run time. One tensor of starts names a start per entry of `dims`; negative starts wrap
// once, then all are clamped so that the window lies inside.
#include "ir/ops/rules.h"

namespace sheaf::ir::ops {
namespace {

absl::Status check_starts(const DimList& dims, const DimList& batch, const DimList& starts_batch, const DimList& index_dim, Type x,
                          Type starts) {
  if (!is_int(starts.dtype())) return absl::InvalidArgumentError(fmt::format("starts must be integers, not {}", to_string(starts)));
  if (absl::Status s = check_dims("dims", concat(dims, batch), x.rank()); !s.ok()) return s;
  if (absl::Status s = check_dims("starts dims", concat(starts_batch, index_dim), starts.rank()); !s.ok()) return s;
  if (index_dim.size() != 1 || starts.rank() != static_cast<int>(batch.size()) + 1 || batch.size() != starts_batch.size())
    return absl::InvalidArgumentError(fmt::format("starts {} must have the batch dims and one dim of starts", to_string(starts)));
  if (starts.dims()[index_dim[0]] != static_cast<std::int64_t>(dims.size()))
    return absl::InvalidArgumentError(fmt::format("starts {} must name one start for each of the {} dims {}", to_string(starts), dims.size(),
                                                  to_string(dims)));
  for (std::size_t i = 0; i < batch.size(); ++i) {
    if (x.dims()[batch[i]] != starts.dims()[starts_batch[i]])
      return absl::InvalidArgumentError(fmt::format("dim {} of {} and dim {} of starts {} must match", batch[i], to_string(x), starts_batch[i],
                                                    to_string(starts)));
    for (std::size_t j = 0; j < i; ++j)
      if ((batch[i] < batch[j]) != (starts_batch[i] < starts_batch[j]))
        return absl::InvalidArgumentError("batch dims must come in the same order in x and in starts");
  }
  return absl::OkStatus();
}

std::int64_t place_of(const DimList& list, std::int64_t d) { return std::find(list.begin(), list.end(), d) - list.begin(); }

absl::StatusOr<Factors> slice_factors(const Eqn& e) {
  const DynamicSlice& a = e.attrs<DynamicSlice>();
  const Type x = e.in(0).type(), starts = e.in(1).type();
  if (absl::Status s = check_starts(a.dims, a.batch, a.starts_batch, a.index_dim, x, starts); !s.ok()) return s;
  if (a.sizes.size() != a.dims.size())
    return absl::InvalidArgumentError(fmt::format("sizes {} must have one entry for each of dims {}", to_string(a.sizes), to_string(a.dims)));
  Factors r;
  r.in = {TensorFactors(x.rank()), TensorFactors(starts.rank())};
  r.out = {TensorFactors(x.rank())};
  for (int d = 0; d < x.rank(); ++d) {
    if (lists(a.dims, d)) {
      const std::int64_t size = a.sizes[place_of(a.dims, d)];
      if (size < 0 || size > x.dim(d))
        return absl::InvalidArgumentError(fmt::format("size {} does not fit dim {} of {}", size, d, to_string(x)));
      r.in[0][d] = {r.add(x.dim(d), size == 1 ? FactorClass::R : FactorClass::N, size == 1 ? Combine::sum : Combine::none, true)};
      r.out[0][d] = {r.add(size, FactorClass::N)};
    } else {
      r.in[0][d] = r.out[0][d] = {r.add(x.dim(d))};
      if (lists(a.batch, d)) r.in[1][a.starts_batch[place_of(a.batch, d)]] = r.in[0][d];
    }
  }
  r.in[1][a.index_dim[0]] = {r.add(static_cast<std::int64_t>(a.dims.size()), FactorClass::N)};
  return r;
}

absl::StatusOr<Factors> update_factors(const Eqn& e) {
  const DynamicUpdateSlice& a = e.attrs<DynamicUpdateSlice>();
  const Type x = e.in(0).type(), update = e.in(1).type(), starts = e.in(2).type();
  if (absl::Status s = check_starts(a.dims, a.batch, a.starts_batch, a.index_dim, x, starts); !s.ok()) return s;
  bool fits = update.rank() == x.rank();
  for (int d = 0; fits && d < x.rank(); ++d) fits = lists(a.dims, d) ? update.dim(d) <= x.dim(d) : update.dim(d) == x.dim(d);
  if (!fits)
    return absl::InvalidArgumentError(fmt::format("update {} must fit into {} along dims {} and equal it in the others", to_string(update),
                                                  to_string(x), to_string(a.dims)));
  Factors r;
  r.in = {TensorFactors(x.rank()), TensorFactors(x.rank()), TensorFactors(starts.rank())};
  for (int d = 0; d < x.rank(); ++d) {
    if (lists(a.dims, d) && update.dim(d) != x.dim(d)) {
      r.in[0][d] = {r.add(x.dim(d), FactorClass::P, Combine::none, true)};
      r.in[1][d] = {r.add(update.dim(d), FactorClass::N)};
    } else {
      r.in[0][d] = r.in[1][d] = {r.add(x.dim(d))};
      if (lists(a.batch, d)) r.in[2][a.starts_batch[place_of(a.batch, d)]] = r.in[0][d];
    }
  }
  r.in[2][a.index_dim[0]] = {r.add(static_cast<std::int64_t>(a.dims.size()), FactorClass::N)};
  r.out = {r.in[0]};
  return r;
}

// The window's start in x for the batch position in `i` (an index of x): wrapped once, clamped.
template <class Attrs>
DimList start_at(const Attrs& a, const Literal& starts, const DimList& i, const Shape& x, const Shape& window) {
  const auto strides = strides_of(starts.dims());
  DimList at(starts.dims().size()), start(x.size(), 0);
  for (std::size_t b = 0; b < a.batch.size(); ++b) at[a.starts_batch[b]] = i[a.batch[b]];
  for (std::size_t j = 0; j < a.dims.size(); ++j) {
    at[a.index_dim[0]] = static_cast<std::int64_t>(j);
    const std::int64_t d = a.dims[j];
    std::int64_t v = starts.get_int(flatten(at, strides));
    if (is_unsigned_int(starts.dtype()) && v < 0) v = INT64_MAX;
    else if (v < 0) v += x[d];
    start[d] = std::clamp<std::int64_t>(v, 0, x[d] - window[d]);
  }
  return start;
}

// f(position in x, position in the window) for every element of the window.
template <class Attrs, class F>
void for_each_pair(const Attrs& a, const Literal& starts, const Shape& x, const Shape& window, F f) {
  if (num_elements(window) == 0) return;
  const auto x_strides = strides_of(x);
  DimList i(window.size());
  std::int64_t at = 0;
  do {
    DimList from = start_at(a, starts, i, x, window);
    for (std::size_t d = 0; d < i.size(); ++d) from[d] += i[d];
    f(flatten(from, x_strides), at++);
  } while (next_index(i, window));
}

void eval_slice(const Eqn& e, std::span<const Literal> in, std::span<Literal> out) {
  for_each_pair(e.attrs<DynamicSlice>(), in[1], in[0].dims(), out[0].dims(),
                [&](std::int64_t x, std::int64_t w) { out[0].copy(w, in[0], x); });
}

void eval_update(const Eqn& e, std::span<const Literal> in, std::span<Literal> out) {
  out[0] = in[0];
  for_each_pair(e.attrs<DynamicUpdateSlice>(), in[2], in[0].dims(), in[1].dims(),
                [&](std::int64_t x, std::int64_t w) { out[0].copy(x, in[1], w); });
}

Values slice_transpose(Builder& b, const Eqn& e, const Values& in, const Values& ct) {
  const DynamicSlice& a = e.attrs<DynamicSlice>();
  return {b.emit(dynamic_update_slice, {b.zeros(e.in(0).type()), ct[0], in[1]},
                 DynamicUpdateSlice{.dims = a.dims, .batch = a.batch, .starts_batch = {a.starts_batch.begin(), a.starts_batch.end()},
                                    .index_dim = {a.index_dim.begin(), a.index_dim.end()}}),
          Value()};
}

Values update_transpose(Builder& b, const Eqn& e, const Values& in, const Values& ct) {
  const DynamicUpdateSlice& a = e.attrs<DynamicUpdateSlice>();
  Values out(3);
  if (!in[0]) out[0] = b.emit(dynamic_update_slice, {ct[0], b.zeros(e.in(1).type()), in[2]}, a);
  if (!in[1]) {
    DynamicSlice s{.dims = a.dims, .sizes = {}, .batch = a.batch, .starts_batch = {a.starts_batch.begin(), a.starts_batch.end()},
                   .index_dim = {a.index_dim.begin(), a.index_dim.end()}};
    for (std::int64_t d : a.dims) s.sizes.push_back(e.in(1).dims()[d]);
    out[1] = b.emit(dynamic_slice, {ct[0], in[2]}, std::move(s));
  }
  return out;
}

Lowering slice_lower(const Eqn& e) {
  const DynamicSlice& a = e.attrs<DynamicSlice>();
  lowering::Gather g{.offset_dims = other_dims(a.batch, e.in(0).rank()), .collapsed_dims = {}, .start_index_map = a.dims,
                     .operand_batch = a.batch, .indices_batch = a.starts_batch, .slice_sizes = e.out().dims(),
                     .index_vector_dim = static_cast<int>(a.index_dim[0]), .mode = lowering::OutOfBounds::clip, .wrap = true};
  for (std::int64_t d : a.batch) g.slice_sizes[d] = 1;
  return g;
}

constexpr std::string_view kBatch[] = {"batch", "starts_batch"};
constexpr BatchSlot kSliceSlots[] = {{.operands = 0b11, .append = kBatch}};
constexpr BatchSlot kUpdateSlots[] = {{.operands = 0b111, .append = kBatch}};

}  // namespace

constinit const OpDef dynamic_slice = {
    .name = "dynamic_slice",
    .doc = "A window of `sizes` along `dims` of x (operand 0) at the starts (operand 1); the other dims are whole. Negative starts wrap once; "
           "then all are clamped so that the window lies inside.",
    .arity = 2,
    .attrs = attrs_of<DynamicSlice>(),
    .factors = slice_factors,
    .dtypes = [](const Eqn& e) -> absl::StatusOr<std::vector<DType>> { return std::vector<DType>{e.in(0).dtype()}; },
    .linear = jointly(1),
    .transpose = slice_transpose,
    .slots = kSliceSlots,
    .lower = slice_lower,
    .eval = eval_slice,
    .samples = [] { return Samples{"dynamic_slice f32[4, 6], i32[1] in (-7, 8) {dims=[1], sizes=[3], index_dim=[0]}",
                                   "dynamic_slice f64[4, 6], i32[2] in (-4, 4) {dims=[1, 0], sizes=[1, 2], index_dim=[0]}",
                                   "dynamic_slice f64[3, 6], i32[3, 1] in (0, 6) {dims=[1], sizes=[2], batch=[0], starts_batch=[0], index_dim=[1]}",
                                   "dynamic_slice i32[5], i64[1] in (0, 5) {dims=[0], sizes=[5], index_dim=[0]}",
                                   "dynamic_slice f64[5], i32[1] {dims=[0], sizes=[0], index_dim=[0]}", "dynamic_slice bf16[5], u8[1] in (0, 9) {dims=[0], sizes=[2], index_dim=[0]}"}; },
};

constinit const OpDef dynamic_update_slice = {
    .name = "dynamic_update_slice",
    .doc = "x (operand 0) with the update (operand 1) written at the starts (operand 2) along `dims`; starts as in dynamic_slice.",
    .arity = 3,
    .attrs = attrs_of<DynamicUpdateSlice>(),
    .factors = update_factors,
    .dtypes = [](const Eqn& e) -> absl::StatusOr<std::vector<DType>> {
      if (e.in(0).dtype() != e.in(1).dtype())
        return absl::InvalidArgumentError(fmt::format("operand ({}) and update ({}) must have the same dtype", to_string(e.in(0).type()),
                                                      to_string(e.in(1).type())));
      return std::vector<DType>{e.in(0).dtype()};
    },
    .linear = jointly(0b11),
    .transpose = update_transpose,
    .slots = kUpdateSlots,
    .lower = [](const Eqn& e) -> Lowering {
      const DynamicUpdateSlice& a = e.attrs<DynamicUpdateSlice>();
      return lowering::UpdateSlice{.dims = a.dims, .operand_batch = a.batch, .starts_batch = a.starts_batch, .index_dim = static_cast<int>(a.index_dim[0])};
    },
    .eval = eval_update,
    .samples = [] { return Samples{"dynamic_update_slice f32[4, 6], f32[4, 2], i32[1] in (-7, 8) {dims=[1], index_dim=[0]}",
                                   "dynamic_update_slice f64[4, 6], f64[2, 1], i32[2] in (-4, 4) {dims=[0, 1], index_dim=[0]}",
                                   "dynamic_update_slice f64[3, 6], f64[3, 2], i32[3, 1] in (0, 6) {dims=[1], batch=[0], starts_batch=[0], index_dim=[1]}",
                                   "dynamic_update_slice i32[5], i32[5], i32[1] {dims=[0], index_dim=[0]}",
                                   "dynamic_update_slice f64[5], f64[0], i32[1] {dims=[0], index_dim=[0]}"}; },
};

}  // namespace sheaf::ir::ops
