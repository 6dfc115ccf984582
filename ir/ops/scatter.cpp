// Scatter: updates written into windows of the operand, combined with what is there. add is linear, set is where no
// position is written twice; the other derivatives weigh each update by what else went to its position, so they are
// exact when updates collide.
#include <limits>

#include "ir/ops/complex.h"
#include "ir/ops/sheet.h"
#include "ir/ops/windows.h"

namespace sheaf::ir::ops {
namespace {

using Combines = lowering::Scatter::Combine;

std::string_view word(Combines c) { return kCombineWords[static_cast<int>(c)]; }

absl::StatusOr<std::vector<DType>> scatter_dtypes(const Eqn& e) {
  const Combines combine = e.attrs<Scatter>().combine;
  const DType t = e.in(0).dtype();
  if (t != e.in(2).dtype())
    return absl::InvalidArgumentError(fmt::format("operand ({}) and updates ({}) must have the same dtype",
                                                  to_string(e.in(0).type()), to_string(e.in(2).type())));
  const bool moves = combine == Combines::set || (combine == Combines::add && is_complex(t));
  if (!moves && !is_int(t) && !is_float(t))
    return absl::InvalidArgumentError(
        fmt::format("{} takes integers or floats, not {}", word(combine), to_string(e.in(0).type())));
  return std::vector<DType>{t};
}

// How parts of the updates, each scattered on its own, make the whole: sums may start from zeros elsewhere and extremes
// from the operand itself; set and mul need all updates in one place.
Factor index_batch_factor(Combines combine) {
  switch (combine) {
    case Combines::add: return {.cls = FactorClass::R, .combine = Combine::sum};
    case Combines::min: return {.cls = FactorClass::R, .combine = Combine::min};
    case Combines::max: return {.cls = FactorClass::R, .combine = Combine::max};
    case Combines::set:
    case Combines::mul: return {.cls = FactorClass::N};
  }
  return {};
}

absl::StatusOr<Factors> scatter_factors(const Eqn& e) {
  const Scatter& a = e.attrs<Scatter>();
  const Windows w = Windows::of(a);
  const Type x = e.in(0).type(), indices = e.in(1).type(), updates = e.in(2).type();
  if (absl::Status s = check_windows(w, x, indices); !s.ok()) return s;
  const int rank = static_cast<int>(a.update_window_dims.size()) + indices.rank() - 1;
  if (updates.rank() != rank)
    return absl::InvalidArgumentError(
        fmt::format("updates ({}) must have rank {}: {} window dims and those of the indices ({})", to_string(updates),
                    rank, a.update_window_dims.size(), to_string(indices)));
  const DimList sizes = scatter_sizes(a, x, updates);
  for (std::int64_t d : w.windowed(x.rank()))
    if (sizes[d] > x.dims()[d])
      return absl::InvalidArgumentError(
          fmt::format("an update window of {} does not fit dim {} ({})", sizes[d], d, x.dims()[d]));
  Factors r;
  WindowFactors f =
      window_factors(r, w, x, indices, sizes, {.cls = FactorClass::P, .absolute = true}, index_batch_factor(a.combine));
  if (r.dims(f.window) != updates.dims())
    return absl::InvalidArgumentError(
        fmt::format("updates ({}) must be {}", to_string(updates), to_string(Type(updates.dtype(), r.dims(f.window)))));
  r.in = {f.operand, std::move(f.indices), std::move(f.window)};
  r.out = {std::move(f.operand)};
  if (a.combine == Combines::add) r.additive = 0b001;
  return r;
}

// A dim that no index speaks of is written at 0, by whoever holds that.
bool splits_scatter(const Eqn& e, const Factors& factors, int factor, std::int64_t) {
  for (const std::int64_t d : e.attrs<Scatter>().scatter_dims)
    if (factors.in[0][d] == FactorList{factor}) return true;
  return false;
}

// Updates of other parts are out of range in this one.
Values localize_scatter(const Shard& s) {
  const Scatter& a = s.whole.attrs<Scatter>();
  const WindowStarts starts(s.operands[1], a.index_dim[0], entries_at(s.whole.in(0).dims(), a.scatter_dims));
  return s.emit({s.operands[0], starts.in_part(absolute_offsets(s, a.scatter_dims)).value(), s.operands[2]});
}

Value scatter_as(Builder& b, Scatter attrs, Combines combine, Value x, Value indices, Value updates) {
  attrs.combine = combine;
  return b.emit(scatter, {x, indices, updates}, std::move(attrs));
}

// 1, 2, ... in row-major order: names of elements, 0 being none.
Value element_ids(Builder& b, const Shape& dims) {
  const std::int64_t n = num_elements(dims);
  const DType dtype = n < std::numeric_limits<std::int32_t>::max() ? DType::i32 : DType::i64;
  return reshape_to(b.emit(iota, {}, Iota{.shape = {n}, .dim = {0}, .dtype = dtype}) + 1.0, dims);
}

// The last writer of each position keeps its tangent, and the operand keeps it where nothing was written.
Value set_tangent(Builder& b, const Eqn& e, Value dx, Value du) {
  const Scatter& a = e.attrs<Scatter>();
  const Value indices = e.in(1);
  const Value ids = element_ids(b, e.in(2).dims());
  const Value none = b.zeros(Type(ids.dtype(), e.in(0).dims()));
  const Value writer = scatter_as(b, a, Combines::set, none, indices, ids);
  const Value kept = dx ? where_or_zero(b.emit(eq, {writer, none}), dx) : b.zeros(e.in(0).type());
  if (!du) return kept;
  const DimList sizes = scatter_sizes(a, e.in(0).type(), e.in(2).type());
  const Value is_last = b.emit(eq, {gather_windows(writer, indices, a, sizes), ids});
  return scatter_as(b, a, Combines::add, kept, indices, where_or_zero(is_last, du));
}

// The mean of the tangents of all contributions equal to the extreme.
Value extreme_tangent(Builder& b, const Eqn& e, Value dx, Value du) {
  const Scatter& a = e.attrs<Scatter>();
  const Value x = e.in(0), indices = e.in(1), u = e.in(2), y = e.out();
  const Value seen = gather_windows(y, indices, a, scatter_sizes(a, x.type(), u.type()));
  const Value x_wins = b.emit(eq, {x, y}), u_wins = b.emit(eq, {u, seen});
  const DType wide = accumulator(x.dtype());
  const auto total = [&](Value of_x, Value of_u) {
    return scatter_as(b, a, Combines::add, convert_to(of_x, wide), indices, convert_to(of_u, wide));
  };
  const Value of_winners =
      total(where_or_zero(x_wins, or_zeros(b, dx, x.type())), where_or_zero(u_wins, or_zeros(b, du, u.type())));
  return convert_to(of_winners / total(x_wins, u_wins), x.dtype());
}

// x moved by `by` along its only dim, with `fill` where nothing moves in.
Value shifted(Value x, std::int64_t by, double fill) {
  Builder& b = x.builder();
  return b.emit(pad, {x, b.constant(x.dtype(), fill)}, Pad{.low = {by}, .high = {-by}, .interior = {0}});
}

// For each element of a list sorted by `group` the product of the elements of its group that come before it (sign 1) or
// after it (-1): after the step of width s it covers the s nearest, so widths double until they cover everything.
Value product_beside(Value group, Value x, int sign) {
  Builder& b = x.builder();
  const Value ones = b.full(x.type(), 1);
  const auto from = [&](Value v, std::int64_t distance) {
    const Value is_same = b.emit(eq, {group, shifted(group, sign * distance, -1)});
    return b.emit(select, {is_same, shifted(v, sign * distance, 1), ones});
  };
  Value product = from(x, 1);
  for (std::int64_t s = 1; s < x.dims()[0]; s *= 2) product = product * from(product, s);
  return product;
}

// For each update the product of the others that went to its position, without division: zeros stay exact, to all
// orders.
Value product_of_rivals(Builder& b, const Scatter& a, Type x, Value indices, Value u) {
  const std::int64_t n = u.type().num_elements();
  if (a.unique || n <= 1) return b.full(u.type(), 1);
  const DimList sizes = scatter_sizes(a, x, u.type());
  const Value position = reshape_to(gather_windows(element_ids(b, x.dims()), indices, a, sizes), {n});
  const auto beside = [](Value group, Value v) { return product_beside(group, v, 1) * product_beside(group, v, -1); };
  if (a.sorted && a.operand_batch.empty() && num_elements(sizes) == 1)
    return reshape_to(beside(position, reshape_to(u, {n})), u.dims());
  const Sort by_first{.dim = {0}, .num_keys = 1};
  const auto sorted = [&](Values v) { return b.emit_all(&sort, std::move(v), std::make_shared<const Sort>(by_first)); };
  const Values s = sorted({position, element_ids(b, {n}), reshape_to(u, {n})});
  return reshape_to(sorted({s[1], beside(s[0], s[2])})[1], u.dims());
}

// d(x u1 u2 ..) = dx (u1 u2 ..) + du1 (x u2 ..) + ...
Value mul_tangent(Builder& b, const Eqn& e, Value dx, Value du) {
  const Scatter& a = e.attrs<Scatter>();
  const DType dtype = dx ? dx.dtype() : du.dtype(), wide = accumulator(dtype);
  const Value x = convert_to(e.in(0), wide), indices = e.in(1), u = convert_to(e.in(2), wide);
  Value result = b.zeros(x.type());
  if (dx) result = convert_to(dx, wide) * scatter_as(b, a, Combines::mul, b.full(x.type(), 1), indices, u);
  if (du) {
    const Value seen = gather_windows(x, indices, a, scatter_sizes(a, x.type(), u.type()));
    const Value weights = seen * product_of_rivals(b, a, x.type(), indices, u);
    result = scatter_as(b, a, Combines::add, result, indices, weights * convert_to(du, wide));
  }
  return convert_to(result, dtype);
}

bool is_linear(const Scatter& a) { return a.combine == Combines::add || (a.combine == Combines::set && a.unique); }

Values scatter_jvp(Builder& b, const Eqn& e, const Values& tangents) {
  const Scatter& a = e.attrs<Scatter>();
  const Value dx = tangents[0], du = tangents[2];
  if (is_linear(a))
    return {scatter_as(b, a, a.combine, or_zeros(b, dx, e.in(0).type()), e.in(1), or_zeros(b, du, e.in(2).type()))};
  switch (a.combine) {
    case Combines::set: return {set_tangent(b, e, dx, du)};
    case Combines::min:
    case Combines::max: return {extreme_tangent(b, e, dx, du)};
    case Combines::mul: return {mul_tangent(b, e, dx, du)};
    case Combines::add: break;  // linear
  }
  return {Value()};
}

Values scatter_transpose(Builder& b, const Eqn& e, const Values& operands, const Values& cts) {
  const Scatter& a = e.attrs<Scatter>();
  const Type x = e.in(0).type(), u = e.in(2).type();
  const Value indices = operands[1];
  Value x_ct, u_ct;
  if (!operands[0])
    x_ct = a.combine == Combines::add ? cts[0] : scatter_as(b, a, Combines::set, cts[0], indices, b.zeros(u));
  if (!operands[2]) u_ct = gather_windows(cts[0], indices, a, scatter_sizes(a, x, u));
  return {x_ct, Value(), u_ct};
}

ScalarOp scalar_op_of(Combines combine) {
  switch (combine) {
    case Combines::min: return ScalarOp::min;
    case Combines::max: return ScalarOp::max;
    case Combines::mul: return ScalarOp::mul;
    case Combines::add:
    case Combines::set: break;
  }
  return ScalarOp::add;
}

void eval_scatter(const Eqn& e, std::span<const Literal> in, std::span<Literal> out) {
  const Scatter& a = e.attrs<Scatter>();
  const Literal &indices = in[1], &updates = in[2];
  Literal& y = out[0];
  y = in[0];
  if (updates.size() == 0) return;
  const Windows w = Windows::of(a);
  const WindowWalk walk(w, y.type(), indices.type(), updates.type(), scatter_sizes(a, y.type(), updates.type()), false);
  DimList at(updates.dims().size(), 0);
  std::int64_t i = 0;
  do {
    const std::int64_t to = walk.position(at, indices);
    if (to >= 0 && a.combine == Combines::set) {
      y.copy(to, updates, i);
    } else if (to >= 0) {
      const std::uint64_t both[] = {y.bits(to), updates.bits(i)};
      y.set_bits(to, sheaf::ir::eval(scalar_primitive(scalar_op_of(a.combine), y.dtype()), both));
    }
    ++i;
  } while (next_index(at, updates.dims()));
}

constexpr std::string_view kAllFields[] = {"operand_batch", "indices_batch"};
constexpr std::string_view kWindowFields[] = {"update_window_dims"};
constexpr BatchSlot kSlots[] = {{.operands = 0b111, .append = kAllFields},
                                {.operands = 0b101, .append = kWindowFields}};

}  // namespace

constinit const OpDef scatter = {
    .name = "scatter",
    .doc =
        "The operand with each update combined into it (add, set, min, max, mul), in row-major order of the updates, so "
        "set keeps the last; each addition or product rounds to the dtype. The dims are gather's: updates dims "
        "`update_window_dims` run inside a window, which lacks the `inserted` and batch dims. A window out of range is "
        "dropped. `unique` promises that no position is written twice, `sorted` that those of the indices ascend. Without `deterministic` a GPU may combine the updates of a position in any "
        "order, as they come, and flush subnormal sums of f32; set still keeps the last. With set the last writer gets the gradient, "
        "with min and max tied contributions share it, with mul it is exact at zeros.",
    .arity = 3,
    .attrs = attrs_of<Scatter>(),
    .factors = scatter_factors,
    .dtypes = scatter_dtypes,
    .linear_when = [](const Eqn& e) { return is_linear(e.attrs<Scatter>()) ? jointly(0b101) : Linear{}; },
    .jvp = scatter_jvp,
    .transpose = scatter_transpose,
    .slots = kSlots,
    .localize = localize_scatter,
    .splits = splits_scatter,
    .lower = [](const Eqn& e) -> Lowering {
      const Scatter& a = e.attrs<Scatter>();
      return lowering::Scatter{.combine = a.combine,
                               .update_window_dims = a.update_window_dims,
                               .inserted_dims = a.inserted,
                               .scatter_dims = a.scatter_dims,
                               .operand_batch = a.operand_batch,
                               .indices_batch = a.indices_batch,
                               .index_vector_dim = static_cast<int>(a.index_dim[0]),
                               .is_unique = a.unique,
                               .is_ordered = a.deterministic};
    },
    .on_parts = each_part,
    .eval = eval_scatter,
    .ulp = 4,
    .samples =
        [] {
          return Samples{
              "scatter f32[8, 6], i32[4, 1] in (-1, 10), f32[4, 6] {update_window_dims=[1], inserted=[0], scatter_dims=[0], "
              "index_dim=[1]}",
              "scatter f64[4], i64[5, 1] in (-1, 6), f64[5] {inserted=[0], scatter_dims=[0], index_dim=[1]}",
              "scatter f64[2, 6, 3], i32[2, 2, 1] in (0, 6), f64[2, 2, 3] {update_window_dims=[2], inserted=[1], "
              "scatter_dims=[1], operand_batch=[0], indices_batch=[0], index_dim=[2]}",
              "scatter f64[4, 5], i32[2, 3] in (-1, 4), f64[2, 3, 2] {update_window_dims=[0, 2], scatter_dims=[0, 1], "
              "index_dim=[0]}",
              "scatter i8[4], u8[5, 1] in (0, 6), i8[5] {inserted=[0], scatter_dims=[0], index_dim=[1]}",
              "scatter bf16[4, 0], i32[2, 1], bf16[2, 0] {update_window_dims=[1], inserted=[0], scatter_dims=[0], "
              "index_dim=[1]}",
              "scatter f16[4], i32[0, 1], f16[0] {inserted=[0], scatter_dims=[0], index_dim=[1]}",
              "scatter f64[3], i32[5, 1] in (-1, 4), f64[5] {combine=set, inserted=[0], scatter_dims=[0], index_dim=[1]}",
              "scatter f64[3, 2], i32[1, 1] in (-1, 4), f64[1, 2] {combine=set, update_window_dims=[1], inserted=[0], "
              "scatter_dims=[0], index_dim=[1], unique=true}",
              "scatter c64[3], i32[4, 1] in (-1, 4), c64[4] {inserted=[0], scatter_dims=[0], index_dim=[1]}",
              "scatter c128[3], i32[4, 1] in (-1, 4), c128[4] {combine=set, inserted=[0], scatter_dims=[0], index_dim=[1]}",
              "scatter bool[4], i32[3, 1] in (-1, 5), bool[3] {combine=set, inserted=[0], scatter_dims=[0], index_dim=[1]}",
              "scatter f64[3], i32[5, 1] in (-1, 4), f64[5] {combine=min, inserted=[0], scatter_dims=[0], index_dim=[1]}",
              "scatter f64[3], i32[5, 1] in (-1, 4), f64[5] {combine=max, inserted=[0], scatter_dims=[0], index_dim=[1]}",
              "scatter u32[3], i32[5, 1] in (-1, 4), u32[5] {combine=max, inserted=[0], scatter_dims=[0], index_dim=[1]}",
              "scatter f64[3], i32[7, 1] in (-1, 4), f64[7] {combine=mul, inserted=[0], scatter_dims=[0], index_dim=[1]}",
              "scatter f64[3, 2], i32[1, 1] in (-1, 4), f64[1, 2] {combine=mul, update_window_dims=[1], inserted=[0], "
              "scatter_dims=[0], index_dim=[1], unique=true}",
              "scatter f64[1], i32[3, 1] in (0, 0), f64[3] {combine=mul, inserted=[0], scatter_dims=[0], index_dim=[1], "
              "sorted=true}",
              "scatter f32[3, 2], i32[4, 1] in (-1, 4), f32[4, 2] {combine=mul, update_window_dims=[1], inserted=[0], "
              "scatter_dims=[0], index_dim=[1]}",
              "scatter f64[3, 2], i32[20, 1] in (-1, 4), f64[20, 2] {update_window_dims=[1], inserted=[0], scatter_dims=[0], "
              "index_dim=[1], deterministic=false}"};
        },
};

}  // namespace sheaf::ir::ops
