// gather and scatter, each the other's adjoint. Out-of-range windows: gather clips them or reads the fill, scatter drops
// them; derivatives keep to the same windows.
#include <cmath>

#include "ir/ops/windows.h"

namespace sheaf::ir::ops {
namespace {

using lowering::OutOfBounds;
using ScatterKind = lowering::Scatter::Combine;

int index_dim_of(const DimList& dim) { return dim.empty() ? 0 : static_cast<int>(dim[0]); }

Windows windows(const Gather& a) {
  return {a.offset_dims, a.collapsed, a.start_index_map, a.operand_batch, a.indices_batch, index_dim_of(a.index_dim)};
}
Windows windows(const Scatter& a) {
  return {a.update_window_dims, a.inserted, a.scatter_dims, a.operand_batch, a.indices_batch, index_dim_of(a.index_dim)};
}

// --- gather ------------------------------------------------------------------------------------------------------------

absl::StatusOr<std::vector<DType>> dtype_of_x(const Eqn& e) { return std::vector<DType>{e.in(0).dtype()}; }

absl::StatusOr<Factors> gather_factors(const Eqn& e) {
  const Gather& a = e.attrs<Gather>();
  const Type x = e.in(0).type(), indices = e.in(1).type();
  const Windows w = windows(a);
  const int rank = static_cast<int>(a.offset_dims.size()) + indices.rank() - 1;
  if (absl::Status s = check_windows(w, a.index_dim, x, indices, rank); !s.ok()) return s;
  if (static_cast<int>(a.slice_sizes.size()) != x.rank())
    return absl::InvalidArgumentError(fmt::format("slice_sizes {} must have one entry for each dim of {}", to_string(a.slice_sizes), to_string(x)));
  for (int d = 0; d < x.rank(); ++d) {
    const bool one = lists(a.collapsed, d) || lists(a.operand_batch, d);
    if (a.slice_sizes[d] < 0 || a.slice_sizes[d] > x.dim(d) || (one && a.slice_sizes[d] != 1))
      return absl::InvalidArgumentError(fmt::format("slice size {} along dim {} of {} must be {}", a.slice_sizes[d], d, to_string(x),
                                                    one ? "1" : fmt::format("between 0 and {}", x.dim(d))));
  }
  Factors r;
  WindowFactors t = window_factors(r, w, x, indices, a.slice_sizes, {.cls = FactorClass::R, .combine = Combine::sum, .absolute = true}, {});
  r.in = {std::move(t.x), std::move(t.indices)};
  r.out = {std::move(t.windowed)};
  return r;
}

// What a position out of range reads as.
std::uint64_t fill_bits(DType t, bool zero) {
  if (zero) return 0;
  if (is_float(t)) return to_bits(t, std::nan(""));
  if (is_bool(t)) return 1;
  const int width = 8 * size_bytes(t);
  return is_signed_int(t) ? std::uint64_t{1} << (width - 1) : ~std::uint64_t{0} >> (64 - width);
}

void eval_gather(const Eqn& e, std::span<const Literal> in, std::span<Literal> out) {
  const Gather& a = e.attrs<Gather>();
  const Windows w = windows(a);
  const Literal& x = in[0];
  Literal& y = out[0];
  if (y.size() == 0) return;
  const DimList window = window_of(w, static_cast<int>(x.dims().size()));
  const auto x_strides = strides_of(x.dims()), y_strides = strides_of(y.dims());
  const std::uint64_t fill = fill_bits(x.dtype(), a.fill_zero);
  for_each_window(w, in[1], x.dims(), a.slice_sizes, a.mode != OutOfBounds::fill, static_cast<int>(y.dims().size()),
                  [&](const DimList& start, bool in_range, const DimList& base) {
    DimList i(a.slice_sizes.size());
    do {
      DimList from = start, to = base;
      for (std::size_t d = 0; d < i.size(); ++d) from[d] += i[d];
      for (std::size_t k = 0; k < window.size(); ++k) to[w.window_dims[k]] = i[window[k]];
      if (in_range) y.copy(flatten(to, y_strides), x, flatten(from, x_strides));
      else y.set_bits(flatten(to, y_strides), fill);
    } while (next_index(i, a.slice_sizes));
  });
}

// Indices moved inside, as mode clip reads them.
Value clipped(Builder& b, const Gather& a, Value indices, const Shape& x) {
  const int at = index_dim_of(a.index_dim);
  std::vector<double> high;
  for (std::int64_t d : a.start_index_map) high.push_back(static_cast<double>(x[d] - a.slice_sizes[d]));
  const Value limit = b.constant(Literal(indices.dtype(), {static_cast<std::int64_t>(high.size())}, high));
  return b.emit(clamp, {b.constant(indices.dtype(), 0), indices, broadcast_to(limit, indices.dims(), {at})});
}

Scatter adjoint(const Gather& a, ScatterKind combine) {
  return {.combine = combine, .update_window_dims = a.offset_dims, .inserted = a.collapsed, .scatter_dims = a.start_index_map,
          .operand_batch = a.operand_batch, .indices_batch = a.indices_batch, .index_dim = a.index_dim};
}

Values gather_transpose(Builder& b, const Eqn& e, const Values& in, const Values& ct) {
  const Gather& a = e.attrs<Gather>();
  const Value indices = a.mode == OutOfBounds::fill ? in[1] : clipped(b, a, in[1], e.in(0).dims());
  return {b.emit(scatter, {b.zeros(e.in(0).type()), indices, ct[0]}, adjoint(a, ScatterKind::add)), Value()};
}

// --- scatter -----------------------------------------------------------------------------------------------------------

absl::StatusOr<std::vector<DType>> scatter_dtypes(const Eqn& e) {
  if (e.in(0).dtype() != e.in(2).dtype())
    return absl::InvalidArgumentError(fmt::format("operand ({}) and updates ({}) must have the same dtype", to_string(e.in(0).type()),
                                                  to_string(e.in(2).type())));
  return dtype_of_x(e);
}

// The window's extents along every dim of x, read off the updates.
DimList window_sizes(const Scatter& a, Type x, Type updates) {
  DimList sizes(x.rank(), 1);
  const DimList window = window_of(windows(a), x.rank());
  for (std::size_t i = 0; i < window.size(); ++i) sizes[window[i]] = updates.dims()[a.update_window_dims[i]];
  return sizes;
}

absl::StatusOr<Factors> scatter_factors(const Eqn& e) {
  const Scatter& a = e.attrs<Scatter>();
  const Type x = e.in(0).type(), indices = e.in(1).type(), updates = e.in(2).type();
  const Windows w = windows(a);
  if (absl::Status s = check_windows(w, a.index_dim, x, indices, updates.rank()); !s.ok()) return s;
  if (a.combine == ScatterKind::mul && !a.unique)
    return absl::InvalidArgumentError("multiplying updates in needs unique indices: its derivative divides by nothing only then");
  const DimList sizes = window_sizes(a, x, updates);
  for (int d = 0; d < x.rank(); ++d)
    if (sizes[d] > x.dim(d))
      return absl::InvalidArgumentError(fmt::format("windows of {} ({}) do not fit dim {} of {}", sizes[d], to_string(updates), d, to_string(x)));
  const bool adds = a.combine == ScatterKind::add;
  Factors r;
  WindowFactors t = window_factors(r, w, x, indices, sizes, {.cls = FactorClass::P, .absolute = true},
                                   {.cls = adds ? FactorClass::R : FactorClass::N, .combine = adds ? Combine::sum : Combine::none});
  if (r.dims(t.windowed) != updates.dims())
    return absl::InvalidArgumentError(fmt::format("updates {} must be {} for indices {}", to_string(updates), to_string(r.dims(t.windowed)),
                                                  to_string(indices)));
  r.out = {t.x};
  r.in = {std::move(t.x), std::move(t.indices), std::move(t.windowed)};
  r.additive = adds ? 1 : 0;
  return r;
}

void eval_scatter(const Eqn& e, std::span<const Literal> in, std::span<Literal> out) {
  constexpr ScalarOp kOps[] = {ScalarOp::add, ScalarOp::select, ScalarOp::min, ScalarOp::max, ScalarOp::mul};
  const Scatter& a = e.attrs<Scatter>();
  const Windows w = windows(a);
  const Literal& u = in[2];
  Literal& y = out[0];
  y = in[0];
  if (u.size() == 0) return;
  const DimList sizes = window_sizes(a, in[0].type(), u.type());
  const DimList window = window_of(w, static_cast<int>(y.dims().size()));
  const auto y_strides = strides_of(y.dims()), u_strides = strides_of(u.dims());
  const ScalarOp op = kOps[static_cast<int>(a.combine)];
  const ScalarFn* fn = a.combine == ScatterKind::set ? nullptr : &scalar_primitive(op, y.dtype());
  for_each_window(w, in[1], y.dims(), sizes, false, static_cast<int>(u.dims().size()),
                  [&](const DimList& start, bool in_range, const DimList& base) {
    if (!in_range) return;
    DimList i(sizes.size());
    do {
      DimList to = start, from = base;
      for (std::size_t d = 0; d < i.size(); ++d) to[d] += i[d];
      for (std::size_t k = 0; k < window.size(); ++k) from[w.window_dims[k]] = i[window[k]];
      const std::int64_t p = flatten(to, y_strides);
      const std::uint64_t args[2] = {y.bits(p), u.bits(flatten(from, u_strides))};
      y.set_bits(p, fn ? sheaf::ir::eval(*fn, args) : args[1]);
    } while (next_index(i, sizes));
  });
}

// The windows of x that scatter writes, 0 where it drops them: scatter's adjoint in the updates.
Value gather_back(Builder& b, const Eqn& e, Value x, Value indices) {
  const Scatter& a = e.attrs<Scatter>();
  return b.emit(gather, {x, indices},
                Gather{.offset_dims = a.update_window_dims, .collapsed = a.inserted, .start_index_map = a.scatter_dims,
                       .operand_batch = a.operand_batch, .indices_batch = a.indices_batch, .index_dim = a.index_dim,
                       .slice_sizes = window_sizes(a, e.in(0).type(), e.in(2).type()), .mode = OutOfBounds::fill, .fill_zero = true});
}

Value scatter_with(Builder& b, const Eqn& e, Value x, Value indices, Value updates, ScatterKind combine) {
  Scatter a = e.attrs<Scatter>();
  a.combine = combine;
  return b.emit(scatter, {x, indices, updates}, std::move(a));
}

Linear scatter_linear(const Eqn& e) {
  const Scatter& a = e.attrs<Scatter>();
  return a.combine == ScatterKind::add || (a.combine == ScatterKind::set && a.unique) ? jointly(0b101) : Linear{};
}

Values scatter_transpose(Builder& b, const Eqn& e, const Values& in, const Values& ct) {
  Values x(3);
  if (!in[0]) {
    const bool adds = e.attrs<Scatter>().combine == ScatterKind::add;
    x[0] = adds ? ct[0] : scatter_with(b, e, ct[0], in[1], b.zeros(e.in(2).type()), ScatterKind::set);
  }
  if (!in[2]) x[2] = gather_back(b, e, ct[0], in[1]);
  return x;
}

Value as_mask(Builder& b, Value p, DType t) { return b.emit(convert, {p}, Convert{.to = t}); }

// Several updates may be set at one place: the last one's tangent is the place's.
Value set_tangent(Builder& b, const Eqn& e, Value tx, Value tu) {
  const Type updates = e.in(2).type();
  const Value number = reshape_to(b.emit(iota, {}, Iota{.shape = {updates.num_elements()}, .dim = {0}, .dtype = DType::i64}), updates.dims());
  const Value nobody = b.full(e.in(0).type().with_dtype(DType::i64), -1);
  const Value winner = scatter_with(b, e, nobody, e.in(1), number, ScatterKind::set);
  const Value won = b.emit(eq, {gather_back(b, e, winner, e.in(1)), number});
  const Value kept = b.emit(lt, {winner, b.constant(DType::i64, 0)});
  return scatter_with(b, e, where_or_zero(kept, tx), e.in(1), where_or_zero(won, tu), ScatterKind::add);
}

// Whoever equals the result shares its tangent equally.
Value extreme_tangent(Builder& b, const Eqn& e, Value tx, Value tu) {
  const Value x_won = b.emit(eq, {e.in(0), e.out()}), u_won = b.emit(eq, {e.in(2), gather_back(b, e, e.out(), e.in(1))});
  const DType t = e.out().dtype();
  const Value winners = scatter_with(b, e, as_mask(b, x_won, t), e.in(1), as_mask(b, u_won, t), ScatterKind::add);
  return scatter_with(b, e, where_or_zero(x_won, tx), e.in(1), where_or_zero(u_won, tu), ScatterKind::add) / winners;
}

Values scatter_jvp(Builder& b, const Eqn& e, const Values& t) {
  const Value tx = t[0] ? t[0] : b.zeros(e.in(0).type()), tu = t[2] ? t[2] : b.zeros(e.in(2).type());
  const Scatter& a = e.attrs<Scatter>();
  switch (a.combine) {
    case ScatterKind::add: return {scatter_with(b, e, tx, e.in(1), tu, ScatterKind::add)};
    case ScatterKind::set: return {a.unique ? scatter_with(b, e, tx, e.in(1), tu, ScatterKind::set) : set_tangent(b, e, tx, tu)};
    case ScatterKind::min:
    case ScatterKind::max: return {extreme_tangent(b, e, tx, tu)};
    case ScatterKind::mul: {
      // Unique indices: x becomes x u there, and stays elsewhere.
      const Value ones = b.full(e.in(0).type(), 1);
      const Value factor = scatter_with(b, e, ones, e.in(1), e.in(2), ScatterKind::set);
      return {scatter_with(b, e, tx * factor, e.in(1), tu * gather_back(b, e, e.in(0), e.in(1)), ScatterKind::add)};
    }
  }
  return {Value()};
}

constexpr std::string_view kGatherOffset[] = {"offset_dims"};
constexpr std::string_view kGatherBatch[] = {"operand_batch", "indices_batch"};
constexpr BatchSlot kGatherSlots[] = {{.operands = 0b01, .append = kGatherOffset},
                                      {.operands = 0b11, .append = kGatherBatch, .size_one = "slice_sizes"}};
constexpr std::string_view kScatterWindow[] = {"update_window_dims"};
constexpr BatchSlot kScatterSlots[] = {{.operands = 0b101, .append = kScatterWindow}, {.operands = 0b111, .append = kGatherBatch}};

}  // namespace

constinit const OpDef gather = {
    .name = "gather",
    .doc = "Windows of x (operand 0) of `slice_sizes` at the starts the indices (operand 1) name, as in StableHLO. Out of range: "
           "clip moves the window inside; fill reads NaN, the lowest int, the largest unsigned or true; promise says it never happens.",
    .arity = 2,
    .attrs = attrs_of<Gather>(),
    .factors = gather_factors,
    .dtypes = dtype_of_x,
    .linear_when = [](const Eqn& e) {
      const Gather& a = e.attrs<Gather>();
      return a.mode == OutOfBounds::fill && !a.fill_zero ? Linear{} : jointly(1);
    },
    .jvp = [](Builder& b, const Eqn& e, const Values& t) -> Values {
      Gather a = e.attrs<Gather>();
      a.fill_zero = a.mode == OutOfBounds::fill;  // the fill is a constant
      return {b.emit(gather, {t[0], e.in(1)}, std::move(a))};
    },
    .transpose = gather_transpose,
    .slots = kGatherSlots,
    .lower = [](const Eqn& e) -> Lowering {
      const Gather& a = e.attrs<Gather>();
      return lowering::Gather{.offset_dims = a.offset_dims, .collapsed_dims = a.collapsed, .start_index_map = a.start_index_map,
                              .operand_batch = a.operand_batch, .indices_batch = a.indices_batch, .slice_sizes = a.slice_sizes,
                              .index_vector_dim = index_dim_of(a.index_dim), .mode = a.mode, .fill_bits = fill_bits(e.out().dtype(), a.fill_zero)};
    },
    .eval = eval_gather,
    .samples = [] { return Samples{
        "gather f32[8, 6], i32[4, 1] in (-2, 10) {offset_dims=[1], collapsed=[0], start_index_map=[0], index_dim=[1], slice_sizes=[1, 6]}",
        "gather f64[8, 3], i32[4, 1] in (-2, 10) {offset_dims=[1], collapsed=[0], start_index_map=[0], index_dim=[1], slice_sizes=[1, 3], mode=fill}",
        "gather f64[8, 3], i32[4, 1] in (-2, 10) {offset_dims=[1], collapsed=[0], start_index_map=[0], index_dim=[1], slice_sizes=[1, 3], mode=fill, fill_zero=true}",
        "gather f64[4, 6], i32[2, 2] in (0, 5) {offset_dims=[1, 2], start_index_map=[0, 1], index_dim=[1], slice_sizes=[2, 3]}",
        "gather f64[2, 6, 4], i32[2, 4, 1] in (0, 6) {offset_dims=[2], collapsed=[1], start_index_map=[1], operand_batch=[0], indices_batch=[0], index_dim=[2], slice_sizes=[1, 1, 4]}",
        "gather f64[5], i32[1] in (0, 5) {collapsed=[0], start_index_map=[0], index_dim=[0], slice_sizes=[1]}",
        "gather i32[5], i32[3, 1] in (-3, 8) {collapsed=[0], start_index_map=[0], index_dim=[1], slice_sizes=[1], mode=fill}",
        "gather f32[5, 2], i32[0, 1] {offset_dims=[1], collapsed=[0], start_index_map=[0], index_dim=[1], slice_sizes=[1, 2]}",
        "gather bf16[5, 2], i64[1, 3] in (0, 5) {offset_dims=[1], collapsed=[0], start_index_map=[0], index_dim=[0], slice_sizes=[1, 2]}"}; },
};

constinit const OpDef scatter = {
    .name = "scatter",
    .doc = "x (operand 0) with windows of the updates (operand 2) combined in at the starts the indices (operand 1) name, in row-major order "
           "of the index vectors. Windows out of range are dropped; `set` keeps the last. `unique` promises that no two windows overlap.",
    .arity = 3,
    .attrs = attrs_of<Scatter>(),
    .factors = scatter_factors,
    .dtypes = scatter_dtypes,
    .linear_when = scatter_linear,
    .jvp = scatter_jvp,
    .transpose = scatter_transpose,
    .slots = kScatterSlots,
    .lower = [](const Eqn& e) -> Lowering {
      const Scatter& a = e.attrs<Scatter>();
      return lowering::Scatter{.combine = a.combine, .update_window_dims = a.update_window_dims, .inserted_dims = a.inserted,
                               .scatter_dims = a.scatter_dims, .operand_batch = a.operand_batch, .indices_batch = a.indices_batch,
                               .index_vector_dim = index_dim_of(a.index_dim)};
    },
    .eval = eval_scatter,
    .ulp = 1,
    .samples = [] { return Samples{
        "scatter f64[8, 3], i32[4, 1] in (-1, 9), f64[4, 3] {update_window_dims=[1], inserted=[0], scatter_dims=[0], index_dim=[1]}",
        "scatter f64[2, 6, 4], i32[2, 2, 1] in (0, 6), f64[2, 2, 4] {update_window_dims=[2], inserted=[1], scatter_dims=[1], operand_batch=[0], indices_batch=[0], index_dim=[2]}",
        "scatter f32[5], i32[7, 1] in (0, 5), f32[7] {inserted=[0], scatter_dims=[0], index_dim=[1]}",
        "scatter f64[5], i32[7, 1] in (0, 5), f64[7] {combine=set, inserted=[0], scatter_dims=[0], index_dim=[1]}",
        "scatter f64[5], i32[1, 1] in (0, 5), f64[1] {combine=set, inserted=[0], scatter_dims=[0], index_dim=[1], unique=true}",
        "scatter f64[5], i32[1, 1] in (0, 5), f64[1] {combine=mul, inserted=[0], scatter_dims=[0], index_dim=[1], unique=true}",
        "scatter f64[5], i32[7, 1] in (0, 5), f64[7] {combine=max, inserted=[0], scatter_dims=[0], index_dim=[1]}",
        "scatter i32[5], i32[7, 1] in (-2, 7), i32[7] {inserted=[0], scatter_dims=[0], index_dim=[1]}",
        "scatter f64[6], i32[2, 1] in (0, 5), f64[2, 3] {update_window_dims=[1], scatter_dims=[0], index_dim=[1]}",
        "scatter f32[5], i32[0, 1], f32[0] {inserted=[0], scatter_dims=[0], index_dim=[1]}"}; },
};

}  // namespace sheaf::ir::ops
