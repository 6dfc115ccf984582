// Running reductions along one dim, and the recurrence y[i] = a[i] y[i-1] + b[i], which all of their derivatives are:
// no derivative divides by an element, so zeros and ties come out exact, and each costs one more pass over the dim.
#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "ir/ops/rules.h"
#include "ir/shard.h"

namespace sheaf::ir::ops {
namespace {

using Kind = lowering::Recurrence::Kind;

std::string_view word(Kind kind) { return kCumulativeWords[static_cast<int>(kind)]; }

absl::StatusOr<std::vector<DType>> cumulative_dtypes(const Eqn& e) {
  const Kind kind = e.attrs<Cumulative>().kind;
  const DType t = e.in(0).dtype();
  const Dtypes set = kind == Kind::logsumexp ? Dtypes::floating : kind == Kind::sum ? Dtypes::numeric : Dtypes::real;
  if (!contains(set, t))
    return absl::InvalidArgumentError(
        fmt::format("cumulative {} takes {}, not {}", word(kind), name(set), to_string(e.in(0).type())));
  return std::vector<DType>{t};
}

absl::StatusOr<Factors> along(const Eqn& e, const DimList& dim) {
  const Type x = e.in(0).type();
  if (dim.size() != 1) return absl::InvalidArgumentError(fmt::format("dim must be one dim, not {}", to_string(dim)));
  if (absl::Status s = check_dims("dim", dim, x.rank()); !s.ok()) return s;
  for (int k = 1; k < e.num_in(); ++k)
    if (e.in(k).dims() != x.dims())
      return absl::InvalidArgumentError(
          fmt::format("a ({}) and b ({}) must have the same shape", to_string(x), to_string(e.in(k).type())));
  Factors r;
  TensorFactors all;
  for (int d = 0; d < x.rank(); ++d) all.push_back({r.add(x.dim(d), d == dim[0] ? FactorClass::M : FactorClass::P)});
  r.in.assign(e.num_in(), all);
  r.out = {all};
  return r;
}

// One direction along one dim: what stands before an element, and the recurrence.
struct Line {
  int dim;
  bool reverse;

  static Line of(const Cumulative& a) { return {static_cast<int>(a.dim[0]), a.reverse}; }
  static Line of(const Recurrence& a) { return {static_cast<int>(a.dim[0]), a.reverse}; }
  Line reversed() const { return {dim, !reverse}; }
  /// The element before each, `first` before the first.
  Value previous(Value x, double first) const {
    if (x.dims()[dim] == 0) return x;
    return reverse ? pad_dim(x, dim, -1, 1, first) : pad_dim(x, dim, 1, -1, first);
  }
  Value recur(Value a, Value b) const {
    return a.builder().emit(recurrence, {a, b}, Recurrence{.dim = {dim}, .reverse = reverse});
  }
  Value running(Value x, Kind kind) const {
    return x.builder().emit(cumulative, {x}, Cumulative{.kind = kind, .dim = {dim}, .reverse = reverse});
  }
};

// t[i] = x[i] t[i-1] + y[i-1] dx[i]
Value prod_tangent(Line line, Value x, Value dx) {
  return line.recur(x, line.previous(line.running(x, Kind::prod), 1) * dx);
}

// The mean of the tangents of all elements so far that equal the extreme: with n of them, the new one counts 1/n and
// what was before (n - 1)/n, or all of it where the extreme stays. After a NaN nothing is equal: 0 / 0 = NaN.
Value extreme_tangent(Line line, Kind kind, Value x, Value y, Value dx) {
  Builder& b = x.builder();
  const double lowest = std::numeric_limits<double>::infinity() * (kind == Kind::max ? -1 : 1);
  const Value stays = b.emit(kind == Kind::max ? le : ge, {x, line.previous(y, lowest)});
  const Value wins = convert_to(b.emit(eq, {x, y}), dx.dtype());
  const Value count = line.recur(convert_to(stays, dx.dtype()), wins);
  return line.recur(where_or_zero(stays, line.previous(count, 0) / count), dx * (wins / count));
}

// exp(y[i-1] - y[i]) t[i-1] + exp(x[i] - y[i]) dx[i], whose factors are at most 1. Of -inf alone: 0.
Value logsumexp_tangent(Line line, Value x, Value dx) {
  Builder& b = x.builder();
  constexpr double kNone = -std::numeric_limits<double>::infinity();
  const Value y = line.running(x, Kind::logsumexp);
  const Value is_none = b.emit(eq, {y, b.constant(y.dtype(), kNone)});
  const Value scale = b.emit(select, {is_none, b.zeros(y.type()), y});
  return line.recur(b.emit(exp, {line.previous(y, kNone) - scale}), b.emit(exp, {x - scale}) * dx);
}

Values cumulative_jvp(Builder&, const Eqn& e, const Values& tangents) {
  const Cumulative& a = e.attrs<Cumulative>();
  const Line line = Line::of(a);
  if (a.kind == Kind::sum) return {line.running(tangents[0], Kind::sum)};
  const DType dtype = tangents[0].dtype(), wide = accumulator(dtype);
  const Value x = convert_to(e.in(0), wide), dx = convert_to(tangents[0], wide);
  Value t;
  if (a.kind == Kind::prod) t = prod_tangent(line, x, dx);
  else if (a.kind == Kind::logsumexp) t = logsumexp_tangent(line, x, dx);
  else t = extreme_tangent(line, a.kind, x, convert_to(e.out(), wide), dx);
  return {convert_to(t, dtype)};
}

Values cumulative_transpose(Builder&, const Eqn& e, const Values&, const Values& cts) {
  return {Line::of(e.attrs<Cumulative>()).reversed().running(cts[0], Kind::sum)};
}

// dy[i] = a[i] dy[i-1] + (y[i-1] da[i] + db[i])
Values recurrence_jvp(Builder&, const Eqn& e, const Values& tangents) {
  const Line line = Line::of(e.attrs<Recurrence>());
  Value db = tangents[1];
  if (tangents[0]) {
    const Value from_a = line.previous(e.out(), 0) * tangents[0];
    db = db ? from_a + db : from_a;
  }
  return {line.recur(e.in(0), db)};
}

// ct b[i] = ct[i] + a[i+1] ct b[i+1]
Values recurrence_transpose(Builder&, const Eqn& e, const Values& operands, const Values& cts) {
  const Line back = Line::of(e.attrs<Recurrence>()).reversed();
  return {Value(), back.recur(back.previous(operands[0], 0), cts[0])};
}

Shape one_of(Value x, int dim) {
  Shape dims = x.dims();
  dims[dim] = 1;
  return dims;
}

// A line in parts: each is combined on its own, and what came before it, which the totals of the parts tell, goes in
// last.
struct Parts {
  const Shard& s;
  Line line;
  int factor;

