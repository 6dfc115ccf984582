// Stable sort of several arrays by the first few of them. Sorting is a permutation, so tangents follow it: the
// derivative sorts positions along and gathers.
#include <limits>
#include <numeric>

#include "ir/ops/order.h"
#include "ir/ops/windows.h"

namespace sheaf::ir::ops {
namespace {

absl::StatusOr<std::vector<DType>> sort_dtypes(const Eqn& e) {
  const Sort& a = e.attrs<Sort>();
  if (a.num_keys < 1 || a.num_keys > e.num_in())
    return absl::InvalidArgumentError(fmt::format("num_keys must lie in [1, {}], not {}", e.num_in(), a.num_keys));
  std::vector<DType> dtypes;
  for (int k = 0; k < e.num_in(); ++k) {
    const DType t = e.in(k).dtype();
    if (is_complex(t))
      return absl::InvalidArgumentError(
          fmt::format("operand {} ({}) is complex: complex numbers have no order", k, to_string(e.in(k).type())));
    if (k < a.num_keys && !is_int(t) && !is_float(t) && !is_bool(t))
      return absl::InvalidArgumentError(
          fmt::format("key {} ({}) must be integers, floats or bool", k, to_string(e.in(k).type())));
    dtypes.push_back(t);
  }
  return dtypes;
}

absl::StatusOr<Factors> sort_factors(const Eqn& e) {
  const Sort& a = e.attrs<Sort>();
  const Type x = e.in(0).type();
  for (int k = 1; k < e.num_in(); ++k)
    if (e.in(k).dims() != x.dims())
      return absl::InvalidArgumentError(fmt::format("operands 0 ({}) and {} ({}) must have the same shape",
                                                    to_string(x), k, to_string(e.in(k).type())));
  if (absl::Status s = check_one_dim("dim", a.dim, x.rank()); !s.ok()) return s;
  Factors r;
  TensorFactors all;
  for (int d = 0; d < x.rank(); ++d) all.push_back({r.add(x.dim(d), d == a.dim[0] ? FactorClass::N : FactorClass::P)});
  r.in.assign(e.num_in(), all);
  r.out.assign(e.num_in(), all);
  return r;
}

Values sort_jvp(Builder& b, const Eqn& e, const Values& tangents) {
  const Sort& a = e.attrs<Sort>();
  const Shape& dims = e.in(0).dims();
  Values results(e.num_out());
  if (num_elements(dims) == 0) {
    for (int k = 0; k < e.num_in(); ++k) results[k] = tangents[k];
    return results;
  }
  const DType dtype = dims[a.dim[0]] <= std::numeric_limits<std::int32_t>::max() ? DType::i32 : DType::i64;
  Values operands(e.operands.begin(), e.operands.begin() + a.num_keys);
  operands.push_back(b.emit(iota, {}, Iota{.shape = dims, .dim = DimList(a.dim), .dtype = dtype}));
  const Value positions = b.emit_all(&sort, std::move(operands), e.attributes).back();
  for (int k = 0; k < e.num_in(); ++k)
    if (tangents[k]) results[k] = take_along(tangents[k], positions, a.dim[0]);
  return results;
}

void eval_sort(const Eqn& e, std::span<const Literal> in, std::span<Literal> out) {
  const auto& [dim_list, num_keys] = e.attrs<Sort>();
  const Shape& dims = in[0].dims();
  if (num_elements(dims) == 0) return;
  const std::int64_t dim = dim_list[0], n = dims[dim], stride = strides_of(dims)[dim];
  std::vector<std::int64_t> order(static_cast<std::size_t>(n));
  for (std::int64_t first = 0; first < in[0].size(); ++first) {
    if (first / stride % n != 0) continue;  // not the first element of its line along dim
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin(), order.end(), [&](std::int64_t i, std::int64_t j) {
      for (int k = 0; k < num_keys; ++k)
        if (const int c = compare(in[k], first + i * stride, first + j * stride)) return c < 0;
      return i < j;
    });
    for (std::size_t k = 0; k < in.size(); ++k)
      for (std::int64_t i = 0; i < n; ++i) out[k].copy(first + i * stride, in[k], first + order[i] * stride);
  }
}

Cost sort_cost(const Eqn& e) {
  const double n = static_cast<double>(e.in(0).dims()[e.attrs<Sort>().dim[0]]);
  Cost c{.flops = static_cast<double>(e.in(0).type().num_elements()) * std::ceil(std::log2(n + 1)), .bytes = 0};
  for (Value v : e.operands) c.bytes += 2 * static_cast<double>(v.type().bytes());
  return c;
}

}  // namespace

constinit const OpDef sort = {
    .name = "sort",
    .doc =
        "All operands reordered along `dim` so that the first `num_keys` ascend, compared in turn. Stable; NaNs come "
        "last, and -0 equals +0.",
    .num_results = -1,
    .attrs = attrs_of<Sort>(),
    .factors = sort_factors,
    .dtypes = sort_dtypes,
    .jvp = sort_jvp,
    .lower = [](const Eqn& e) -> Lowering {
      return lowering::Sort{.dim = static_cast<int>(e.attrs<Sort>().dim[0]), .num_keys = e.attrs<Sort>().num_keys};
    },
    .eval = eval_sort,
    .cost = sort_cost,
    .samples =
        [] {
          return Samples{"sort f32[4, 6] {dim=[1]}",
                         "sort f64[5, 3] {dim=[0]}",
                         "sort f64[2, 5], f64[2, 5] {dim=[1]}",
                         "sort i32[3, 7] in (0, 3), f64[3, 7] {dim=[1]}",
                         "sort i8[9] in (0, 2), i8[9] in (0, 2), i32[9] {dim=[0], num_keys=2}",
                         "sort bool[6], u64[6] {dim=[0]}",
                         "sort bf16[3, 0] {dim=[1]}",
                         "sort f16[1, 3] {dim=[0]}"};
        },
};

}  // namespace sheaf::ir::ops
