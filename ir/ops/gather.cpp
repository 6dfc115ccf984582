// Gather: windows of the operand at computed starts. As a map of the operand it is linear but where out-of-range
// windows read as NaN; its derivative then fills with 0, and every transpose adds the windows back where they were
// read.
#include <cmath>
#include <limits>

#include "ir/ops/complex.h"
#include "ir/ops/windows.h"

namespace sheaf::ir::ops {
namespace {

using lowering::OutOfBounds;

// Windows out of range read 0 or do not occur.
bool is_linear(const Gather& a) { return a.mode != OutOfBounds::fill || (a.has_fill && a.fill_bits == 0); }

// What a window out of range reads as: the value given, or one that shows.
std::uint64_t fill_bits(const Eqn& e) {
  const DType t = part_dtype(e.in(0).dtype());
  if (e.attrs<Gather>().has_fill) return static_cast<std::uint64_t>(e.attrs<Gather>().fill_bits);
  if (is_bool(t)) return 1;
  if (is_signed_int(t)) return std::uint64_t{1} << (8 * size_bytes(t) - 1);
  if (is_unsigned_int(t)) return ~std::uint64_t{0} >> (64 - 8 * size_bytes(t));
  return to_bits(t, std::numeric_limits<double>::quiet_NaN());
}

// A fill is the bits of one element, and there is one only where it can be read.
absl::StatusOr<std::vector<DType>> gather_dtypes(const Eqn& e) {
  const Gather& a = e.attrs<Gather>();
  const DType t = e.in(0).dtype(), part = part_dtype(t);
  if (a.has_fill && a.mode != OutOfBounds::fill)
    return absl::InvalidArgumentError("has_fill goes with mode=fill alone");
  if (!a.has_fill && a.fill_bits != 0)
    return absl::InvalidArgumentError(fmt::format("fill_bits={} without has_fill", a.fill_bits));
  const int bits = is_bool(part) ? 1 : 8 * static_cast<int>(size_bytes(part));
  if (bits < 64 && static_cast<std::uint64_t>(a.fill_bits) >> bits != 0)
    return absl::InvalidArgumentError(fmt::format("fill_bits={} are not those of one {}", a.fill_bits, name(part)));
  return std::vector{t};
}

absl::Status check_sizes(const Gather& a, Type x) {
  if (static_cast<int>(a.slice_sizes.size()) != x.rank())
    return absl::InvalidArgumentError(
        fmt::format("slice_sizes={} must have one entry for each dim of {}", to_string(a.slice_sizes), to_string(x)));
  for (int d = 0; d < x.rank(); ++d) {
    const std::int64_t size = a.slice_sizes[d];
    const bool is_dropped = lists(a.collapsed, d), is_batch = lists(a.operand_batch, d);
    if ((is_dropped || is_batch) && size != 1)
      return absl::InvalidArgumentError(fmt::format("slice size of dim {} must be 1, not {}", d, size));
    if (size < 0 || (size > x.dim(d) && !is_batch && !(is_dropped && a.mode == OutOfBounds::fill)))
      return absl::InvalidArgumentError(fmt::format("slice size {} does not fit dim {} ({})", size, d, x.dim(d)));
  }
  return absl::OkStatus();
}

absl::StatusOr<Factors> gather_factors(const Eqn& e) {
  const Gather& a = e.attrs<Gather>();
  const Windows w = Windows::of(a);
  const Type x = e.in(0).type(), indices = e.in(1).type();
  if (absl::Status s = check_windows(w, x, indices); !s.ok()) return s;
  if (absl::Status s = check_sizes(a, x); !s.ok()) return s;
  Factors r;
  const Factor one_place{.cls = FactorClass::R, .combine = sum_of_one(x.dtype()), .absolute = true};
  WindowFactors f = window_factors(r, w, x, indices, a.slice_sizes, one_place, {.cls = FactorClass::P});
  r.in = {std::move(f.operand), std::move(f.indices)};
  r.out = {std::move(f.window)};
  return r;
}

// The starts as clip sees them, so that what is added back lands where it was read.
Value clamped_indices(Builder& b, const Eqn& e, Value indices) {
  const Gather& a = e.attrs<Gather>();
  std::vector<double> last;
  for (std::int64_t d : a.start_index_map) last.push_back(static_cast<double>(e.in(0).dims()[d] - a.slice_sizes[d]));
  const Literal limits(indices.dtype(), {static_cast<std::int64_t>(last.size())}, last);
  const Value high = broadcast_to(b.constant(limits), indices.dims(), a.index_dim);
  return b.emit(min, {b.emit(max, {indices, b.zeros(indices.type())}), high});
}

Values gather_jvp(Builder& b, const Eqn& e, const Values& tangents) {
  Gather attrs = e.attrs<Gather>();
  attrs.has_fill = attrs.mode == OutOfBounds::fill;
  attrs.fill_bits = 0;
  return {b.emit(gather, {tangents[0], e.in(1)}, std::move(attrs))};
}

Values gather_transpose(Builder& b, const Eqn& e, const Values& operands, const Values& cts) {
  const Gather& a = e.attrs<Gather>();
  const Value indices = a.mode == OutOfBounds::clip ? clamped_indices(b, e, operands[1]) : operands[1];
  return {b.emit(scatter, {b.zeros(e.in(0).type()), indices, cts[0]},
                 Scatter{.combine = lowering::Scatter::Combine::add,
                         .update_window_dims = DimList(a.offset_dims),
                         .inserted = a.collapsed,
                         .scatter_dims = a.start_index_map,
                         .operand_batch = a.operand_batch,
                         .indices_batch = a.indices_batch,
                         .index_dim = a.index_dim,
                         .deterministic = a.deterministic}),
          Value()};
}

void eval_gather(const Eqn& e, std::span<const Literal> in, std::span<Literal> out) {
  const Gather& a = e.attrs<Gather>();
  Literal& y = out[0];
  if (y.size() == 0) return;
  const Windows w = Windows::of(a);
  const WindowWalk walk(w, in[0].type(), in[1].type(), y.type(), a.slice_sizes, a.mode != OutOfBounds::fill);
  DimList at(y.dims().size(), 0);
  std::int64_t i = 0;
  do {
    const std::int64_t from = walk.position(at, in[1]);
    if (from >= 0) y.copy(i, in[0], from);
    else y.set_bits(i, fill_bits(e));
    ++i;
  } while (next_index(at, y.dims()));
}

// A dim that no index speaks of is read at 0, by whoever holds that.
bool splits_gather(const Eqn& e, const Factors& factors, int factor, std::int64_t) {
  for (const std::int64_t d : e.attrs<Gather>().start_index_map)
    if (factors.in[0][d] == FactorList{factor}) return true;
  return false;
}

// rank 0, what a window out of range reads as.
Value fill_value(Builder& b, const Eqn& e) {
  const DType t = e.in(0).dtype();
  Literal fill(Type(t, {}));
  if (is_complex(t)) fill.set_complex(0, from_bits(part_dtype(t), fill_bits(e)), 0);
  else fill.set_bits(0, fill_bits(e));
  return b.constant(fill);
}

// Whether a window is out of range is asked of the whole, and what it reads as then is one term of the sum over parts.
Values localize_gather(const Shard& s) {
  const Gather& whole = s.whole.attrs<Gather>();
  const DimList dims = whole.start_index_map;
  const DimList sizes = entries_at(whole.slice_sizes, dims);
  WindowStarts starts(s.operands[1], whole.index_dim[0], entries_at(s.whole.in(0).dims(), dims));
  if (whole.mode == OutOfBounds::clip) starts = starts.clamped(sizes);
  const Value y = windows_in_part(s, starts, *static_cast<const Gather*>(s.attributes.get()));
  if (whole.mode != OutOfBounds::fill || is_linear(whole)) return {y};
  std::vector<int> summed;
  for (const std::int64_t d : dims) summed.push_back(s.factors.in[0][d][0]);
  std::erase_if(summed, [&](int f) { return s.factors.factors[f].cls != FactorClass::R; });
  const Value is_here = s.b.emit(and_, {starts.is_outside(sizes), s.is_first(summed)});
  const Value is_filled = broadcast_to(is_here, y.dims(), other_dims(whole.offset_dims, y.rank()));
  return {where(is_filled, broadcast_to(fill_value(s.b, s.whole), y.dims(), {}), y)};
}

// A fill is real.
PartsList gather_on_parts(Builder& b, const Eqn& e, PartsSpan x) {
  Gather imaginary = e.attrs<Gather>();
  imaginary.has_fill = imaginary.mode == OutOfBounds::fill;
  imaginary.fill_bits = 0;
  return {{b.emit(gather, {x[0].re, x[1].re}, e.attrs<Gather>()), b.emit(gather, {x[0].im, x[1].re}, imaginary)}};
}

constexpr std::string_view kBothFields[] = {"operand_batch", "indices_batch"};
constexpr std::string_view kOperandFields[] = {"offset_dims"};
constexpr BatchSlot kSlots[] = {{.operands = 0b11, .append = kBothFields, .size_one = "slice_sizes"},
                                {.operands = 0b01, .append = kOperandFields}};

}  // namespace

constinit const OpDef gather = {
    .name = "gather",
    .doc =
        "Windows of `slice_sizes` of the operand, one for each index vector along `index_dim` of the indices; component "
        "k starts in operand dim start_index_map[k]. Result dims `offset_dims` run inside a window, without the "
        "`collapsed` and batch dims; the others are those of the indices. A window out of range is moved inside "
        "(clip), reads as the value with `fill_bits`, or without one as NaN, the lowest int, the largest unsigned or "
        "true (fill), or must not occur (promise). "
        "The gradient keeps the mode: with clip it goes where the value came from, with fill it is 0.",
    .arity = 2,
    .attrs = attrs_of<Gather>(),
    .factors = gather_factors,
    .dtypes = gather_dtypes,
    .linear_when = [](const Eqn& e) { return is_linear(e.attrs<Gather>()) ? jointly(0b01) : Linear{}; },
    .jvp = gather_jvp,
    .transpose = gather_transpose,
    .slots = kSlots,
    .localize = localize_gather,
    .splits = splits_gather,
    .lower = [](const Eqn& e) -> Lowering {
      const Gather& a = e.attrs<Gather>();
      return lowering::Gather{.offset_dims = a.offset_dims,
                              .collapsed_dims = a.collapsed,
                              .start_index_map = a.start_index_map,
                              .operand_batch = a.operand_batch,
                              .indices_batch = a.indices_batch,
                              .slice_sizes = a.slice_sizes,
                              .index_vector_dim = static_cast<int>(a.index_dim[0]),
                              .mode = a.mode,
                              .fill_bits = fill_bits(e)};
    },
    .on_parts = gather_on_parts,
    .eval = eval_gather,
    .cost =
        [](const Eqn& e) {
          return Cost{.flops = 0, .bytes = static_cast<double>(2 * e.out().type().bytes() + e.in(1).type().bytes())};
        },
    .samples =
        [] {
          return Samples{
              "gather f32[8, 6], i32[4, 1] in (-2, 10) {offset_dims=[1], collapsed=[0], start_index_map=[0], index_dim=[1], "
              "slice_sizes=[1, 6]}",
              "gather f32[8, 6], i32[4, 1] in (-2, 10) {offset_dims=[1], collapsed=[0], start_index_map=[0], index_dim=[1], "
              "slice_sizes=[1, 6], mode=fill}",
              "gather f64[8, 3], i32[4, 1] in (0, 8) {offset_dims=[1], collapsed=[0], start_index_map=[0], index_dim=[1], "
              "slice_sizes=[1, 3], mode=fill}",
              "gather f64[8, 3], i32[4, 1] in (-2, 10) {offset_dims=[1], collapsed=[0], start_index_map=[0], index_dim=[1], "
              "slice_sizes=[1, 3], mode=fill, has_fill=true}",
              "gather f64[5], i32[3, 1] in (-2, 7) {collapsed=[0], start_index_map=[0], index_dim=[1], slice_sizes=[1], "
              "mode=fill, has_fill=true, fill_bits=4607182418800017408}",
              "gather bf16[5], i32[3, 1] in (-2, 7) {collapsed=[0], start_index_map=[0], index_dim=[1], slice_sizes=[1], "
              "mode=fill, has_fill=true, fill_bits=16256}",
              "gather f64[5], i64[3, 1] in (-2, 7) {collapsed=[0], start_index_map=[0], index_dim=[1], slice_sizes=[1]}",
              "gather f64[5], i64[1, 3] in (0, 5) {collapsed=[0], start_index_map=[0], index_dim=[0], slice_sizes=[1], "
              "mode=promise}",
              "gather f64[4, 6], i32[2, 2] in (-1, 5) {offset_dims=[1, 2], start_index_map=[0, 1], index_dim=[1], "
              "slice_sizes=[2, 3]}",
              "gather f64[2, 6, 4], i32[2, 3, 1] in (0, 6) {offset_dims=[2], collapsed=[1], start_index_map=[1], "
              "operand_batch=[0], indices_batch=[0], index_dim=[2], slice_sizes=[1, 1, 4]}",
              "gather i8[4, 3], u8[2, 1] in (0, 6) {offset_dims=[0], collapsed=[0], start_index_map=[0], index_dim=[1], "
              "slice_sizes=[1, 3], mode=fill}",
              "gather u16[5], i8[2, 1] in (-2, 7) {collapsed=[0], start_index_map=[0], index_dim=[1], slice_sizes=[1], "
              "mode=fill}",
              "gather bool[5], i32[2, 1] in (-2, 7) {collapsed=[0], start_index_map=[0], index_dim=[1], slice_sizes=[1], "
              "mode=fill}",
              "gather c64[5], i32[2, 1] in (-2, 7) {collapsed=[0], start_index_map=[0], index_dim=[1], slice_sizes=[1], "
              "mode=fill}",
              "gather bf16[3, 4], i32[0, 1] {offset_dims=[1], collapsed=[0], start_index_map=[0], index_dim=[1], "
              "slice_sizes=[1, 4]}",
              "gather f16[3, 0], i32[2, 1] {offset_dims=[1], collapsed=[0], start_index_map=[0], index_dim=[1], "
              "slice_sizes=[1, 0]}"};
        },
};

}  // namespace sheaf::ir::ops
