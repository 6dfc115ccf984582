// Slices at computed starts: reading one, and overwriting one. A negative start counts from the end, once, and is then
// moved inside, so a slice never leaves its array; both ops are linear in what they read and write.
#include "ir/ops/windows.h"

namespace sheaf::ir::ops {
namespace {

// What both ops say about starts.
struct Starts {
  DimList dims, batch, starts_batch, index_dim;
};
Starts starts_of(const DynamicSlice& a) { return {a.dims, a.batch, a.starts_batch, a.index_dim}; }
Starts starts_of(const DynamicUpdateSlice& a) { return {a.dims, a.batch, a.starts_batch, a.index_dim}; }

absl::Status check_starts(const Starts& s, Type x, Type starts) {
  if (!is_int(starts.dtype()))
    return absl::InvalidArgumentError(fmt::format("starts ({}) must be integers", to_string(starts)));
  if (absl::Status status = check_dims("dims", concat(s.dims, s.batch), x.rank()); !status.ok()) return status;
  if (s.batch.size() != s.starts_batch.size())
    return absl::InvalidArgumentError(
        fmt::format("batch={} and starts_batch={} must pair up", to_string(s.batch), to_string(s.starts_batch)));
  if (absl::Status status = check_one_dim("index_dim", s.index_dim, starts.rank()); !status.ok()) return status;
  const DimList of_starts = concat(s.index_dim, s.starts_batch);
  if (absl::Status status = check_dims("dims of the starts", of_starts, starts.rank()); !status.ok()) return status;
  if (static_cast<int>(of_starts.size()) != starts.rank() ||
      starts.dims()[s.index_dim[0]] != static_cast<std::int64_t>(s.dims.size()))
    return absl::InvalidArgumentError(fmt::format("starts ({}) must hold {} along index_dim, one for each of dims {}",
                                                  to_string(starts), s.dims.size(), to_string(s.dims)));
  for (std::size_t i = 0; i < s.batch.size(); ++i) {
    const std::int64_t m = x.dims()[s.batch[i]], n = starts.dims()[s.starts_batch[i]];
    if (m != n)
      return absl::InvalidArgumentError(
          fmt::format("operand dim {} ({}) and starts dim {} ({}) must match", s.batch[i], m, s.starts_batch[i], n));
    // A lowered gather pairs batch dims in order.
    for (std::size_t j = 0; j < i; ++j)
      if ((s.batch[j] < s.batch[i]) != (s.starts_batch[j] < s.starts_batch[i]))
        return absl::InvalidArgumentError(fmt::format("batch={} and starts_batch={} must be in the same order",
                                                      to_string(s.batch), to_string(s.starts_batch)));
  }
  return absl::OkStatus();
}

// Size of the slice along each dim: those given along `dims`, else x's.
DimList slice_sizes(const DynamicSlice& a, const Shape& x) {
  DimList sizes = x;
  for (std::size_t k = 0; k < a.dims.size(); ++k) sizes[a.dims[k]] = a.sizes[k];
  return sizes;
}

// Factors of x, the slice and the starts. Along `dims` a slice of one element sums over parts of x; an update is
// written in parts; other slices need x whole.
struct SliceFactors {
  TensorFactors x, slice, starts;
};
absl::StatusOr<SliceFactors> slice_factors(Factors& r, const Starts& s, Type x, const DimList& sizes, Type starts,
                                           bool is_update) {
  if (absl::Status status = check_starts(s, x, starts); !status.ok()) return status;
  SliceFactors f{{}, {}, TensorFactors(starts.rank())};
  for (int d = 0; d < x.rank(); ++d) {
    const std::int64_t n = x.dim(d), m = sizes[d];
    const bool is_sliced = lists(s.dims, d);
    if (is_sliced ? m < 0 || m > n : m != n)
      return absl::InvalidArgumentError(
          is_sliced ? fmt::format("a slice of {} does not fit dim {} ({})", m, d, n)
                    : fmt::format("update dim {} ({}) and operand dim {} ({}) must match", d, m, d, n));
    if (!is_sliced || (is_update && m == n)) {
      f.x.push_back({r.add(n)});
      f.slice.push_back(f.x.back());
      continue;
    }
    if (is_update) f.x.push_back({r.add(n, FactorClass::P, Combine::none, true)});
    else if (m == 1) f.x.push_back({r.add(n, FactorClass::R, sum_of_one(x.dtype()), true)});
    else f.x.push_back({r.add(n, FactorClass::N)});
    f.slice.push_back({r.add(m, FactorClass::N)});
  }
  for (std::size_t i = 0; i < s.batch.size(); ++i) f.starts[s.starts_batch[i]] = f.x[s.batch[i]];
  f.starts[s.index_dim[0]] = {r.add(static_cast<std::int64_t>(s.dims.size()), FactorClass::N)};
  return f;
}

absl::StatusOr<Factors> dynamic_slice_factors(const Eqn& e) {
  const DynamicSlice& a = e.attrs<DynamicSlice>();
  if (a.sizes.size() != a.dims.size())
    return absl::InvalidArgumentError(
        fmt::format("sizes={} must have one entry for each of dims {}", to_string(a.sizes), to_string(a.dims)));
  if (absl::Status s = check_dims("dims", a.dims, e.in(0).rank()); !s.ok()) return s;
  Factors r;
  auto f = slice_factors(r, starts_of(a), e.in(0).type(), slice_sizes(a, e.in(0).dims()), e.in(1).type(), false);
  if (!f.ok()) return f.status();
  r.in = {std::move(f->x), std::move(f->starts)};
  r.out = {std::move(f->slice)};
  return r;
}

absl::StatusOr<Factors> update_factors(const Eqn& e) {
  const Type x = e.in(0).type(), update = e.in(1).type();
  if (x.rank() != update.rank())
    return absl::InvalidArgumentError(
        fmt::format("update ({}) must have the rank of the operand ({})", to_string(update), to_string(x)));
  Factors r;
  auto f = slice_factors(r, starts_of(e.attrs<DynamicUpdateSlice>()), x, update.dims(), e.in(2).type(), true);
  if (!f.ok()) return f.status();
  r.in = {f->x, std::move(f->slice), std::move(f->starts)};
  r.out = {std::move(f->x)};
  return r;
}

absl::StatusOr<std::vector<DType>> update_dtypes(const Eqn& e) {
  if (e.in(0).dtype() != e.in(1).dtype())
    return absl::InvalidArgumentError(fmt::format("operand ({}) and update ({}) must have the same dtype",
                                                  to_string(e.in(0).type()), to_string(e.in(1).type())));
  return std::vector<DType>{e.in(0).dtype()};
}

DynamicUpdateSlice update_attrs(const DynamicSlice& a) {
  return {.dims = a.dims, .batch = a.batch, .starts_batch = DimList(a.starts_batch), .index_dim = DimList(a.index_dim)};
}

Values dynamic_slice_transpose(Builder& b, const Eqn& e, const Values& operands, const Values& cts) {
  const Value zeros = b.zeros(e.in(0).type());
  return {b.emit(dynamic_update_slice, {zeros, cts[0], operands[1]}, update_attrs(e.attrs<DynamicSlice>())), Value()};
}

Values update_transpose(Builder& b, const Eqn& e, const Values& operands, const Values& cts) {
  const DynamicUpdateSlice& a = e.attrs<DynamicUpdateSlice>();
  const Type update = e.in(1).type();
  Value x_ct, update_ct;
  if (!operands[0]) x_ct = b.emit(dynamic_update_slice, {cts[0], b.zeros(update), operands[2]}, a);
  if (!operands[1]) {
    DynamicSlice slice{.dims = a.dims,
                       .sizes = {},
                       .batch = a.batch,
                       .starts_batch = DimList(a.starts_batch),
                       .index_dim = DimList(a.index_dim)};
    for (std::int64_t d : a.dims) slice.sizes.push_back(update.dims()[d]);
    update_ct = b.emit(dynamic_slice, {cts[0], operands[2]}, std::move(slice));
  }
  return {x_ct, update_ct, Value()};
}

// Calls f(i, j): element i of the slice, in row-major order, is element j of x.
template <class F>
void for_each_element(const Starts& s, const Shape& x, const Shape& slice, const Literal& starts, F f) {
  if (num_elements(slice) == 0) return;
  const DimList strides = strides_of(x), start_strides = strides_of(starts.dims());
  DimList at(x.size(), 0);
  std::int64_t i = 0;
  do {
    std::int64_t base = 0, j = flatten(at, strides);
    for (std::size_t b = 0; b < s.batch.size(); ++b) base += at[s.batch[b]] * start_strides[s.starts_batch[b]];
    for (std::size_t k = 0; k < s.dims.size(); ++k) {
      const std::int64_t d = s.dims[k];
      std::int64_t start = index_value(starts, base + static_cast<std::int64_t>(k) * start_strides[s.index_dim[0]]);
      if (start < 0) start += x[d];
      j += std::clamp<std::int64_t>(start, 0, x[d] - slice[d]) * strides[d];
    }
    f(i++, j);
  } while (next_index(at, slice));
}

void eval_dynamic_slice(const Eqn& e, std::span<const Literal> in, std::span<Literal> out) {
  for_each_element(starts_of(e.attrs<DynamicSlice>()), in[0].dims(), out[0].dims(), in[1],
                   [&](std::int64_t i, std::int64_t j) { out[0].copy(i, in[0], j); });
}

void eval_update(const Eqn& e, std::span<const Literal> in, std::span<Literal> out) {
  out[0] = in[0];
  for_each_element(starts_of(e.attrs<DynamicUpdateSlice>()), in[0].dims(), in[1].dims(), in[2],
                   [&](std::int64_t i, std::int64_t j) { out[0].copy(j, in[1], i); });
}

// The places that `starts` mean in x of these dims: of slices of these sizes, per dim.
WindowStarts places(const Starts& s, Value starts, const Shape& x, const DimList& sizes) {
  return WindowStarts(starts, s.index_dim[0], entries_at(x, s.dims)).wrapped().clamped(entries_at(sizes, s.dims));
}

// A slice of one element is in one part, and zeros in the others.
Values localize_dynamic_slice(const Shard& s) {
  const DynamicSlice& a = s.whole.attrs<DynamicSlice>();
  const Shape& x = s.whole.in(0).dims();
  const DimList sizes = slice_sizes(a, x);
  Gather attrs{.offset_dims = {},
               .start_index_map = a.dims,
               .operand_batch = a.batch,
               .indices_batch = DimList(a.starts_batch),
               .index_dim = DimList(a.index_dim),
               .slice_sizes = s.local_dims(s.factors.out[0])};
  const DimList offset_dims = other_dims(a.batch, s.whole.in(0).rank());
  attrs.offset_dims.assign(offset_dims.begin(), offset_dims.end());
  for (const std::int64_t d : a.batch) attrs.slice_sizes[d] = 1;
  return {windows_in_part(s, places(starts_of(a), s.operands[1], x, sizes), std::move(attrs))};
}

// An update of x that may lie beyond what a device holds of x: it rewrites a slab no wider than the part, at `slabs`,
// the elements of which stand from `from` on in the update.
struct LocalUpdate {
  const DynamicUpdateSlice& a;
  Values offsets;  // of the part, along each of a.dims; null where it is whole
  Value x, update;
  Shape slab;
  WindowStarts slabs;
  Value from;

