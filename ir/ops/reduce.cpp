// Reductions over dims, and the positions of extremes. A sum is linear; the other kinds differentiate through weights
// computed from the operand alone, so that their tangents stay linear and zeros, ties and NaNs come out exact.
#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "ir/ops/order.h"
#include "ir/ops/windows.h"

namespace sheaf::ir::ops {
namespace {

bool is_logical(ReduceKind kind) { return kind == ReduceKind::and_ || kind == ReduceKind::or_; }
bool is_extreme(ReduceKind kind) { return kind == ReduceKind::max || kind == ReduceKind::min; }

std::string_view word(ReduceKind kind) { return kReduceKindWords[static_cast<int>(kind)]; }

Combine combine_of(ReduceKind kind) {
  constexpr Combine kCombines[] = {Combine::sum, Combine::prod, Combine::max,
                                   Combine::min, Combine::and_, Combine::or_};
  return kCombines[static_cast<int>(kind)];
}

ScalarOp scalar_op_of(ReduceKind kind) {
  constexpr ScalarOp kOps[] = {ScalarOp::add, ScalarOp::mul,  ScalarOp::max,
                               ScalarOp::min, ScalarOp::and_, ScalarOp::or_};
  return kOps[static_cast<int>(kind)];
}

absl::StatusOr<std::vector<DType>> reduce_dtypes(const Eqn& e) {
  const ReduceKind kind = e.attrs<Reduce>().kind;
  const DType t = e.in(0).dtype();
  const Dtypes set = is_logical(kind) ? Dtypes::boolean : kind == ReduceKind::sum ? Dtypes::numeric : Dtypes::real;
  if (!contains(set, t))
    return absl::InvalidArgumentError(fmt::format("takes {}, not {}", name(set), to_string(e.in(0).type())));
  return std::vector<DType>{t};
}

// The dims listed are reduced with `factor`'s class and combine; the others pass through.
absl::StatusOr<Factors> reduced(const Eqn& e, const DimList& dims, Factor factor) {
  const Type x = e.in(0).type();
  if (absl::Status s = check_dims("dims", dims, x.rank()); !s.ok()) return s;
  Factors r;
  r.in.emplace_back();
  r.out.emplace_back();
  for (int d = 0; d < x.rank(); ++d) {
    if (lists(dims, d)) {
      r.in[0].push_back({r.add(x.dim(d), factor.cls, factor.combine, factor.absolute)});
    } else {
      r.in[0].push_back({r.add(x.dim(d))});
      r.out[0].push_back(r.in[0].back());
    }
  }
  return r;
}

absl::Status check_not_empty(std::string_view what, Type x, const DimList& dims) {
  for (std::int64_t d : dims)
    if (d >= 0 && d < x.rank() && x.dim(static_cast<int>(d)) == 0)
      return absl::InvalidArgumentError(fmt::format("dim {} of {} is empty and has no {}", d, to_string(x), what));
  return absl::OkStatus();
}

absl::StatusOr<Factors> reduce_factors(const Eqn& e) {
  const Reduce& a = e.attrs<Reduce>();
  if (is_extreme(a.kind))
    if (absl::Status s = check_not_empty(word(a.kind), e.in(0).type(), a.dims); !s.ok()) return s;
  return reduced(e, a.dims, {.cls = FactorClass::R, .combine = combine_of(a.kind)});
}

// dims behind the others, flattened into one: [kept.., n].
Value flatten_last(Value x, const DimList& dims) {
  const DimList kept = other_dims(dims, x.rank());
  Shape flat;
  for (std::int64_t d : kept) flat.push_back(x.dims()[d]);
  std::int64_t n = 1;
  for (std::int64_t d : dims) n *= x.dims()[d];
  flat.push_back(n);
  return reshape_to(permute(x, concat(kept, dims)), flat);
}

Value prod_tangent(const Eqn& e, Value dx) {
  const DimList& dims = e.attrs<Reduce>().dims;
  const DType wide = accumulator(dx.dtype());
  const Value weights = product_of_others(flatten_last(convert_to(e.in(0), wide), dims));
  const Value terms = weights * flatten_last(convert_to(dx, wide), dims);
  return convert_to(reduce_dims(terms, ReduceKind::sum, {terms.rank() - 1}), dx.dtype());
}

// The mean of the tangents of all elements equal to the extreme. Beside a NaN extreme nothing loses, and the count is
// NaN: so are the tangent and, in reverse, the cotangents of all elements.
Value extreme_tangent(Builder& b, const Eqn& e, Value dx) {
  const Reduce& a = e.attrs<Reduce>();
  const DType wide = accumulator(dx.dtype());
  const Value y = broadcast_to(e.out(), e.in(0).dims(), other_dims(a.dims, e.in(0).rank()));
  const Value is_winner = b.emit(not_, {b.emit(a.kind == ReduceKind::max ? lt : gt, {e.in(0), y})});
  const Value winners = reduce_dims(convert_to(is_winner, wide), ReduceKind::sum, a.dims);
  const Value count = b.emit(select, {b.emit(ne, {e.out(), e.out()}), convert_to(e.out(), wide), winners});
  const Value total = reduce_dims(convert_to(where_or_zero(is_winner, dx), wide), ReduceKind::sum, a.dims);
  return convert_to(total / count, dx.dtype());
}

Values reduce_jvp(Builder& b, const Eqn& e, const Values& tangents) {
  const Reduce& a = e.attrs<Reduce>();
  switch (a.kind) {
    case ReduceKind::sum: return {reduce_dims(tangents[0], a.kind, a.dims)};
    case ReduceKind::prod: return {prod_tangent(e, tangents[0])};
    case ReduceKind::max:
    case ReduceKind::min: return {extreme_tangent(b, e, tangents[0])};
    case ReduceKind::and_:
    case ReduceKind::or_: return {Value()};
  }
  return {Value()};
}

Values reduce_transpose(Builder&, const Eqn& e, const Values&, const Values& cts) {
  const Value x = e.in(0);
  return {broadcast_to(cts[0], x.dims(), other_dims(e.attrs<Reduce>().dims, x.rank()))};
}

// Calls f(i, j): element i of x contributes to element j of the result.
template <class F>
void for_each_term(const Literal& x, const Literal& y, const DimList& dims, F f) {
  if (x.size() == 0) return;
  const DimList y_strides = strides_of(y.dims());
  DimList strides(x.dims().size(), 0);  // of the result, by dims of x
  std::size_t kept = 0;
  for (std::size_t d = 0; d < strides.size(); ++d)
    if (!lists(dims, static_cast<std::int64_t>(d))) strides[d] = y_strides[kept++];
  DimList index(strides.size(), 0);
  std::int64_t i = 0;
  do f(i++, flatten(index, strides));
  while (next_index(index, x.dims()));
}

void eval_reduce(const Eqn& e, std::span<const Literal> in, std::span<Literal> out) {
  const auto& [kind, dims] = e.attrs<Reduce>();
  const Literal& x = in[0];
  Literal& y = out[0];
  const bool is_product = kind == ReduceKind::prod;
  if (is_float(x.dtype()) && !is_extreme(kind)) {
    std::vector<double> totals(static_cast<std::size_t>(y.size()), is_product ? 1.0 : 0.0);
    for_each_term(x, y, dims, [&](std::int64_t i, std::int64_t j) {
      totals[j] = is_product ? totals[j] * x.get(i) : totals[j] + x.get(i);
    });
    for (std::int64_t j = 0; j < y.size(); ++j) y.set(j, totals[j]);
    return;
  }
  for (std::int64_t j = 0; j < y.size(); ++j) y.set_bits(j, is_product || kind == ReduceKind::and_ ? 1 : 0);
  const ScalarFn& combine = scalar_primitive(scalar_op_of(kind), x.dtype());
  std::vector<bool> has_first(static_cast<std::size_t>(y.size()), false);
  for_each_term(x, y, dims, [&](std::int64_t i, std::int64_t j) {
    const std::uint64_t both[] = {y.bits(j), x.bits(i)};
    y.set_bits(j, has_first[j] ? eval(combine, both) : x.bits(i));
    has_first[j] = true;
  });
}

Cost reduce_cost(const Eqn& e) {
  const Type x = e.in(0).type();
  return {.flops = static_cast<double>(x.num_elements()),
          .bytes = static_cast<double>(x.bytes() + e.out().type().bytes())};
}

absl::StatusOr<std::vector<DType>> arg_dtypes(const Eqn& e) {
  const DType t = e.in(0).dtype(), index = e.attrs<ArgReduce>().dtype;
  if (!is_int(t) && !is_float(t) && !is_bool(t))
    return absl::InvalidArgumentError(fmt::format("takes integers, floats or bool, not {}", to_string(e.in(0).type())));
  if (!is_int(index)) return absl::InvalidArgumentError(fmt::format("dtype must be an integer, not {}", name(index)));
  return std::vector<DType>{index};
}

absl::StatusOr<Factors> arg_factors(const Eqn& e) {
  const ArgReduce& a = e.attrs<ArgReduce>();
  const Type x = e.in(0).type();
  if (absl::Status s = check_one_dim("dim", a.dim, x.rank()); !s.ok()) return s;
  absl::StatusOr<Factors> r = reduced(e, a.dim, {.cls = FactorClass::R, .combine = Combine::custom, .absolute = true});
  if (!r.ok()) return r;
  if (absl::Status s = check_not_empty(e.op->name, x, a.dim); !s.ok()) return s;
  const std::int64_t last = x.dim(static_cast<int>(a.dim[0])) - 1;
  const int bits = 8 * size_bytes(a.dtype) - (is_signed_int(a.dtype) ? 1 : 0);
  if (bits < 63 && last >> bits != 0)
    return absl::InvalidArgumentError(
        fmt::format("{} does not hold position {} of dim {}", name(a.dtype), last, a.dim[0]));
  return r;
}

template <bool is_max>
void eval_arg(const Eqn& e, std::span<const Literal> in, std::span<Literal> out) {
  const Literal& x = in[0];
  Literal& y = out[0];
  const std::int64_t dim = e.attrs<ArgReduce>().dim[0];
  const std::int64_t stride = strides_of(x.dims())[dim];
  const auto is_nan = [&](std::int64_t i) { return is_float(x.dtype()) && std::isnan(x.get(i)); };
  const auto beats = [&](std::int64_t i, std::int64_t best) {
    if (is_nan(i) || is_nan(best)) return !is_nan(best);
    return is_max ? compare(x, i, best) > 0 : compare(x, i, best) < 0;
  };
  std::vector<std::int64_t> best(static_cast<std::size_t>(y.size()), -1);
  // Positions come in ascending order along the dim, so the first winner is the lowest.
  for_each_term(x, y, {dim}, [&](std::int64_t i, std::int64_t j) {
    if (best[j] < 0 || beats(i, best[j])) best[j] = i;
  });
  for (std::int64_t j = 0; j < y.size(); ++j) y.set_int(j, best[j] / stride % x.dims()[dim]);
}

// The extreme of each part, and where it lies in the whole; parts are in order, so that the first of equal ones is the
// lowest.
template <bool is_max>
Values localize_arg(const Shard& s) {
  const OpDef& op = is_max ? argmax : argmin;
  const std::int64_t d = s.whole.attrs<ArgReduce>().dim[0];
  const FactorList& searched = s.factors.in[0][d];
  const Value local = s.emit()[0];
  Shape one = s.operands[0].dims();
  one[d] = 1;
  const Value here = reshape_to(local, one);
  const Value extremes = s.all_parts(take_along(s.operands[0], here, d), searched[0], d);
  const Value places = s.all_parts(here + convert_to(s.offset(searched), here.dtype()), searched[0], d);
  const Value best = s.b.emit(op, {extremes}, ArgReduce{.dim = {d}, .dtype = DType::i32});
  return {reshape_to(take_along(places, reshape_to(best, one), d), local.dims())};
}

// The sheet that argmax and argmin share but for their names and samples.
template <bool is_max>
constexpr OpDef arg_reduction(OpDef d) {
  d.arity = 1;
  d.attrs = attrs_of<ArgReduce>();
  d.factors = arg_factors;
  d.dtypes = arg_dtypes;
  d.no_jvp = Absent::integer_result;
  d.localize = localize_arg<is_max>;
  d.lower = [](const Eqn& e) -> Lowering {
    return lowering::ArgReduce{.is_max = is_max, .dim = static_cast<int>(e.attrs<ArgReduce>().dim[0])};
  };
  d.eval = eval_arg<is_max>;
  d.cost = reduce_cost;
  return d;
}

}  // namespace

// By a tree of pairs: others(x0) of a pair (x0, x1) is x1 times the others of the pair. No division, so zeros are
// exact, and every step is differentiable again.
Value product_of_others(Value x) {
  Builder& b = x.builder();
  const int last = x.rank() - 1;
  const std::int64_t n = x.dims()[last];
  if (n <= 1) return b.full(x.type(), 1);
  const Value even = pad_dim(x, last, 0, n % 2, 1);
  Shape half = even.dims();
  half[last] /= 2;
  Shape pairs_shape = half;
  pairs_shape.push_back(2);
  const Value pairs = reshape_to(even, pairs_shape);
  const Value products = slice_dim(pairs, last + 1, 0, 1) * slice_dim(pairs, last + 1, 1, 2);
  const Value others = product_of_others(reshape_to(products, half));
  const Value partner = b.emit(reverse, {pairs}, Reverse{.dims = {last + 1}});
  const Value result = partner * broadcast_to(others, pairs_shape, dim_range(0, last + 1));
  return slice_dim(reshape_to(result, even.dims()), last, 0, n);
}

constinit const OpDef reduce = {
    .name = "reduce",
    .doc =
        "Combines the elements along `dims`, which the result lacks, by `kind`: sum, prod, max, min (integers and "
        "floats), and, or (bool). Sums and products of f16 and bf16 accumulate in f32 and round once; integers wrap. "
        "A NaN wins max and min. Over nothing, sum is 0, prod 1, and true, or false; max and min refuse an empty dim. "
        "The derivative of max and min is the mean over tied winners; that of prod is exact at zeros.",
    .arity = 1,
    .attrs = attrs_of<Reduce>(),
    .factors = reduce_factors,
    .dtypes = reduce_dtypes,
    .linear_when = [](const Eqn& e) { return e.attrs<Reduce>().kind == ReduceKind::sum ? jointly(1) : Linear{}; },
    .jvp = reduce_jvp,
    .transpose = reduce_transpose,
    .lower = [](const Eqn& e) -> Lowering {
      return lowering::Reduce{.kind = e.attrs<Reduce>().kind, .dims = e.attrs<Reduce>().dims};
    },
    .eval = eval_reduce,
    .cost = reduce_cost,
    .ulp = 8,
    .samples =
        [] {
          return Samples{"reduce f32[4, 6, 2] {dims=[1]}",
                         "reduce f64[3, 5] {dims=[0, 1]}",
                         "reduce f16[7, 3] {dims=[0]}",
                         "reduce bf16[2, 5, 3] {dims=[0, 2]}",
                         "reduce i32[3, 4] {dims=[1]}",
                         "reduce c64[3, 4] {dims=[1]}",
                         "reduce c128[3] {dims=[0]}",
                         "reduce f32[3, 0] {dims=[1]}",
                         "reduce f32[0, 3] {dims=[1]}",
                         "reduce f32[2, 3] {dims=[]}",
                         "reduce f32[]",
                         "reduce f32[3, 5] {kind=prod, dims=[1]}",
                         "reduce f64[2, 3, 2] {kind=prod, dims=[2, 0]}",
                         "reduce f32[2, 0] {kind=prod, dims=[1]}",
                         "reduce u8[4, 3] {kind=prod, dims=[0]}",
                         "reduce f32[4, 6, 2] {kind=max, dims=[0, 2]}",
                         "reduce bf16[5, 3] {kind=max, dims=[0]}",
                         "reduce i8[5, 3] {kind=max, dims=[1]}",
                         "reduce f32[1, 5] {kind=min, dims=[0]}",
                         "reduce u64[2, 5] {kind=min, dims=[1]}",
                         "reduce bool[3, 4] {kind=and, dims=[1]}",
                         "reduce bool[3, 0] {kind=and, dims=[1]}",
                         "reduce bool[3, 4] {kind=or, dims=[0]}"};
        },
};

constinit const OpDef argmax = arg_reduction<true>({
    .name = "argmax",
    .doc = "Position of the largest element along `dim`, which the result lacks, as `dtype`. A NaN wins; the lowest "
           "of equal positions. An empty dim is refused.",
    .samples =
        [] {
          return Samples{"argmax f32[4, 6] {dim=[1]}",
                         "argmax bf16[5, 3] {dim=[0]}",
                         "argmax f16[4] {dim=[0]}",
                         "argmax i32[2, 3, 4] {dim=[1], dtype=i64}",
                         "argmax bool[4, 3] {dim=[0], dtype=u8}",
                         "argmax f32[0, 3] {dim=[1]}"};
        },
});

constinit const OpDef argmin = arg_reduction<false>({
    .name = "argmin",
    .doc =
        "Position of the smallest element along `dim`, which the result lacks, as `dtype`. A NaN wins; the lowest of "
        "equal positions. An empty dim is refused.",
    .samples =
        [] {
          return Samples{"argmin f32[4, 6] {dim=[1]}", "argmin f16[5, 3] {dim=[0]}", "argmin bf16[2, 4] {dim=[1]}",
                         "argmin u8[2, 3, 4] {dim=[2]}", "argmin f32[1] {dim=[0]}"};
        },
});

}  // namespace sheaf::ir::ops
