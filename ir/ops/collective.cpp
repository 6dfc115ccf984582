// Collectives over a named axis, as a program of one example sees it: sums over all examples, values of others, its own
// index. When the axis is vectorised it becomes a dim, and each is plain array work over that dim (`over`).
#include <fmt/format.h>

#include "ir/op.h"
#include "ir/ops/attrs.h"
#include "ir/ops/rules.h"

namespace sheaf::ir::ops {
namespace {

template <class A>
std::string_view axis_of(const Eqn& e) {
  return e.attrs<A>().axis;
}

void eval_nowhere(const Eqn& e, std::span<const Literal>, std::span<Literal>) {
  SHEAF_CHECK(false, std::string(e.op->name) + " over an axis that nothing maps");
}

Lowering lower_nowhere(const Eqn&) { return lowering::Region{}; }

Value insert_dim(Value x, int at, std::int64_t size) {
  Shape dims = x.dims();
  dims.insert(dims.begin() + at, size);
  DimList to;
  for (int d = 0; d < x.rank(); ++d) to.push_back(d + (d >= at));
  return broadcast_to(x, dims, to);
}

Value move_dim(Value x, std::int64_t from, std::int64_t to) {
  DimList perm;
  for (int d = 0; d < x.rank(); ++d)
    if (d != from) perm.push_back(d);
  perm.insert(perm.begin() + to, from);
  return permute(x, perm);
}

/// The examples' values along dim 0, copies of one if they share it.
Value in_front(const Batched& x, std::int64_t size) {
  return x.dim < 0 ? insert_dim(x.value, 0, size) : move_dim(x.value, x.dim, 0);
}

// all_reduce

absl::StatusOr<std::vector<DType>> all_reduce_dtypes(const Eqn& e) {
  const ReduceKind kind = e.attrs<AllReduce>().kind;
  const bool is_logical = kind == ReduceKind::and_ || kind == ReduceKind::or_;
  const Dtypes set = is_logical ? Dtypes::boolean : kind == ReduceKind::sum ? Dtypes::numeric : Dtypes::real;
  if (!contains(set, e.in(0).dtype()))
    return absl::InvalidArgumentError(fmt::format("takes {}, not {}", name(set), to_string(e.in(0).type())));
  return std::vector<DType>{e.in(0).dtype()};
}

Value emit_reduce(Value x, const AllReduce& a, ReduceKind kind) {
  return x.builder().emit(all_reduce, {x}, AllReduce{.axis = a.axis, .kind = kind});
}

// An extreme shares its derivative among the examples that attain it, as reduce does.
Values jvp_all_reduce(Builder& b, const Eqn& e, const Values& tangents) {
  const AllReduce& a = e.attrs<AllReduce>();
  if (a.kind == ReduceKind::sum) return {emit_reduce(tangents[0], a, ReduceKind::sum)};
  SHEAF_CHECK(a.kind == ReduceKind::max || a.kind == ReduceKind::min, "only sums and extremes of floats are offered");
  const Value attains = b.emit(eq, {e.in(0), e.out()});
  const Value ones = convert_to(attains, e.out().dtype());
  return {emit_reduce(where_or_zero(attains, tangents[0]), a, ReduceKind::sum) / emit_reduce(ones, a, ReduceKind::sum)};
}

std::vector<Batched> over_all_reduce(Builder&, const Eqn& e, std::span<const Batched> in, std::int64_t size) {
  return {{reduce_dims(in_front(in[0], size), e.attrs<AllReduce>().kind, {0}), -1}};
}

// all_gather

absl::StatusOr<std::vector<Type>> infer_all_gather(const Eqn& e) {
  const AllGather& a = e.attrs<AllGather>();
  if (e.num_in() != 1 || a.dim < 0 || a.dim > e.in(0).rank() || a.size < 0)
    return absl::InvalidArgumentError(fmt::format("dim={} and size={} do not fit the operand", a.dim, a.size));
  Shape dims = e.in(0).dims();
  dims.insert(dims.begin() + a.dim, a.size);
  return std::vector<Type>{Type(e.in(0).dtype(), std::move(dims))};
}

// The sum of all examples' cotangents, of which each takes its own row.
Values transpose_all_gather(Builder& b, const Eqn& e, const Values&, const Values& cts) {
  const AllGather& a = e.attrs<AllGather>();
  const Value sum = b.emit(all_reduce, {cts[0]}, AllReduce{.axis = a.axis});
  const Value start =
      reshape_to(b.emit_all(&axis_index, {}, std::make_shared<const AxisIndex>(AxisIndex{.axis = a.axis}))[0], {1});
  const Value row = b.emit(dynamic_slice, {sum, start}, DynamicSlice{.dims = {a.dim}, .sizes = {1}, .index_dim = {0}});
  return {reshape_to(row, e.in(0).dims())};
}

std::vector<Batched> batch_all_gather(Builder& b, const Eqn& e, std::span<const Batched> in, std::int64_t size) {
  AllGather a = e.attrs<AllGather>();
  ++a.dim;
  return {{b.emit(all_gather, {in_front(in[0], size)}, a), 0}};
}

std::vector<Batched> over_all_gather(Builder&, const Eqn& e, std::span<const Batched> in, std::int64_t size) {
  return {{move_dim(in_front(in[0], size), 0, e.attrs<AllGather>().dim), -1}};
}

// ppermute

std::vector<Batched> over_ppermute(Builder& b, const Eqn& e, std::span<const Batched> in, std::int64_t size) {
  const Ppermute& a = e.attrs<Ppermute>();
  const Value all = in_front(in[0], size);
  if (size == 0) return {{all, 0}};
  Shape row = all.dims();
  row[0] = 1;
  Values rows(size);
  for (std::size_t k = 0; k < a.targets.size(); ++k)
    rows[a.targets[k]] = slice_dim(all, 0, a.sources[k], a.sources[k] + 1);
  for (Value& r : rows)
    if (!r) r = b.zeros(Type(all.dtype(), row));
  return {{rows.size() == 1 ? rows[0] : b.emit(concatenate, rows, Concatenate{.dim = {0}}), 0}};
}

// all_to_all

absl::StatusOr<std::vector<Type>> infer_all_to_all(const Eqn& e) {
  const AllToAll& a = e.attrs<AllToAll>();
  if (e.num_in() != 1 || a.split < 0 || a.split >= e.in(0).rank() || a.concat < 0 || a.concat >= e.in(0).rank())
    return absl::InvalidArgumentError(fmt::format("split={} and concat={} do not fit the operand", a.split, a.concat));
  Shape dims = e.in(0).dims();
  const std::int64_t size = dims[a.split];
  dims.erase(dims.begin() + a.split);
  dims.insert(dims.begin() + a.concat, size);
  return std::vector<Type>{Type(e.in(0).dtype(), std::move(dims))};
}

std::vector<Batched> batch_all_to_all(Builder& b, const Eqn& e, std::span<const Batched> in, std::int64_t size) {
  AllToAll a = e.attrs<AllToAll>();
  ++a.split;
  ++a.concat;
  return {{b.emit(all_to_all, {in_front(in[0], size)}, a), 0}};
}

// The dim along which an example holds something for each of the others, and the dim of the examples, change places.
std::vector<Batched> over_all_to_all(Builder&, const Eqn& e, std::span<const Batched> in, std::int64_t size) {
  const AllToAll& a = e.attrs<AllToAll>();
  const Value from_each = move_dim(in_front(in[0], size), a.split + 1, 0);  // [to, from, rest]
  return {{move_dim(from_each, 1, a.concat + 1), 0}};
}

std::vector<Batched> over_axis_index(Builder& b, const Eqn&, std::span<const Batched>, std::int64_t size) {
  return {{b.emit(iota, {}, Iota{.shape = {size}, .dim = {0}, .dtype = DType::i32}), 0}};
}

absl::StatusOr<Factors> pointwise(const Eqn& e) { return Factors::pointwise(e.in_types()); }

}  // namespace

constinit const OpDef all_reduce = {
    .name = "all_reduce",
    .doc = "The sum (max, min, and, or) over all examples along the named axis; the same for each.",
    .arity = 1,
    .attrs = attrs_of<AllReduce>(),
    .factors = pointwise,
    .dtypes = all_reduce_dtypes,
    .linear_when = [](const Eqn& e) { return e.attrs<AllReduce>().kind == ReduceKind::sum ? jointly(1) : Linear{}; },
    .jvp = jvp_all_reduce,
    .transpose = [](Builder&, const Eqn& e, const Values&, const Values& cts) -> Values {
      return {emit_reduce(cts[0], e.attrs<AllReduce>(), ReduceKind::sum)};
    },
    .axis = axis_of<AllReduce>,
    .over = over_all_reduce,
    .lower = lower_nowhere,
    .eval = eval_nowhere,
    .samples = [] { return Samples{}; },
};

constinit const OpDef all_gather = {
    .name = "all_gather",
    .doc = "All examples' values along the named axis, stacked along a new dim `dim` of `size`.",
    .arity = 1,
    .attrs = attrs_of<AllGather>(),
    .infer = infer_all_gather,
    .linear = jointly(1),
    .transpose = transpose_all_gather,
    .batch = batch_all_gather,
    .axis = axis_of<AllGather>,
    .over = over_all_gather,
    .lower = lower_nowhere,
    .eval = eval_nowhere,
    .samples = [] { return Samples{}; },
};

constinit const OpDef ppermute = {
    .name = "ppermute",
    .doc = "Example targets[k] gets the value of example sources[k]; zeros where nobody sends.",
    .arity = 1,
    .attrs = attrs_of<Ppermute>(),
    .factors = pointwise,
    .linear = jointly(1),
    .transpose = [](Builder& b, const Eqn& e, const Values&, const Values& cts) -> Values {
      const Ppermute& a = e.attrs<Ppermute>();
      return {b.emit(ppermute, {cts[0]}, Ppermute{.axis = a.axis, .sources = a.targets, .targets = a.sources})};
    },
    .axis = axis_of<Ppermute>,
    .over = over_ppermute,
    .lower = lower_nowhere,
    .eval = eval_nowhere,
    .samples = [] { return Samples{}; },
};

constinit const OpDef all_to_all = {
    .name = "all_to_all",
    .doc = "Row i along dim `split` goes to example i; what each gets is stacked along dim `concat` of the result.",
    .arity = 1,
    .attrs = attrs_of<AllToAll>(),
    .infer = infer_all_to_all,
    .linear = jointly(1),
    .transpose = [](Builder& b, const Eqn& e, const Values&, const Values& cts) -> Values {
      const AllToAll& a = e.attrs<AllToAll>();
      return {b.emit(all_to_all, {cts[0]}, AllToAll{.axis = a.axis, .split = a.concat, .concat = a.split})};
    },
    .batch = batch_all_to_all,
    .axis = axis_of<AllToAll>,
    .over = over_all_to_all,
    .lower = lower_nowhere,
    .eval = eval_nowhere,
    .samples = [] { return Samples{}; },
};

constinit const OpDef axis_index = {
    .name = "axis_index",
    .doc = "The example's own position along the named axis.",
    .arity = 0,
    .attrs = attrs_of<AxisIndex>(),
    .infer = [](const Eqn&) -> absl::StatusOr<std::vector<Type>> { return std::vector<Type>{Type(DType::i32, {})}; },
    .no_jvp = Absent::no_operands,
    .axis = axis_of<AxisIndex>,
    .over = over_axis_index,
    .lower = lower_nowhere,
    .eval = eval_nowhere,
    .samples = [] { return Samples{}; },
};

}  // namespace sheaf::ir::ops
