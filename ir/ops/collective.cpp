// Collectives over named axes. An axis is one that is being vectorised, and then it becomes a dim and each op plain
// array work over that dim (`over`); or an axis of a mesh, inside a shard_map. What a value is along a mesh axis its
// type says (ir/manual.h), and transposition relies on it: every collective and cast goes from one kind to another, and
// its transpose from the second's cotangents to the first's.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "ir/manual.h"
#include "ir/op.h"
#include "ir/ops/attrs.h"
#include "ir/ops/collective_expand.h"
#include "ir/ops/rules.h"

namespace sheaf::ir::ops {
namespace {

using lowering::Collective;

template <class A>
const Axes& axes_of(const Eqn& e) {
  return e.attrs<A>().axes;
}

/// What the operand is along all of the axes; invarying also where the axes are no mesh's.
absl::StatusOr<Along> along_all(const Eqn& e, const Axes& axes) {
  const Manual& m = e.in(0).type().manual();
  const Along all = axes.empty() ? Along::invarying : along(m, axes[0]);
  for (const std::string& axis : axes)
    if (along(m, axis) != all)
      return absl::InvalidArgumentError(fmt::format("operand 0 ({}) has to be of one kind along all of \"{}\"",
                                                    to_string(e.in(0).type()), fmt::join(axes, "\", \"")));
  return all;
}

/// What the result is, if the operand differs along the axes and the result is `to`.
template <class A>
absl::StatusOr<Manual> from_varying(const Eqn& e, Along to) {
  const Manual& m = e.in(0).type().manual();
  const Axes& axes = e.attrs<A>().axes;
  const absl::StatusOr<Along> now = along_all(e, axes);
  if (!now.ok()) return now.status();
  if (*now == Along::unreduced || *now == Along::reduced)
    return absl::InvalidArgumentError(fmt::format("operand 0 ({}) has to differ along \"{}\", and is {}",
                                                  to_string(e.in(0).type()), axes[0],
                                                  enum_words<Along>[static_cast<int>(*now)]));
  return *now == Along::varying ? with_axes(m, axes, to) : m;
}
template <class A>
absl::StatusOr<Manual> still_varying(const Eqn& e) {
  return from_varying<A>(e, Along::varying);
}

bool is_along(Value x, const Axes& axes, Along kind) {
  return !axes.empty() && along(x.type().manual(), axes[0]) == kind;
}

void eval_nowhere(const Eqn& e, std::span<const Literal>, std::span<Literal>) {
  SHEAF_CHECK(false, std::string(e.op->name) + " over an axis that nothing maps");
}

Value insert_dim(Value x, int at, std::int64_t size) {
  Shape dims = x.dims();
  dims.insert(dims.begin() + at, size);
  DimList to;
  for (int d = 0; d < x.rank(); ++d) to.push_back(d + (d >= at));
  return broadcast_to(x, dims, to);
}

/// The examples' values along dim 0, copies of one if they share it.
Value in_front(const Batched& x, std::int64_t size) {
  return x.dim < 0 ? insert_dim(x.value, 0, size) : move_dim(x.value, x.dim, 0);
}

/// The operand of a collective, its batch dim in front, and the collective one dim further back.
template <class A>
std::vector<Batched> batched_in_front(Builder& b, const Eqn& e, std::span<const Batched> in, std::int64_t size,
                                      std::initializer_list<std::int64_t A::*> dims) {
  A a = e.attrs<A>();
  for (std::int64_t A::* d : dims) ++(a.*d);
  return {{b.emit_all(e.op, {in_front(in[0], size)}, std::make_shared<const A>(std::move(a)))[0], 0}};
}

/// One operand, of which dim `dim` is something else in the result: `in` and `out` are its sizes, -1 where the dim is
/// not there.
absl::StatusOr<Factors> with_dim_replaced(Value x, std::int64_t at, std::int64_t in, std::int64_t to,
                                          std::int64_t out) {
  Factors f;
  f.in.emplace_back();
  f.out.emplace_back();
  for (int d = 0; d < x.rank(); ++d) {
    const bool is_touched = d == at && in >= 0;
    f.in[0].push_back({f.add(x.dims()[d], is_touched ? FactorClass::N : FactorClass::P)});
    if (!is_touched) f.out[0].push_back(f.in[0].back());
  }
  if (out >= 0) f.out[0].insert(f.out[0].begin() + to, {f.add(out, FactorClass::N)});
  return f;
}

absl::Status not_fitting(std::string_view what) {
  return absl::InvalidArgumentError(fmt::format("{} do not fit the operand", what));
}

// all_reduce

absl::StatusOr<std::vector<DType>> reducible(Value x, ReduceKind kind) {
  const bool is_logical = kind == ReduceKind::and_ || kind == ReduceKind::or_;
  const Dtypes set = is_logical ? Dtypes::boolean : kind == ReduceKind::sum ? Dtypes::numeric : Dtypes::real;
  if (!contains(set, x.dtype()))
    return absl::InvalidArgumentError(fmt::format("takes {}, not {}", name(set), to_string(x.type())));
  return std::vector<DType>{x.dtype()};
}

Value emit_reduce(Value x, const Axes& axes, ReduceKind kind) {
  return x.builder().emit(all_reduce, {x}, AllReduce{.axes = axes, .kind = kind});
}

// An extreme shares its derivative among the examples that attain it, as reduce does.
Values jvp_all_reduce(Builder& b, const Eqn& e, const Values& tangents) {
  const AllReduce& a = e.attrs<AllReduce>();
  if (a.kind == ReduceKind::sum) return {emit_reduce(tangents[0], a.axes, ReduceKind::sum)};
  SHEAF_CHECK(a.kind == ReduceKind::max || a.kind == ReduceKind::min, "only sums and extremes of floats are offered");
  const Value attains = b.emit(eq, {e.in(0), e.out()});
  const Value ones = convert_to(attains, e.out().dtype());
  return {emit_reduce(where_or_zero(attains, tangents[0]), a.axes, ReduceKind::sum) /
          emit_reduce(ones, a.axes, ReduceKind::sum)};
}

// Over a mesh axis the result is one value, and so is its cotangent: nothing is to be added up.
Values transpose_all_reduce(Builder& b, const Eqn& e, const Values&, const Values& cts) {
  const AllReduce& a = e.attrs<AllReduce>();
  if (is_along(e.in(0), a.axes, Along::varying)) return {b.emit(pcast, {cts[0]}, Pcast{a.axes, Along::varying})};
  if (is_along(e.in(0), a.axes, Along::unreduced)) return {b.emit(pcast, {cts[0]}, Pcast{a.axes, Along::reduced})};
  return {emit_reduce(cts[0], a.axes, ReduceKind::sum)};
}

absl::StatusOr<Manual> manual_all_reduce(const Eqn& e) {
  const AllReduce& a = e.attrs<AllReduce>();
  const Manual& m = e.in(0).type().manual();
  if (a.kind != ReduceKind::sum && !m.unreduced.empty())
    return absl::InvalidArgumentError(fmt::format("operand 0 ({}) is yet to be summed along \"{}\": psum it first",
                                                  to_string(e.in(0).type()), m.unreduced[0]));
  const absl::StatusOr<Along> now = along_all(e, a.axes);
  if (now.ok() && *now == Along::unreduced) return with_axes(m, a.axes, Along::invarying);
  return from_varying<AllReduce>(e, Along::invarying);
}

std::vector<Batched> over_all_reduce(Builder&, const Eqn& e, const std::string& axis, std::span<const Batched> in,
                                     std::int64_t size) {
  const AllReduce& a = e.attrs<AllReduce>();
  const Value reduced = reduce_dims(in_front(in[0], size), a.kind, {0});
  const Axes rest = without(a.axes, {axis});
  return {{rest.empty() ? reduced : emit_reduce(reduced, rest, a.kind), -1}};
}

// all_gather

absl::StatusOr<Factors> factors_all_gather(const Eqn& e) {
  const AllGather& a = e.attrs<AllGather>();
  const int rank = e.in(0).rank();
  if (a.dim < 0 || a.dim >= rank + !a.tiled || a.size < 0)
    return not_fitting(fmt::format("dim={} and size={}", a.dim, a.size));
  if (!a.tiled) return with_dim_replaced(e.in(0), -1, -1, a.dim, a.size);
  const std::int64_t own = e.in(0).dims()[a.dim];
  return with_dim_replaced(e.in(0), a.dim, own, a.dim, own * a.size);
}

ReduceScatter scatter_of(const AllGather& a) {
  return {.axes = a.axes, .size = a.size, .dim = a.dim, .tiled = a.tiled};
}

// What was gathered as one value has one cotangent, of which each takes its own part; else all cotangents, of devices
// or of the parts of an unreduced one, are added up.
Values transpose_all_gather(Builder& b, const Eqn& e, const Values&, const Values& cts) {
  const AllGather& a = e.attrs<AllGather>();
  if (a.to != Along::invarying || !is_along(e.in(0), a.axes, Along::varying))
    return {b.emit(reduce_scatter, {cts[0]}, scatter_of(a))};
  return {b.emit(pscatter, {cts[0]}, Pscatter{.axes = a.axes, .size = a.size, .dim = a.dim, .tiled = a.tiled})};
}

std::vector<Batched> over_all_gather(Builder&, const Eqn& e, const std::string&, std::span<const Batched> in,
                                     std::int64_t size) {
  const AllGather& a = e.attrs<AllGather>();
  const Value all = move_dim(in_front(in[0], size), 0, a.dim);
  return {{a.tiled ? merge_dims(all, a.dim) : all, -1}};
}

// reduce_scatter

/// Each keeps its row of the dim, or its block of it.
absl::StatusOr<Factors> factors_of_scattered(const Eqn& e, std::int64_t dim, std::int64_t size, bool tiled) {
  const bool fits = dim >= 0 && dim < e.in(0).rank() && size >= 0;
  const std::int64_t own = fits ? e.in(0).dims()[dim] : 0;
  if (!fits || (tiled ? size == 0 || own % size != 0 : own != size))
    return not_fitting(fmt::format("dim={} and size={}", dim, size));
  return with_dim_replaced(e.in(0), dim, own, dim, tiled ? own / size : -1);
}

absl::StatusOr<Factors> factors_reduce_scatter(const Eqn& e) {
  const ReduceScatter& a = e.attrs<ReduceScatter>();
  return factors_of_scattered(e, a.dim, a.size, a.tiled);
}

Values transpose_reduce_scatter(Builder& b, const Eqn& e, const Values&, const Values& cts) {
  const ReduceScatter& a = e.attrs<ReduceScatter>();
  const bool is_of_sum = is_along(e.in(0), a.axes, Along::unreduced);
  return {b.emit(all_gather, {cts[0]},
                 AllGather{.axes = a.axes,
                           .size = a.size,
                           .dim = a.dim,
                           .tiled = a.tiled,
                           .to = is_of_sum ? Along::reduced : Along::varying,
                           .backward = true})};
}

absl::StatusOr<Manual> manual_reduce_scatter(const Eqn& e) {
  const ReduceScatter& a = e.attrs<ReduceScatter>();
  const Manual& m = e.in(0).type().manual();
  if (a.kind != ReduceKind::sum && !m.unreduced.empty())
    return absl::InvalidArgumentError(fmt::format("operand 0 ({}) is yet to be summed along \"{}\": psum it first",
                                                  to_string(e.in(0).type()), m.unreduced[0]));
  const absl::StatusOr<Along> now = along_all(e, a.axes);
  if (now.ok() && *now == Along::unreduced) return with_axes(m, a.axes, Along::varying);
  return still_varying<ReduceScatter>(e);
}

std::vector<Batched> over_reduce_scatter(Builder&, const Eqn& e, const std::string&, std::span<const Batched> in,
                                         std::int64_t size) {
  const ReduceScatter& a = e.attrs<ReduceScatter>();
  const Value sum = reduce_dims(in_front(in[0], size), a.kind, {0});
  if (!a.tiled) return {{sum, static_cast<int>(a.dim)}};
  return {{split_dim(sum, a.dim, size), static_cast<int>(a.dim)}};
}

// ppermute

// Nobody gives or gets twice, or the transpose would be no permutation.
absl::StatusOr<Factors> factors_ppermute(const Eqn& e) {
  const Ppermute& a = e.attrs<Ppermute>();
  for (const auto& [name, list] : {std::pair("sources", a.sources), std::pair("targets", a.targets)}) {
    std::vector<std::int64_t> ascending = list;
    std::sort(ascending.begin(), ascending.end());
    const bool is_twice = std::adjacent_find(ascending.begin(), ascending.end()) != ascending.end();
    if (list.size() != a.sources.size() || is_twice || (!ascending.empty() && ascending[0] < 0))
      return not_fitting(fmt::format("{}={}", name, to_string(list)));
  }
  return Factors::pointwise(e.in_types());
}

std::vector<Batched> over_ppermute(Builder& b, const Eqn& e, const std::string&, std::span<const Batched> in,
                                   std::int64_t size) {
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

absl::StatusOr<Factors> factors_all_to_all(const Eqn& e) {
  const AllToAll& a = e.attrs<AllToAll>();
  const int rank = e.in(0).rank();
  const bool fits = a.split >= 0 && a.split < rank && a.concat >= 0 && a.concat < rank && a.size >= 0;
  const Shape& dims = e.in(0).dims();
  if (!fits || (a.tiled ? a.size == 0 || dims[a.split] % a.size != 0 : dims[a.split] != a.size))
    return not_fitting(fmt::format("split={}, concat={} and size={}", a.split, a.concat, a.size));
  if (!a.tiled) return with_dim_replaced(e.in(0), a.split, a.size, a.concat, a.size);
  Factors f;
  f.in.emplace_back();
  f.out.emplace_back();
  for (int d = 0; d < rank; ++d) {
    const bool is_touched = d == a.split || d == a.concat;
    f.in[0].push_back({f.add(dims[d], is_touched ? FactorClass::N : FactorClass::P)});
    std::int64_t size = dims[d];
    if (d == a.split) size /= a.size;
    if (d == a.concat) size *= a.size;
    f.out[0].push_back(is_touched ? FactorList{f.add(size, FactorClass::N)} : f.in[0].back());
  }
  return f;
}

Values transpose_all_to_all(Builder& b, const Eqn& e, const Values&, const Values& cts) {
  AllToAll a = e.attrs<AllToAll>();
  std::swap(a.split, a.concat);
  return {b.emit(all_to_all, {cts[0]}, a)};
}

// The dim along which an example holds something for each of the others, and the dim of the examples, change places.
std::vector<Batched> over_all_to_all(Builder&, const Eqn& e, const std::string&, std::span<const Batched> in,
                                     std::int64_t size) {
  const AllToAll& a = e.attrs<AllToAll>();
  Value all = in_front(in[0], size);
  if (a.tiled) all = split_dim(all, a.split + 1, size);
  const Value from_each = move_dim(all, a.split + 1, 0);  // [to, from, rest]
  const Value placed = move_dim(from_each, 1, a.concat + 1);
  return {{a.tiled ? merge_dims(placed, a.concat + 1) : placed, 0}};
}

std::vector<Batched> over_axis_index(Builder& b, const Eqn&, const std::string&, std::span<const Batched>,
                                     std::int64_t size) {
  return {{b.emit(iota, {}, Iota{.shape = {size}, .dim = {0}, .dtype = DType::i32}), 0}};
}

// pscatter

absl::StatusOr<Factors> factors_pscatter(const Eqn& e) {
  const Pscatter& a = e.attrs<Pscatter>();
  return factors_of_scattered(e, a.dim, a.size, a.tiled);
}

absl::StatusOr<Manual> manual_pscatter(const Eqn& e) {
  const Pscatter& a = e.attrs<Pscatter>();
  const Manual& m = e.in(0).type().manual();
  const absl::StatusOr<Along> now = along_all(e, a.axes);
  if (!now.ok()) return now.status();
  if (*now != Along::invarying)
    return absl::InvalidArgumentError(fmt::format("operand 0 ({}) has to be the same along \"{}\", and is {}",
                                                  to_string(e.in(0).type()), a.axes[0],
                                                  enum_words<Along>[static_cast<int>(*now)]));
  return with_axes(m, a.axes, Along::varying);
}

Value own_rows(Builder& b, const Eqn& e, Value x) {
  const Pscatter& a = e.attrs<Pscatter>();
  const std::int64_t rows = a.tiled ? e.out().dims()[a.dim] : 1;
  const auto index = std::make_shared<const AxisIndex>(AxisIndex{.axes = a.axes, .manual = true});
  const Value start = reshape_to(b.emit_all(&axis_index, {}, index)[0] * static_cast<double>(rows), {1});
  const Value own = b.emit(dynamic_slice, {x, start}, DynamicSlice{.dims = {a.dim}, .sizes = {rows}, .index_dim = {0}});
  return reshape_to(own, e.out().dims());
}

// pcast

std::pair<Axes, Axes> by_kind(const Manual& m, const Axes& axes, Along kind) {
  std::pair<Axes, Axes> both;
  for (const std::string& axis : axes) (along(m, axis) == kind ? both.first : both.second).push_back(axis);
  return both;
}

absl::StatusOr<Manual> manual_pcast(const Eqn& e) {
  const Pcast& a = e.attrs<Pcast>();
  const Manual& m = e.in(0).type().manual();
  for (const std::string& axis : a.axes) {
    const Along now = along(m, axis);
    const bool can_be = a.to == Along::varying     ? now == Along::invarying || now == Along::reduced
                        : a.to == Along::reduced   ? now == Along::invarying
                        : a.to == Along::unreduced ? now == Along::varying
                                                   : false;
    if (!can_be)
      return absl::InvalidArgumentError(fmt::format("operand 0 ({}) is {} along \"{}\", which cannot be cast to {}",
                                                    to_string(e.in(0).type()), enum_words<Along>[static_cast<int>(now)],
                                                    axis, enum_words<Along>[static_cast<int>(a.to)]));
  }
  return with_axes(m, a.axes, a.to);
}

// The cotangents of a value that is one are added up; those of a reduced one are a sum as they are.
Values transpose_pcast(Builder& b, const Eqn& e, const Values&, const Values& cts) {
  const Pcast& a = e.attrs<Pcast>();
  if (a.to == Along::unreduced) return {b.emit(pcast, {cts[0]}, Pcast{a.axes, Along::varying})};
  const auto [reduced, same] = by_kind(e.in(0).type().manual(), a.axes, Along::reduced);
  Value ct = cts[0];
  if (!reduced.empty()) ct = b.emit(pcast, {ct}, Pcast{reduced, Along::unreduced});
  if (!same.empty()) ct = emit_reduce(ct, same, ReduceKind::sum);
  return {ct};
}

absl::StatusOr<Factors> pointwise(const Eqn& e) { return Factors::pointwise(e.in_types()); }

}  // namespace

constinit const OpDef all_reduce = {
    .name = "all_reduce",
    .doc = "The sum (max, min, and, or) over all examples along the named axes; the same for each.",
    .arity = 1,
    .attrs = attrs_of<AllReduce>(),
    .factors = pointwise,
    .dtypes = [](const Eqn& e) { return reducible(e.in(0), e.attrs<AllReduce>().kind); },
    .linear_when = [](const Eqn& e) { return e.attrs<AllReduce>().kind == ReduceKind::sum ? jointly(1) : Linear{}; },
    .jvp = jvp_all_reduce,
    .transpose = transpose_all_reduce,
    .axes = axes_of<AllReduce>,
    .over = over_all_reduce,
    .manual = manual_all_reduce,
    .lower = [](const Eqn& e) -> Lowering {
      const AllReduce& a = e.attrs<AllReduce>();
      return Collective{.kind = Collective::Kind::all_reduce, .axes = a.axes, .reduce = a.kind};
    },
    .expand = expand_all_reduce,
    .has_kernel = has_all_reduce,
    .eval = eval_nowhere,
    .samples = [] { return Samples{}; },
};

constinit const OpDef all_gather = {
    .name = "all_gather",
    .doc =
        "All examples' values along the named axes, stacked along a new dim `dim`, or joined along dim `dim` (tiled).",
    .arity = 1,
    .attrs = attrs_of<AllGather>(),
    .factors = factors_all_gather,
    .linear = jointly(1),
    .transpose = transpose_all_gather,
    .batch = [](Builder& b, const Eqn& e, std::span<const Batched> in,
                std::int64_t size) { return batched_in_front<AllGather>(b, e, in, size, {&AllGather::dim}); },
    .axes = axes_of<AllGather>,
    .over = over_all_gather,
    .manual = [](const Eqn& e) -> absl::StatusOr<Manual> {
      if (e.attrs<AllGather>().to == Along::unreduced)
        return absl::InvalidArgumentError("to=unreduced: what was gathered is no sum");
      return from_varying<AllGather>(e, e.attrs<AllGather>().to);
    },
    .lower = [](const Eqn& e) -> Lowering {
      const AllGather& a = e.attrs<AllGather>();
      return Collective{
          .kind = Collective::Kind::all_gather, .axes = a.axes, .tiled = a.tiled, .dim = static_cast<int>(a.dim)};
    },
    .expand = expand_all_gather,
    .has_kernel = has_all_gather,
    .eval = eval_nowhere,
    .samples = [] { return Samples{}; },
};

constinit const OpDef reduce_scatter = {
    .name = "reduce_scatter",
    .doc =
        "The sum over all examples along the named axes, of which each keeps its row of dim `dim`, or its block of it "
        "(tiled).",
    .arity = 1,
    .attrs = attrs_of<ReduceScatter>(),
    .factors = factors_reduce_scatter,
    .dtypes = [](const Eqn& e) { return reducible(e.in(0), e.attrs<ReduceScatter>().kind); },
    .linear_when =
        [](const Eqn& e) { return e.attrs<ReduceScatter>().kind == ReduceKind::sum ? jointly(1) : Linear{}; },
    .transpose = transpose_reduce_scatter,
    .batch = [](Builder& b, const Eqn& e, std::span<const Batched> in,
                std::int64_t size) { return batched_in_front<ReduceScatter>(b, e, in, size, {&ReduceScatter::dim}); },
    .axes = axes_of<ReduceScatter>,
    .over = over_reduce_scatter,
    .manual = manual_reduce_scatter,
    .lower = [](const Eqn& e) -> Lowering {
      const ReduceScatter& a = e.attrs<ReduceScatter>();
      return Collective{.kind = Collective::Kind::reduce_scatter,
                        .axes = a.axes,
                        .reduce = a.kind,
                        .tiled = a.tiled,
                        .dim = static_cast<int>(a.dim)};
    },
    .expand = expand_reduce_scatter,
    .has_kernel = has_reduce_scatter,
    .eval = eval_nowhere,
    .samples = [] { return Samples{}; },
};

constinit const OpDef ppermute = {
    .name = "ppermute",
    .doc = "Example targets[k] gets the value of example sources[k]; zeros where nobody sends.",
    .arity = 1,
    .attrs = attrs_of<Ppermute>(),
    .factors = factors_ppermute,
    .linear = jointly(1),
    .transpose = [](Builder& b, const Eqn& e, const Values&, const Values& cts) -> Values {
      const Ppermute& a = e.attrs<Ppermute>();
      return {b.emit(ppermute, {cts[0]}, Ppermute{.axes = a.axes, .sources = a.targets, .targets = a.sources})};
    },
    .axes = axes_of<Ppermute>,
    .over = over_ppermute,
    .manual = still_varying<Ppermute>,
    .lower = [](const Eqn& e) -> Lowering {
      const Ppermute& a = e.attrs<Ppermute>();
      return Collective{.kind = Collective::Kind::ppermute, .axes = a.axes, .sources = a.sources, .targets = a.targets};
    },
    .eval = eval_nowhere,
    .samples = [] { return Samples{}; },
};

constinit const OpDef all_to_all = {
    .name = "all_to_all",
    .doc =
        "Row i along dim `split`, or block i of it (tiled), goes to example i; what each gets is stacked, or joined, "
        "along dim `concat` of the result.",
    .arity = 1,
    .attrs = attrs_of<AllToAll>(),
    .factors = factors_all_to_all,
    .linear = jointly(1),
    .transpose = transpose_all_to_all,
    .batch =
        [](Builder& b, const Eqn& e, std::span<const Batched> in, std::int64_t size) {
          return batched_in_front<AllToAll>(b, e, in, size, {&AllToAll::split, &AllToAll::concat});
        },
    .axes = axes_of<AllToAll>,
    .over = over_all_to_all,
    .manual = still_varying<AllToAll>,
    .lower = [](const Eqn& e) -> Lowering {
      const AllToAll& a = e.attrs<AllToAll>();
      return Collective{.kind = Collective::Kind::all_to_all,
                        .axes = a.axes,
                        .tiled = a.tiled,
                        .split = static_cast<int>(a.split),
                        .concat = static_cast<int>(a.concat)};
    },
    .expand = expand_all_to_all,
    .has_kernel = has_all_to_all,
    .eval = eval_nowhere,
    .samples = [] { return Samples{}; },
};

constinit const OpDef axis_index = {
    .name = "axis_index",
    .doc = "The example's own position along the named axes.",
    .arity = 0,
    .attrs = attrs_of<AxisIndex>(),
    .infer = [](const Eqn&) -> absl::StatusOr<std::vector<Type>> { return std::vector<Type>{Type(DType::i32, {})}; },
    .no_jvp = Absent::no_operands,
    .axes = axes_of<AxisIndex>,
    .over = over_axis_index,
    .manual = [](const Eqn& e) -> absl::StatusOr<Manual> {
      const AxisIndex& a = e.attrs<AxisIndex>();
      return a.manual ? with_axes({}, a.axes, Along::varying) : Manual{};
    },
    .lower = [](const Eqn& e) -> Lowering {
      return Collective{.kind = Collective::Kind::axis_index, .axes = e.attrs<AxisIndex>().axes};
    },
    .eval = eval_nowhere,
    .samples = [] { return Samples{}; },
};

constinit const OpDef pscatter = {
    .name = "pscatter",
    .doc =
        "Of a value that is the same on all devices along the axes of a mesh, the own row of dim `dim`, or the own block "
        "of it (tiled).",
    .arity = 1,
    .attrs = attrs_of<Pscatter>(),
    .factors = factors_pscatter,
    .linear = jointly(1),
    .transpose = [](Builder& b, const Eqn& e, const Values&, const Values& cts) -> Values {
      const Pscatter& a = e.attrs<Pscatter>();
      return {b.emit(all_gather, {cts[0]},
                     AllGather{.axes = a.axes,
                               .size = a.size,
                               .dim = a.dim,
                               .tiled = a.tiled,
                               .to = Along::invarying,
                               .backward = true})};
    },
    .batch = [](Builder& b, const Eqn& e, std::span<const Batched> in,
                std::int64_t size) { return batched_in_front<Pscatter>(b, e, in, size, {&Pscatter::dim}); },
    .axes = axes_of<Pscatter>,
    .manual = manual_pscatter,
    .expand = [](Builder& b, const Eqn& e, const Values& operands) -> Values { return {own_rows(b, e, operands[0])}; },
    .eval = eval_nowhere,
    .samples = [] { return Samples{}; },
};

constinit const OpDef pcast = {
    .name = "pcast",
    .doc =
        "The operand as another kind of value along the axes of a mesh (ir/manual.h): from invarying or reduced `to` "
        "varying, from invarying to reduced, from varying to unreduced. Nothing is sent.",
    .arity = 1,
    .attrs = attrs_of<Pcast>(),
    .factors = pointwise,
    .linear = jointly(1),
    .transpose = transpose_pcast,
    .manual = manual_pcast,
    .lower = [](const Eqn&) -> Lowering { return lowering::Reshape{}; },
    .eval = [](const Eqn&, std::span<const Literal> in, std::span<Literal> out) { out[0] = in[0]; },
    .samples = [] { return Samples{}; },
};

}  // namespace sheaf::ir::ops