  Parts(const Shard& shard, Line of) : s(shard), line(of), factor(shard.factors.out[0][of.dim][0]) {}

  std::int64_t last(Value x) const { return line.reverse ? 0 : x.dims()[line.dim] - 1; }
  /// The last element in the order of the line, of all parts.
  Value totals(Value x) const { return s.all_parts(slice_dim(x, line.dim, last(x), last(x) + 1), factor, line.dim); }
  /// Of what all parts make together, `running` over the parts, what is before this one; `first` before the first.
  Value before(Value running, Value first) const {
    const std::int64_t n = running.dims()[line.dim];
    Pad attrs{
        .low = DimList(running.rank(), 0), .high = DimList(running.rank(), 0), .interior = DimList(running.rank(), 0)};
    attrs.low[line.dim] = line.reverse ? -1 : 1;
    attrs.high[line.dim] = line.reverse ? 1 : -1;
    const Value previous = n == 0 ? running : s.b.emit(pad, {running, first}, std::move(attrs));
    return s.b.emit(dynamic_slice, {previous, reshape_to(s.part(factor), {1})},
                    DynamicSlice{.dims = {line.dim}, .sizes = {1}, .index_dim = {0}});
  }
  /// x with `carry` in front, and what becomes of x then.
  Value with(Value carry, Value x) const {
    return s.b.emit(concatenate, line.reverse ? Values{x, carry} : Values{carry, x}, Concatenate{.dim = {line.dim}});
  }
  Value without(Value y) const {
    const std::int64_t n = y.dims()[line.dim];
    return slice_dim(y, line.dim, line.reverse ? 0 : 1, line.reverse ? n - 1 : n);
  }
};

// -0 rather than 0, which would change a -0.
Value identity_of(Builder& b, Kind kind, DType t) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();  // saturates to the extreme integers
  if (kind == Kind::sum) return b.constant(t, -0.0);
  if (kind == Kind::prod) return b.constant(t, 1);
  return b.constant(t, kind == Kind::min ? kInfinity : -kInfinity);
}

Values localize_cumulative(const Shard& s) {
  const Cumulative& a = s.whole.attrs<Cumulative>();
  const Parts parts(s, Line::of(a));
  const DType dtype = s.operands[0].dtype(), wide = accumulator(dtype);
  const Value x = convert_to(s.operands[0], wide);
  const Value y = parts.line.running(x, a.kind);
  const Value carry = parts.before(parts.line.running(parts.totals(y), a.kind), identity_of(s.b, a.kind, wide));
  if (a.kind == Kind::logsumexp)
    return {convert_to(parts.without(parts.line.running(parts.with(carry, x), a.kind)), dtype)};
  constexpr const OpDef* kOps[] = {&add, &mul, &max, &min};
  const Value all = broadcast_to(carry, y.dims(), dim_range(0, y.rank()));
  return {convert_to(s.b.emit(*kOps[static_cast<int>(a.kind)], {all, y}), dtype)};
}

// A part makes of what comes before it: the product of its a times that, plus its own last element.
Values localize_recurrence(const Shard& s) {
  const Recurrence& r = s.whole.attrs<Recurrence>();
  const Parts parts(s, Line::of(r));
  const DType dtype = s.operands[0].dtype(), wide = accumulator(dtype);
  const Value a = convert_to(s.operands[0], wide), b = convert_to(s.operands[1], wide);
  const Value factors =
      s.all_parts(reshape_to(reduce_dims(a, ReduceKind::prod, {parts.line.dim}), one_of(a, parts.line.dim)),
                  parts.factor, parts.line.dim);
  const Value running = parts.line.recur(factors, parts.totals(parts.line.recur(a, b)));
  const Value carry = parts.before(running, s.b.constant(wide, 0));
  const Value y = parts.line.recur(parts.with(s.b.full(carry.type(), 1), a), parts.with(carry, b));
  return {convert_to(parts.without(y), dtype)};
}

bool splits_line(const Eqn&, const Factors& factors, int factor, std::int64_t ways) {
  return factors.factors[factor].size >= ways;
}

// Calls f(i, before) for every element in the order of the line, `before` being -1 for the first.
template <class F>
void walk(const Shape& dims, Line line, F f) {
  if (num_elements(dims) == 0) return;
  const DimList strides = strides_of(dims);
  Shape first = dims;
  first[line.dim] = 1;
  const std::int64_t n = dims[line.dim], step = strides[line.dim];
  DimList at(dims.size(), 0);
  do {
    const std::int64_t start = flatten(at, strides) + (line.reverse ? (n - 1) * step : 0);
    for (std::int64_t k = 0; k < n; ++k) {
      const std::int64_t i = start + (line.reverse ? -k : k) * step;
      f(i, k == 0 ? -1 : i + (line.reverse ? step : -step));
    }
  } while (next_index(at, first));
}

double combined(Kind kind, double y, double x) {
  switch (kind) {
    case Kind::sum: return y + x;
    case Kind::prod: return y * x;
    case Kind::max: return std::isnan(y) || std::isnan(x) ? y + x : std::max(y, x);
    case Kind::min: return std::isnan(y) || std::isnan(x) ? y + x : std::min(y, x);
    case Kind::logsumexp: {
      const double top = std::max(y, x);
      if (std::isnan(y) || std::isnan(x)) return y + x;
      return std::isinf(top) ? top : top + std::log(std::exp(y - top) + std::exp(x - top));
    }
    case Kind::affine: break;
  }
  return 0;
}

ScalarOp scalar_op_of(Kind kind) {
  constexpr ScalarOp kOps[] = {ScalarOp::add, ScalarOp::mul, ScalarOp::max, ScalarOp::min};
  return kOps[static_cast<int>(kind)];
}

void eval_cumulative(const Eqn& e, std::span<const Literal> in, std::span<Literal> out) {
  const Cumulative& a = e.attrs<Cumulative>();
  const Literal& x = in[0];
  if (!is_float(x.dtype())) {
    const ScalarFn& combine = scalar_primitive(scalar_op_of(a.kind), x.dtype());
    walk(x.dims(), Line::of(a), [&](std::int64_t i, std::int64_t before) {
      const std::uint64_t both[] = {before < 0 ? 0 : out[0].bits(before), x.bits(i)};
      out[0].set_bits(i, before < 0 ? x.bits(i) : eval(combine, both));
    });
    return;
  }
  std::vector<double> y(static_cast<std::size_t>(x.size()));
  walk(x.dims(), Line::of(a), [&](std::int64_t i, std::int64_t before) {
    y[i] = before < 0 ? x.get(i) : combined(a.kind, y[before], x.get(i));
    out[0].set(i, y[i]);
  });
}

void eval_recurrence(const Eqn& e, std::span<const Literal> in, std::span<Literal> out) {
  std::vector<double> y(static_cast<std::size_t>(out[0].size()));
  walk(out[0].dims(), Line::of(e.attrs<Recurrence>()), [&](std::int64_t i, std::int64_t before) {
    y[i] = before < 0 ? in[1].get(i) : in[0].get(i) * y[before] + in[1].get(i);
    out[0].set(i, y[i]);
  });
}

}  // namespace

