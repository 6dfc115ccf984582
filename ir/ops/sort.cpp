// Sorting: stable, several operands carried along by the first `num_keys` of them. Tangents follow their elements.
#include <numeric>

#include "ir/ops/order.h"
#include "ir/ops/rules.h"

namespace sheaf::ir::ops {
namespace {

absl::StatusOr<Factors> sort_factors(const Eqn& e) {
  const Sort& a = e.attrs<Sort>();
  if (e.num_in() == 0) return absl::InvalidArgumentError("needs at least one operand");
  const Type x = e.in(0).type();
  if (a.dim.size() != 1) return absl::InvalidArgumentError("dim must be one dim");
  if (absl::Status s = check_dims("dim", a.dim, x.rank()); !s.ok()) return s;
  if (a.num_keys < 1 || a.num_keys > e.num_in())
    return absl::InvalidArgumentError(fmt::format("num_keys {} must lie in [1, {}]", a.num_keys, e.num_in()));
  for (int k = 1; k < e.num_in(); ++k)
    if (e.in(k).dims() != x.dims())
      return absl::InvalidArgumentError(
          fmt::format("operands 0 ({}) and {} ({}) must have the same shape", to_string(x), k, to_string(e.in(k).type())));
  Factors r;
  TensorFactors t;
  for (int d = 0; d < x.rank(); ++d) t.push_back({r.add(x.dim(d), d == a.dim[0] ? FactorClass::N : FactorClass::P)});
  r.in.assign(e.num_in(), t);
  r.out.assign(e.num_in(), t);
  return r;
}

absl::StatusOr<std::vector<DType>> sort_dtypes(const Eqn& e) {
  std::vector<DType> types;
  for (Value v : e.operands) types.push_back(v.dtype());
  return types;
}

void eval_sort(const Eqn& e, std::span<const Literal> in, std::span<Literal> out) {
  const Sort& a = e.attrs<Sort>();
  const Shape& dims = in[0].dims();
  const std::int64_t n = dims[a.dim[0]], stride = strides_of(dims)[a.dim[0]];
  for (std::int64_t first = 0; first < in[0].size(); ++first) {
    if (first / stride % n != 0) continue;  // not the start of a row
    std::vector<std::int64_t> order(n);
    std::iota(order.begin(), order.end(), 0);
    const auto less = [&](std::int64_t i, std::int64_t j) {
      for (int k = 0; k < a.num_keys; ++k)
        if (const int c = compare(in[k], first + i * stride, first + j * stride); c != 0) return c < 0;
      return i < j;  // stable
    };
    std::sort(order.begin(), order.end(), less);
    for (std::size_t k = 0; k < in.size(); ++k)
      for (std::int64_t i = 0; i < n; ++i) out[k].copy(first + i * stride, in[k], first + order[i] * stride);
  }
}

// x at the sorted positions: a gather along dim, all other dims batched.
Value along(Value x, Value order, std::int64_t dim) {
  Gather g{.collapsed = {dim}, .start_index_map = {dim}, .index_dim = {x.rank()}, .slice_sizes = DimList(x.rank(), 1),
           .mode = lowering::OutOfBounds::promise};
  for (std::int64_t d = 0; d < x.rank(); ++d) {
    if (d == dim) continue;
    g.operand_batch.push_back(d);
    g.indices_batch.push_back(d);
  }
  return x.builder().emit(gather, {x, order}, std::move(g));
}

Values sort_jvp(Builder& b, const Eqn& e, const Values& t) {
  if (e.out().type().num_elements() == 0) return t;  // nothing to reorder, and no element to gather
  const std::int64_t dim = e.attrs<Sort>().dim[0];
  const Shape& dims = e.in(0).dims();
  Values operands = e.operands;
  operands.push_back(b.emit(iota, {}, Iota{.shape = dims, .dim = {dim}, .dtype = DType::i64}));
  const Values sorted = b.emit_all(&sort, operands, e.attributes);
  Shape with_index = dims;
  with_index.push_back(1);
  const Value order = reshape_to(sorted.back(), with_index);
  Values out(e.num_out());
  for (int k = 0; k < e.num_out(); ++k)
    if (t[k]) out[k] = along(t[k], order, dim);
  return out;
}

}  // namespace

constinit const OpDef sort = {
    .name = "sort",
    .doc = "Sorts along `dim` by operand 0, ties by operand 1, and so on for `num_keys` operands; all operands are carried along. Stable; NaN "
           "last, -0 equal to +0.",
    .num_results = -1,
    .types = Dtypes::ordered,
    .attrs = attrs_of<Sort>(),
    .factors = sort_factors,
    .dtypes = sort_dtypes,
    .jvp = sort_jvp,
    .lower = [](const Eqn& e) -> Lowering { return lowering::Sort{static_cast<int>(e.attrs<Sort>().dim[0]), e.attrs<Sort>().num_keys}; },
    .eval = eval_sort,
    .samples = [] { return Samples{"sort f32[7] {dim=[0]}", "sort f64[3, 5] {dim=[1]}", "sort f64[3, 5], f64[3, 5] {dim=[0]}",
                                   "sort i32[9] in (0, 4), i32[9] {dim=[0], num_keys=2}", "sort i32[9] in (0, 3), f32[9] {dim=[0]}", "sort f32[0, 3] {dim=[0]}",
                                   "sort f32[3, 0] {dim=[0]}", "sort bf16[6] {dim=[0]}", "sort u8[5] {dim=[0]}", "sort bool[5] {dim=[0]}"}; },
};

}  // namespace sheaf::ir::ops