  explicit LocalUpdate(const Shard& s)
      : a(s.whole.attrs<DynamicUpdateSlice>()),
        offsets(absolute_offsets(s, a.dims)),
        x(s.operands[0]),
        update(s.operands[1]),
        slab(update.dims()),
        slabs(places(starts_of(a), s.operands[2], s.whole.in(0).dims(), s.whole.in(1).dims()).in_part(offsets)) {
    for (std::size_t k = 0; k < a.dims.size(); ++k)
      if (offsets[k]) slab[a.dims[k]] = std::min(slab[a.dims[k]], x.dims()[a.dims[k]]);
    const Value wanted = slabs.value();
    slabs = WindowStarts(wanted, a.index_dim[0], entries_at(x.dims(), a.dims)).clamped(entries_at(slab, a.dims));
    from = slabs.value() - wanted;
  }

  Value slice_at(Value of, const WindowStarts& starts) const {
    return of.builder().emit(dynamic_slice, {of, starts.value()},
                             DynamicSlice{.dims = a.dims,
                                          .sizes = entries_at(slab, a.dims),
                                          .batch = a.batch,
                                          .starts_batch = DimList(a.starts_batch),
                                          .index_dim = DimList(a.index_dim)});
  }

  // The update's elements for the slab, anything beside them.
  Value written() const {
    Value source = update;
    DimList low(a.dims.size(), 0);
    for (std::size_t k = 0; k < a.dims.size(); ++k) {
      if (!offsets[k]) continue;
      low[k] = slab[a.dims[k]];
      source = pad_dim(source, static_cast<int>(a.dims[k]), low[k], low[k], 0);
    }
    return slice_at(source,
                    WindowStarts(from + slabs.per_component(low), a.index_dim[0], entries_at(source.dims(), a.dims))
                        .clamped(entries_at(slab, a.dims)));
  }

