// The largest elements along one dim, and where they lie. It stands for a sort of the reversed operand, whose last
// elements, read backwards, are the largest with the first of equal ones in front; the derivative gathers at the
// positions found.
#include <limits>
#include <numeric>

#include "ir/ops/order.h"
#include "ir/ops/windows.h"

namespace sheaf::ir::ops {
namespace {

absl::StatusOr<std::vector<DType>> top_k_dtypes(const Eqn& e) {
  return std::vector<DType>{e.in(0).dtype(), DType::i32};
}

absl::StatusOr<Factors> top_k_factors(const Eqn& e) {
  const TopK& a = e.attrs<TopK>();
  const Type x = e.in(0).type();
  if (absl::Status s = check_one_dim("dim", a.dim, x.rank()); !s.ok()) return s;
  const std::int64_t n = x.dims()[a.dim[0]];
  if (a.k < 0 || a.k > n)
    return absl::InvalidArgumentError(
        fmt::format("k must lie in [0, {}], the extent of dim {}, not {}", n, a.dim[0], a.k));
  if (n > std::numeric_limits<std::int32_t>::max())
    return absl::InvalidArgumentError(fmt::format("i32 does not hold position {} of dim {}", n - 1, a.dim[0]));
  Factors r;
  TensorFactors in, out;
  for (int d = 0; d < x.rank(); ++d) {
    const bool is_searched = d == a.dim[0];
    in.push_back({is_searched ? r.add(n, FactorClass::R, Combine::custom, true) : r.add(x.dim(d))});
    out.push_back(is_searched ? FactorList{r.add(a.k, FactorClass::N)} : in.back());
  }
  r.in = {std::move(in)};
  r.out = {out, out};
  return r;
}

Values top_k_jvp(Builder& b, const Eqn& e, const Values& tangents) {
  if (e.out().type().num_elements() == 0) return {b.zeros(e.out().type()), Value()};
  return {take_along(tangents[0], e.out(1), e.attrs<TopK>().dim[0]), Value()};
}

// The largest of each part are the candidates. They are in the order of parts and then of value, so that of equal ones
// the lowest position is first.
Values localize_top_k(const Shard& s) {
  const auto& [dim, k] = s.whole.attrs<TopK>();
  const int d = static_cast<int>(dim[0]);
  const FactorList& searched = s.factors.in[0][d];
  const auto largest = [&](Value x, std::int64_t count) {
    return s.b.emit_all(&top_k, {x}, std::make_shared<const TopK>(TopK{.dim = dim, .k = count}));
  };
  const Values local = largest(s.operands[0], std::min(k, s.local_size(searched)));
  const Values best = largest(s.all_parts(local[0], searched[0], d), k);
  const Value places = s.all_parts(local[1] + s.offset(searched), searched[0], d);
  return {best[0], take_along(places, best[1], d)};
}

Values expand_top_k(Builder& b, const Eqn& e, const Values& operands) {
  const auto& [dim, k] = e.attrs<TopK>();
  const int d = static_cast<int>(dim[0]);
  const Shape& dims = operands[0].dims();
  const auto flip = [&](Value v) { return b.emit(reverse, {v}, Reverse{.dims = dim}); };
  const Value positions = b.emit(iota, {}, Iota{.shape = dims, .dim = DimList(dim), .dtype = DType::i32});
  Values results;
  for (const Value sorted :
       b.emit_all(&sort, {flip(operands[0]), flip(positions)}, std::make_shared<const Sort>(Sort{.dim = dim})))
    results.push_back(flip(slice_dim(sorted, d, dims[d] - k, dims[d])));
  return results;
}

void eval_top_k(const Eqn& e, std::span<const Literal> in, std::span<Literal> out) {
  const auto& [dim, k] = e.attrs<TopK>();
  const Literal& x = in[0];
  if (out[0].size() == 0) return;
  const std::int64_t n = x.dims()[dim[0]], stride = strides_of(x.dims())[dim[0]];
  std::vector<std::int64_t> order(static_cast<std::size_t>(n));
  for (std::int64_t line = 0; line < x.size() / n; ++line) {
    const std::int64_t outer = line / stride, inner = line % stride;
    const std::int64_t first = outer * n * stride + inner, to = outer * k * stride + inner;
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin(), order.end(), [&](std::int64_t i, std::int64_t j) {
      const int c = compare(x, first + i * stride, first + j * stride);
      return c != 0 ? c > 0 : i < j;
    });
    for (std::int64_t i = 0; i < k; ++i) {
      out[0].copy(to + i * stride, x, first + order[i] * stride);
      out[1].set_int(to + i * stride, order[i]);
    }
  }
}

}  // namespace

constinit const OpDef top_k = {
    .name = "top_k",
    .doc =
        "The `k` largest elements along `dim`, in descending order, and their positions as i32. NaNs are the largest, "
        "-0 equals +0, and of equal elements the lowest position comes first. Tangents are those of the elements "
        "chosen.",
    .arity = 1,
    .num_results = 2,
    .types = Dtypes::ordered,
    .attrs = attrs_of<TopK>(),
    .factors = top_k_factors,
    .dtypes = top_k_dtypes,
    .jvp = top_k_jvp,
    .localize = localize_top_k,
    .splits = [](const Eqn& e, const Factors& f, int factor,
                 std::int64_t ways) { return e.attrs<TopK>().k > 0 && f.factors[factor].size >= ways; },
    .expand = expand_top_k,
    .eval = eval_top_k,
    .samples =
        [] {
          return Samples{"top_k f32[4, 6] {dim=[1], k=2}",    "top_k f64[5, 3] {dim=[0], k=2}",
                         "top_k f64[2, 4, 3] {dim=[1], k=4}", "top_k i32[3, 7] in (0, 3) {dim=[1], k=5}",
                         "top_k bf16[9] {dim=[0], k=3}",      "top_k f16[2, 1, 3] {dim=[2], k=1}",
                         "top_k u8[2, 5] {dim=[1], k=3}",     "top_k bool[6] {dim=[0], k=4}",
                         "top_k f32[2, 3] {dim=[1]}",         "top_k f64[3, 0] {dim=[1]}",
                         "top_k f32[0, 4] {dim=[1], k=2}"};
        },
};

}  // namespace sheaf::ir::ops