constinit const OpDef cumulative = {
    .name = "cumulative",
    .doc =
        "Combines each element with all before it along `dim` (behind it, if `reverse`) by `kind`: sum, prod, max, min "
        "(integers and floats), logsumexp (floats). f16 and bf16 accumulate in f32 and round each result once; "
        "integers wrap; a NaN stays. Elements are combined one after the other, in order. The derivative of max and "
        "min is the mean over the tied winners so far; that of prod is exact at zeros.",
    .arity = 1,
    .attrs = attrs_of<Cumulative>(),
    .factors = [](const Eqn& e) { return along(e, e.attrs<Cumulative>().dim); },
    .dtypes = cumulative_dtypes,
    .linear_when = [](const Eqn& e) { return e.attrs<Cumulative>().kind == Kind::sum ? jointly(1) : Linear{}; },
    .jvp = cumulative_jvp,
    .transpose = cumulative_transpose,
    .localize = localize_cumulative,
    .splits = splits_line,
    .lower = [](const Eqn& e) -> Lowering {
      const Cumulative& a = e.attrs<Cumulative>();
      return lowering::Recurrence{.kind = a.kind,
                                  .dim = static_cast<int>(a.dim[0]),
                                  .is_reverse = a.reverse,
                                  .accumulate = accumulator(e.out().dtype())};
    },
    .eval = eval_cumulative,
    .ulp = 8,
    .samples =
        [] {
          return Samples{"cumulative c64[5] {dim=[0]}",
                         "cumulative f32[4, 6] {dim=[1]}",
                         "cumulative f64[3, 5, 2] {dim=[1], reverse=true}",
                         "cumulative bf16[5, 3] {dim=[0]}",
                         "cumulative f16[7] {dim=[0], reverse=true}",
                         "cumulative i8[5, 3] in (-100, 100) {dim=[0]}",
                         "cumulative f32[0, 3] {dim=[0]}",
                         "cumulative f32[1, 3] {dim=[0]}",
                         "cumulative f32[2, 70] {dim=[0]}",
                         "cumulative f64[2, 5] {kind=prod, dim=[1]}",
                         "cumulative f16[3, 4] {kind=prod, dim=[1], reverse=true}",
                         "cumulative u32[4, 2] {kind=prod, dim=[0]}",
                         "cumulative f64[5, 3] {kind=max, dim=[0]}",
                         "cumulative f64[4, 5] {kind=max, dim=[1], reverse=true}",
                         "cumulative bf16[6] {kind=max, dim=[0]}",
                         "cumulative i32[6, 2] {kind=max, dim=[0], reverse=true}",
                         "cumulative f64[5, 3] {kind=min, dim=[0]}",
                         "cumulative u64[3, 5] {kind=min, dim=[1]}",
                         "cumulative f64[2, 5] {kind=logsumexp, dim=[1]}",
                         "cumulative f32[5, 3] in (-100, 100) {kind=logsumexp, dim=[0], reverse=true}",
                         "cumulative f16[7] {kind=logsumexp, dim=[0]}"};
        },
};