  // Which elements of the slab are written, as far as a.dims[k] says.
  Value is_written(std::size_t k) const {
    const int index_dim = static_cast<int>(a.index_dim[0]), component = static_cast<int>(k);
    const Value row = slice_dim(from, index_dim, component, component + 1);
    Shape dims;
    DimList to;
    for (const std::int64_t d : other_dims(a.index_dim, from.rank())) {
      dims.push_back(from.dims()[d]);
      to.push_back(a.batch[std::find(a.starts_batch.begin(), a.starts_batch.end(), d) - a.starts_batch.begin()]);
    }
    Builder& b = from.builder();
    const Value place = b.emit(iota, {}, Iota{.shape = slab, .dim = {a.dims[k]}, .dtype = from.dtype()}) +
                        broadcast_to(reshape_to(row, dims), slab, to);
    const double size = static_cast<double>(update.dims()[a.dims[k]]);
    return b.emit(and_, {b.emit(ge, {place, number(place, 0)}), b.emit(lt, {place, number(place, size)})});
  }
};

Values localize_update(const Shard& s) {
  const LocalUpdate u(s);
  Value is_new;
  for (std::size_t k = 0; k < u.offsets.size(); ++k) {
    if (!u.offsets[k]) continue;
    const Value here = u.is_written(k);
    is_new = is_new ? s.b.emit(and_, {is_new, here}) : here;
  }
  const Value slab = where(is_new, u.written(), u.slice_at(u.x, u.slabs));
  return {s.b.emit(dynamic_update_slice, {u.x, slab, u.slabs.value()}, u.a)};
}

Lowering lower_dynamic_slice(const Eqn& e) {
  const DynamicSlice& a = e.attrs<DynamicSlice>();
  lowering::Gather g{.offset_dims = other_dims(a.batch, e.in(0).rank()),
                     .collapsed_dims = {},
                     .start_index_map = a.dims,
                     .operand_batch = a.batch,
                     .indices_batch = a.starts_batch,
                     .slice_sizes = slice_sizes(a, e.in(0).dims()),
                     .index_vector_dim = static_cast<int>(a.index_dim[0]),
                     .mode = lowering::OutOfBounds::clip,
                     .wrap = true};
  for (std::int64_t d : a.batch) g.slice_sizes[d] = 1;
  return g;
}

constexpr std::string_view kBatchFields[] = {"batch", "starts_batch"};
constexpr BatchSlot kSliceSlots[] = {{.operands = 0b11, .append = kBatchFields}};
constexpr BatchSlot kUpdateSlots[] = {{.operands = 0b111, .append = kBatchFields}};

}  // namespace

constinit const OpDef dynamic_slice = {
    .name = "dynamic_slice",
    .doc =
        "A slice of `sizes` along `dims`, all of the other dims. The starts hold one integer for each of `dims` along "
        "index_dim; a negative one counts from the end, once, and then each is moved so that the slice fits. Dims "
        "`batch` of the operand have starts of their own: dims `starts_batch` of the starts.",
    .arity = 2,
    .attrs = attrs_of<DynamicSlice>(),
    .factors = dynamic_slice_factors,
    .dtypes = [](const Eqn& e) -> absl::StatusOr<std::vector<DType>> { return std::vector{e.in(0).dtype()}; },
    .linear = jointly(0b01),
    .transpose = dynamic_slice_transpose,
    .slots = kSliceSlots,
    .localize = localize_dynamic_slice,
    .lower = lower_dynamic_slice,
    .eval = eval_dynamic_slice,
    .cost = [](const Eqn& e) { return Cost{.flops = 0, .bytes = static_cast<double>(2 * e.out().type().bytes())}; },
    .samples =
        [] {
          return Samples{
              "dynamic_slice f32[4, 6], i32[1] in (-3, 8) {dims=[1], sizes=[3], index_dim=[0]}",
              "dynamic_slice f64[4, 6], i32[2] in (-9, 9) {dims=[1, 0], sizes=[1, 2], index_dim=[0]}",
              "dynamic_slice f64[3, 5], i64[1, 3] in (-6, 6) {dims=[1], sizes=[2], batch=[0], starts_batch=[1], "
              "index_dim=[0]}",
              "dynamic_slice f16[5], i32[1] in (-6, 6) {dims=[0], sizes=[2], index_dim=[0]}",
              "dynamic_slice bf16[1, 7], u8[1] in (0, 9) {dims=[1], sizes=[7], index_dim=[0]}",
              "dynamic_slice i32[5], i32[1] {dims=[0], sizes=[0], index_dim=[0]}",
              "dynamic_slice f64[0, 3], i32[1] {dims=[1], sizes=[2], index_dim=[0]}",
              "dynamic_slice f32[2, 3], i32[0] {index_dim=[0]}"};
        },
};

constinit const OpDef dynamic_update_slice = {
    .name = "dynamic_update_slice",
    .doc =
        "The operand with `update` written at the starts, which are read as dynamic_slice does: a negative one counts "
        "from the end, once, and then each is moved so that the update fits. Along dims not in `dims` the update is as "
        "wide as the operand.",
    .arity = 3,
    .attrs = attrs_of<DynamicUpdateSlice>(),
    .factors = update_factors,
    .dtypes = update_dtypes,
    .linear = jointly(0b011),
    .transpose = update_transpose,
    .slots = kUpdateSlots,
    .localize = localize_update,
    .lower = [](const Eqn& e) -> Lowering {
      const DynamicUpdateSlice& a = e.attrs<DynamicUpdateSlice>();
      return lowering::UpdateSlice{.dims = a.dims,
                                   .operand_batch = a.batch,
                                   .starts_batch = a.starts_batch,
                                   .index_dim = static_cast<int>(a.index_dim[0])};
    },
    .eval = eval_update,
    .samples =
        [] {
          return Samples{"dynamic_update_slice f32[4, 6], f32[4, 2], i32[1] in (-3, 8) {dims=[1], index_dim=[0]}",
                         "dynamic_update_slice f64[4, 5], f64[2, 1], i32[2] in (-7, 7) {dims=[0, 1], index_dim=[0]}",
                         "dynamic_update_slice f64[3, 5], f64[3, 2], i64[3, 1] in (-6, 6) {dims=[1], batch=[0], "
                         "starts_batch=[0], index_dim=[1]}",
                         "dynamic_update_slice f16[3], f16[3], i32[1] {dims=[0], index_dim=[0]}",
                         "dynamic_update_slice bf16[5], bf16[2], i32[1] in (-6, 6) {dims=[0], index_dim=[0]}",
                         "dynamic_update_slice bool[5], bool[0], i32[1] {dims=[0], index_dim=[0]}"};
        },
};

}  // namespace sheaf::ir::ops
