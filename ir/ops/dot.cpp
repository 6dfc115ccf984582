// General dot products: any number of batch and contracted dims. The op is linear in each operand, and its transposes
// are dots again, laid out so that the gradient of a matrix product needs no copy.
#include <fmt/format.h>

#include <algorithm>

#include "ir/ops/complex.h"
#include "ir/ops/products.h"
#include "ir/ops/rules.h"
#include "ir/ops/slide.h"

namespace sheaf::ir::ops {
namespace {

absl::StatusOr<std::vector<DType>> dot_dtypes(const Eqn& e) {
  return product_dtypes(e, e.attrs<Dot>().dtype, ComplexProducts::yes);
}

absl::Status check_lists(const Eqn& e) {
  const Dot& a = e.attrs<Dot>();
  const Type lhs = e.in(0).type(), rhs = e.in(1).type();
  if (a.lhs.size() != a.rhs.size())
    return absl::InvalidArgumentError(
        fmt::format("contracted dims lhs={} and rhs={} must pair up", to_string(a.lhs), to_string(a.rhs)));
  if (a.lhs_batch.size() != a.rhs_batch.size())
    return absl::InvalidArgumentError(fmt::format("batch dims lhs_batch={} and rhs_batch={} must pair up",
                                                  to_string(a.lhs_batch), to_string(a.rhs_batch)));
  if (absl::Status s = check_dims("lhs dims", concat(a.lhs_batch, a.lhs), lhs.rank()); !s.ok()) return s;
  return check_dims("rhs dims", concat(a.rhs_batch, a.rhs), rhs.rank());
}

absl::StatusOr<Factors> dot_factors(const Eqn& e) {
  const Dot& a = e.attrs<Dot>();
  if (absl::Status s = check_lists(e); !s.ok()) return s;
  Factors r;
  r.in = {TensorFactors(e.in(0).rank()), TensorFactors(e.in(1).rank())};
  r.out.emplace_back();
  const auto pair = [&](const DimList& lhs, const DimList& rhs, FactorClass cls) -> absl::Status {
    for (std::size_t i = 0; i < lhs.size(); ++i) {
      const std::int64_t m = e.in(0).dims()[lhs[i]], n = e.in(1).dims()[rhs[i]];
      if (m != n)
        return absl::InvalidArgumentError(
            fmt::format("lhs dim {} ({}) and rhs dim {} ({}) must match", lhs[i], m, rhs[i], n));
      const int f = r.add(m, cls, cls == FactorClass::R ? Combine::sum : Combine::none);
      r.in[0][lhs[i]] = r.in[1][rhs[i]] = {f};
      if (cls == FactorClass::P) r.out[0].push_back({f});
    }
    return absl::OkStatus();
  };
  if (absl::Status s = pair(a.lhs_batch, a.rhs_batch, FactorClass::P); !s.ok()) return s;
  if (absl::Status s = pair(a.lhs, a.rhs, FactorClass::R); !s.ok()) return s;
  for (int k : {0, 1}) {
    for (int d = 0; d < e.in(k).rank(); ++d) {
      if (!r.in[k][d].empty()) continue;
      r.in[k][d] = {r.add(e.in(k).dims()[d])};
      r.out[0].push_back(r.in[k][d]);
    }
  }
  return r;
}

// Result dim d of the raw transpose is dim dims[d] of the operand.
Value in_operand_order(Value ct, const DimList& dims) { return permute(ct, inverse(dims)); }

// The entries of `to` in the ascending order of their partners in `from`.
DimList by_partner(const DimList& from, const DimList& to) {
  DimList sorted = from;
  std::sort(sorted.begin(), sorted.end());
  DimList result;
  for (std::int64_t d : sorted) result.push_back(to[std::find(from.begin(), from.end(), d) - from.begin()]);
  return result;
}

// ct . rhs over the free dims of rhs: [batch, lhs free, contracted by ascending rhs dim].
Value lhs_cotangent(Builder& b, const Eqn& e, Value rhs, Value ct) {
  const Dot& a = e.attrs<Dot>();
  const int nb = static_cast<int>(a.lhs_batch.size());
  const DimList lhs_free = other_dims(concat(a.lhs_batch, a.lhs), e.in(0).rank());
  const DimList rhs_free = other_dims(concat(a.rhs_batch, a.rhs), rhs.rank());
  const Value raw =
      b.emit(dot, {ct, convert_to(rhs, ct.dtype())},
             Dot{.lhs = dim_range(nb + static_cast<int>(lhs_free.size()), static_cast<int>(rhs_free.size())),
                 .rhs = rhs_free,
                 .lhs_batch = dim_range(0, nb),
                 .rhs_batch = a.rhs_batch,
                 .precision = a.precision});
  return in_operand_order(raw, concat(concat(a.lhs_batch, lhs_free), by_partner(a.rhs, a.lhs)));
}

// lhs . ct over the free dims of lhs: [batch, contracted by ascending lhs dim, rhs free].
Value rhs_cotangent(Builder& b, const Eqn& e, Value lhs, Value ct) {
  const Dot& a = e.attrs<Dot>();
  const int nb = static_cast<int>(a.lhs_batch.size());
  const DimList lhs_free = other_dims(concat(a.lhs_batch, a.lhs), lhs.rank());
  const DimList rhs_free = other_dims(concat(a.rhs_batch, a.rhs), e.in(1).rank());
  const Value raw = b.emit(dot, {convert_to(lhs, ct.dtype()), ct},
                           Dot{.lhs = lhs_free,
                               .rhs = dim_range(nb, static_cast<int>(lhs_free.size())),
                               .lhs_batch = a.lhs_batch,
                               .rhs_batch = dim_range(0, nb),
                               .precision = a.precision});
  return in_operand_order(raw, concat(concat(a.rhs_batch, by_partner(a.lhs, a.rhs)), rhs_free));
}

Values dot_transpose(Builder& b, const Eqn& e, const Values& operands, const Values& cts) {
  if (operands[1]) return {convert_to(lhs_cotangent(b, e, operands[1], cts[0]), e.in(0).dtype()), Value()};
  return {Value(), convert_to(rhs_cotangent(b, e, operands[0], cts[0]), e.in(1).dtype())};
}

// Offsets of all positions along `dims`, in row-major order of those dims.
std::vector<std::int64_t> offsets_over(const Shape& shape, const DimList& dims) {
  const DimList strides = strides_of(shape);
  Shape extents;
  DimList picked;
  for (std::int64_t d : dims) {
    extents.push_back(shape[d]);
    picked.push_back(strides[d]);
  }
  std::vector<std::int64_t> offsets;
  if (num_elements(extents) == 0) return offsets;
  DimList index(dims.size(), 0);
  do offsets.push_back(flatten(index, picked));
  while (next_index(index, extents));
  return offsets;
}

void eval_dot(const Eqn& e, std::span<const Literal> in, std::span<Literal> out) {
  const Dot& a = e.attrs<Dot>();
  const Literal &x = in[0], &y = in[1];
  const auto x_batch = offsets_over(x.dims(), a.lhs_batch), y_batch = offsets_over(y.dims(), a.rhs_batch);
  const auto x_inner = offsets_over(x.dims(), a.lhs), y_inner = offsets_over(y.dims(), a.rhs);
  const auto x_free = offsets_over(x.dims(), other_dims(concat(a.lhs_batch, a.lhs), e.in(0).rank()));
  const auto y_free = offsets_over(y.dims(), other_dims(concat(a.rhs_batch, a.rhs), e.in(1).rank()));
  std::int64_t position = 0;
  for (std::size_t batch = 0; batch < x_batch.size(); ++batch) {
    for (std::int64_t row : x_free) {
      for (std::int64_t column : y_free) {
        double sum = 0;
        std::uint64_t int_sum = 0;  // unsigned, because integers wrap
        for (std::size_t k = 0; k < x_inner.size(); ++k) {
          const std::int64_t i = x_batch[batch] + row + x_inner[k], j = y_batch[batch] + column + y_inner[k];
          if (is_float(x.dtype())) sum += x.get(i) * y.get(j);
          else int_sum += static_cast<std::uint64_t>(x.get_int(i)) * static_cast<std::uint64_t>(y.get_int(j));
        }
        if (is_float(x.dtype())) out[0].set(position++, sum);
        else out[0].set_bits(position++, int_sum);
      }
    }
  }
}

PartsList dot_on_parts(Builder& b, const Eqn& e, PartsSpan x) {
  Dot attrs = e.attrs<Dot>();
  attrs.dtype = part_dtype(attrs.dtype);
  return product_of_parts(b, e, x, std::make_shared<const Dot>(std::move(attrs)));
}

Cost dot_cost(const Eqn& e) {
  double inner = 1;
  for (std::int64_t d : e.attrs<Dot>().lhs) inner *= static_cast<double>(e.in(0).dims()[d]);
  return {.flops = 2 * inner * static_cast<double>(e.out().type().num_elements()),
          .bytes = static_cast<double>(e.in(0).type().bytes() + e.in(1).type().bytes() + e.out().type().bytes())};
}

constexpr std::string_view kBatchFields[] = {"lhs_batch", "rhs_batch"};
constexpr BatchSlot kDotSlots[] = {{.operands = 0b11, .append = kBatchFields}};

// Very many terms for few results are too little for several threads, and make one long chain of additions. How many
// parts of the first contracted dim are summed each by itself: a function of rows, columns and terms alone.
std::int64_t parts_of(const Eqn& e) {
  constexpr std::int64_t kFewResults = 1 << 14, kLongSide = 1024, kShortSide = 4, kLeastTerms = 2048;
  const Dot& a = e.attrs<Dot>();
  if (a.lhs.empty() || is_complex(e.out().dtype()) || e.out().type().num_elements() == 0) return 1;
  std::int64_t terms = 1, batch = 1;
  for (const std::int64_t d : a.lhs) terms *= e.in(0).dims()[d];
  for (const std::int64_t d : a.lhs_batch) batch *= e.in(0).dims()[d];
  if (terms < 2 * kLeastTerms) return 1;
  const std::int64_t rows = e.in(0).type().num_elements() / batch / terms;
  const std::int64_t columns = e.in(1).type().num_elements() / batch / terms;
  const auto [shorter, longer] = std::minmax(rows, columns);
  if (rows * columns > kFewResults || longer > kLongSide || shorter < kShortSide) return 1;
  std::int64_t parts = terms / kLeastTerms;
  while (e.in(0).dims()[a.lhs[0]] % parts != 0) --parts;
  return parts;
}

bool is_one_sum(const Eqn& e, const Target& target) { return target.is_gpu() || parts_of(e) == 1; }

Values expand_long_dot(Builder& b, const Eqn& e, const Values& operands) {
  const std::int64_t parts = parts_of(e);
  if (parts == 1) return {b.emit(dot, operands, e.attrs<Dot>())};
  const std::int64_t extent = e.in(0).dims()[e.attrs<Dot>().lhs[0]];
  const auto parted = [&](Value x, std::int64_t dim) {
    return windows_of(
        x, {{.dim = static_cast<int>(dim), .extent = extent, .size = extent / parts, .stride = extent / parts}});
  };
  Dot a = e.attrs<Dot>();
  const Value lhs = parted(operands[0], a.lhs[0]), rhs = parted(operands[1], a.rhs[0]);
  a.lhs_batch.insert(a.lhs_batch.begin(), a.lhs[0]);
  a.rhs_batch.insert(a.rhs_batch.begin(), a.rhs[0]);
  a.lhs[0] = lhs.rank() - 1;
  a.rhs[0] = rhs.rank() - 1;
  if (size_bytes(e.out().dtype()) < size_bytes(accumulator(e.out().dtype()))) a.dtype = accumulator(e.out().dtype());
  return {convert_to(reduce_dims(b.emit(dot, {lhs, rhs}, std::move(a)), ReduceKind::sum, {0}), e.out().dtype())};
}

}  // namespace

constinit const OpDef dot = {
    .name = "dot",
    .doc =
        "Sum of products over the dims that `lhs` and `rhs` pair up, for each position of the paired `lhs_batch` and "
        "`rhs_batch`. Result dims: batch, the free dims of lhs, the free dims of rhs. f16 and bf16 accumulate in "
        "f32 and round once to `dtype` (default: the operands'). Over nothing the sum is 0. Cotangents are computed "
        "in the result's dtype, then converted. `precision` says what products of f32 may lose, its derivatives' too: "
        "with tf32 a target may round their operands to 11 significant bits; the reference never does.",
    .arity = 2,
    .attrs = attrs_of<Dot>(),
    .factors = dot_factors,
    .dtypes = dot_dtypes,
    .linear = separately(0b11),
    .transpose = dot_transpose,
    .slots = kDotSlots,
    .lower = [](const Eqn& e) -> Lowering {
      const Dot& a = e.attrs<Dot>();
      return lowering::Contract{.lhs_batch = a.lhs_batch,
                                .rhs_batch = a.rhs_batch,
                                .lhs_contract = a.lhs,
                                .rhs_contract = a.rhs,
                                .accumulate = accumulator(product_dtype(e, a.dtype)),
                                .precision = a.precision};
    },
    .expand = expand_long_dot,
    .has_kernel = is_one_sum,
    .on_parts = dot_on_parts,
    .eval = eval_dot,
    .cost = dot_cost,
    .ulp = 8,
    .samples =
        [] {
          return Samples{"dot f32[2, 3], f32[3, 4] {lhs=[1], rhs=[0]}",
                         "dot f32[3, 2], f32[4, 3] {lhs=[0], rhs=[1]}",
                         "dot f64[2, 3, 4], f64[4, 3, 2] {lhs=[2], rhs=[0], lhs_batch=[0], rhs_batch=[2]}",
                         "dot f32[2, 3, 5], f32[5, 7, 3] {lhs=[2, 1], rhs=[0, 2]}",
                         "dot f32[3, 4], f32[4, 3] {lhs=[1], rhs=[0], precision=tf32}",
                         "dot bf16[5, 7], bf16[7, 3] {lhs=[1], rhs=[0]}",
                         "dot bf16[5, 7], bf16[7, 3] {lhs=[1], rhs=[0], dtype=f32}",
                         "dot f16[3], f16[3] {lhs=[0], rhs=[0]}",
                         "dot f32[3], f32[2] {lhs=[], rhs=[]}",
                         "dot f32[], f32[]",
                         "dot f32[2, 0], f32[0, 3] {lhs=[1], rhs=[0]}",
                         "dot f32[0, 3], f32[3, 2] {lhs=[1], rhs=[0]}",
                         "dot i32[3, 4], i32[4, 2] {lhs=[1], rhs=[0]}",
                         "dot i8[3, 4], i8[4, 2] {lhs=[1], rhs=[0], dtype=i32}",
                         "dot u8[1, 1], u8[1, 1] {lhs=[1], rhs=[0]}",
                         "dot c64[2, 3], c64[3, 2] {lhs=[1], rhs=[0], dtype=c128}",
                         "dot c128[2, 3], c128[2, 3] {lhs=[1], rhs=[1], lhs_batch=[0], rhs_batch=[0]}"};
        },
};

}  // namespace sheaf::ir::ops