constinit const OpDef recurrence = {
    .name = "recurrence",
    .doc =
        "out[i] = a[i] out[i-1] + b[i] along `dim`, from its end if `reverse`; the first is b's. Each step is one fused "
        "multiply-add; f16 and bf16 keep the state in f32 and round each result once.",
    .arity = 2,
    .types = Dtypes::floating,
    .attrs = attrs_of<Recurrence>(),
    .factors = [](const Eqn& e) { return along(e, e.attrs<Recurrence>().dim); },
    .linear = jointly(0b10),
    .jvp = recurrence_jvp,
    .transpose = recurrence_transpose,
    .localize = localize_recurrence,
    .splits = splits_line,
    .lower = [](const Eqn& e) -> Lowering {
      const Recurrence& a = e.attrs<Recurrence>();
      return lowering::Recurrence{.kind = Kind::affine,
                                  .dim = static_cast<int>(a.dim[0]),
                                  .is_reverse = a.reverse,
                                  .accumulate = accumulator(e.out().dtype())};
    },
    .eval = eval_recurrence,
    .ulp = 8,
    .samples =
        [] {
          return Samples{"recurrence f64[4, 3], f64[4, 3] {dim=[0]}",
                         "recurrence f64[2, 5], f64[2, 5] {dim=[1], reverse=true}",
                         "recurrence f32[3, 4], f32[3, 4] in (-1, 1) {dim=[1]}",
                         "recurrence bf16[5], bf16[5] {dim=[0]}",
                         "recurrence f16[2, 2], f16[2, 2] {dim=[0], reverse=true}",
                         "recurrence f32[0, 2], f32[0, 2] {dim=[0]}",
                         "recurrence f32[2, 1], f32[2, 1] {dim=[1]}"};
        },
};

}  // namespace sheaf::ir::ops
