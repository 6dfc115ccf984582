// Taking parts and putting them together: slice, pad, concatenate. Slice and pad transpose to each other, concatenate
// to slices; a part that is cropped away gets a zero cotangent.
#include "ir/ops/halo.h"
#include "ir/ops/view.h"

namespace sheaf::ir::ops {
namespace {

absl::StatusOr<Factors> slice_factors(const Eqn& e) {
  const Slice& a = e.attrs<Slice>();
  const Type x = e.in(0).type();
  for (const auto& [field, list] :
       {std::pair<std::string_view, const DimList*>("start", &a.start), {"limit", &a.limit}, {"stride", &a.stride}})
    if (absl::Status s = check_length(field, *list, x.rank()); !s.ok()) return s;
  Factors r;
  r.in.emplace_back();
  r.out.emplace_back();
  for (int d = 0; d < x.rank(); ++d) {
    const std::int64_t start = a.start[d], limit = a.limit[d], stride = a.stride[d];
    if (start < 0 || start > limit || limit > x.dim(d) || stride < 1)
      return absl::InvalidArgumentError(
          fmt::format("slice [{}:{}:{}] of dim {} of {}: need 0 <= start <= limit <= {} and stride >= 1", start, limit,
                      stride, d, to_string(x), x.dim(d)));
    if (start == 0 && limit == x.dim(d) && stride == 1) {
      r.in[0].push_back({r.add(x.dim(d))});
      r.out[0].push_back(r.in[0].back());
    } else {
      const std::int64_t count = start == limit ? 0 : (limit - start - 1) / stride + 1;
      r.in[0].push_back({r.add(x.dim(d), FactorClass::M)});
      r.out[0].push_back({r.add(count, FactorClass::M)});
      r.neighbours.emplace_back(r.in[0][d][0], r.out[0][d][0]);
    }
  }
  return r;
}

Values slice_transpose(Builder& b, const Eqn& e, const Values&, const Values& ct) {
  const Slice& a = e.attrs<Slice>();
  Pad p;
  for (int d = 0; d < e.in(0).rank(); ++d) {
    const std::int64_t n = e.in(0).dims()[d], m = ct[0].dims()[d];
    const std::int64_t low = m == 0 ? 0 : a.start[d], span = m == 0 ? 0 : (m - 1) * a.stride[d] + 1;
    p.low.push_back(low);
    p.high.push_back(n - low - span);
    p.interior.push_back(a.stride[d] - 1);
  }
  return {b.emit(pad, {ct[0], b.constant(ct[0].dtype(), 0)}, std::move(p))};
}

Values localize_slice(const Shard& s) {
  Slice a = *static_cast<const Slice*>(s.attributes.get());
  Value x = s.operands[0];
  for (int d = 0; d < x.rank(); ++d) {
    const int from = s.factors.in[0][d][0], to = s.factors.out[0][d][0];
    if (!s.is_split(to) || from == to) continue;
    const Footprint want = Footprint::of_windows(s, to, a.start[d], a.stride[d], 1);
    x = with_halo(s, x, d, from, want, s.b.constant(x.dtype(), 0));
    a.start[d] = 0;
    a.limit[d] = want.length;
  }
  return {s.b.emit(slice, {x}, std::move(a))};
}

Lowering slice_lower(const Eqn& e) {
  const Slice& a = e.attrs<Slice>();
  lowering::View v{.source = {}, .stride = a.stride, .offset = a.start};
  for (int d = 0; d < e.in(0).rank(); ++d) v.source.push_back(d);
  return v;
}

// The extent n after padding; negative where more is cropped than there is, or what is added cannot be counted.
std::int64_t padded_extent(std::int64_t n, std::int64_t low, std::int64_t high, std::int64_t interior) {
  std::int64_t between = 0, padded = 0;
  const bool overflows = __builtin_mul_overflow(std::max<std::int64_t>(n - 1, 0), interior, &between) ||
                         __builtin_add_overflow(low, high, &padded) || __builtin_add_overflow(padded, n, &padded) ||
                         __builtin_add_overflow(padded, between, &padded);
  return overflows ? -1 : padded;
}

absl::StatusOr<Factors> pad_factors(const Eqn& e) {
  const Pad& a = e.attrs<Pad>();
  const Type x = e.in(0).type();
  if (e.in(1).rank() != 0)
    return absl::InvalidArgumentError(fmt::format("the fill must be rank 0, not {}", to_string(e.in(1).type())));
  for (const auto& [field, list] :
       {std::pair<std::string_view, const DimList*>("low", &a.low), {"high", &a.high}, {"interior", &a.interior}})
    if (absl::Status s = check_length(field, *list, x.rank()); !s.ok()) return s;
  Factors r;
  r.in.resize(2);
  r.out.emplace_back();
  for (int d = 0; d < x.rank(); ++d) {
    const std::int64_t n = x.dim(d), low = a.low[d], high = a.high[d], interior = a.interior[d];
    const std::int64_t padded = padded_extent(n, low, high, interior);
    if (interior < 0 || padded < 0)
      return absl::InvalidArgumentError(fmt::format("dim {} of {} cannot be padded by low {}, high {} and interior {}",
                                                    d, to_string(x), low, high, interior));
    if (low == 0 && high == 0 && interior == 0) {
      r.in[0].push_back({r.add(n)});
      r.out[0].push_back(r.in[0].back());
    } else {
      r.in[0].push_back({r.add(n, FactorClass::M)});
      r.out[0].push_back({r.add(padded, FactorClass::M)});
      r.neighbours.emplace_back(r.in[0][d][0], r.out[0][d][0]);
    }
  }
  return r;
}

// Cropping what was added, then skipping what was put between.
Value unpad(Builder& b, Value y, const Pad& a, const Shape& dims) {
  Pad crop;
  Slice skip;
  for (std::size_t d = 0; d < dims.size(); ++d) {
    crop.low.push_back(-a.low[d]);
    crop.high.push_back(-a.high[d]);
    crop.interior.push_back(0);
    skip.start.push_back(0);
    skip.limit.push_back(y.dims()[d] - a.low[d] - a.high[d]);
    skip.stride.push_back(a.interior[d] + 1);
  }
  return b.emit(slice, {b.emit(pad, {y, b.constant(y.dtype(), 0)}, std::move(crop))}, std::move(skip));
}

// True where the result holds the fill.
Value fill_mask(Builder& b, const Shape& dims, const Pad& a) {
  const Value inside = b.zeros(Type(DType::bool_, dims));
  return b.emit(pad, {inside, b.constant(DType::bool_, 1)}, a);
}

Values pad_transpose(Builder& b, const Eqn& e, const Values& x, const Values& ct) {
  const Pad& a = e.attrs<Pad>();
  Values in(2);
  if (!x[0]) in[0] = unpad(b, ct[0], a, e.in(0).dims());
  if (!x[1]) in[1] = unbroadcast(where_or_zero(fill_mask(b, e.in(0).dims(), a), ct[0]), e.in(1).type());
  return in;
}

// No factor reaches a rank-0 fill, so a batched one is chosen by mask.
std::vector<Batched> pad_batch(Builder& b, const Eqn& e, std::span<const Batched> in, std::int64_t size) {
  Pad a = e.attrs<Pad>();
  Value x = in[0].value;
  int at = in[0].dim;
  if (at < 0) {
    Shape dims = x.dims();
    dims.insert(dims.begin(), size);
    x = broadcast_to(x, dims, dim_range(1, x.rank()));
    at = 0;
  }
  for (DimList* list :
       {static_cast<DimList*>(&a.low), static_cast<DimList*>(&a.high), static_cast<DimList*>(&a.interior)})
    list->insert(list->begin() + at, 0);
  if (in[1].dim < 0) return {{b.emit(pad, {x, in[1].value}, std::move(a)), at}};
  const Value padded = b.emit(pad, {x, b.constant(x.dtype(), 0)}, a);
  const Value fill = broadcast_to(in[1].value, padded.dims(), {at});
  return {{b.emit(select, {fill_mask(b, x.dims(), a), fill, padded}), at}};
}

Values localize_pad(const Shard& s) {
  Pad a = s.whole.attrs<Pad>();
  Value x = s.operands[0];
  for (int d = 0; d < x.rank(); ++d) {
    const int from = s.factors.in[0][d][0], to = s.factors.out[0][d][0];
    if (!s.is_split(to) || from == to) continue;
    const Footprint want = Footprint::of_windows(s, to, -a.low[d], 1, 1, a.interior[d] + 1);
    x = with_halo(s, x, d, from, want, s.operands[1]);
    a.low[d] = a.high[d] = a.interior[d] = 0;
  }
  return {s.b.emit(pad, {x, s.operands[1]}, std::move(a))};
}

void eval_pad(const Eqn& e, std::span<const Literal> in, std::span<Literal> out) {
  const Pad& a = e.attrs<Pad>();
  for (std::int64_t i = 0; i < out[0].size(); ++i) out[0].copy(i, in[1], 0);
  if (in[0].size() == 0) return;
  const std::vector<std::int64_t> strides = strides_of(out[0].dims());
  DimList i(in[0].dims().size());
  std::int64_t from = 0;
  do {
    DimList j(i.size());
    bool inside = true;
    for (std::size_t d = 0; d < i.size(); ++d) {
      j[d] = a.low[d] + i[d] * (a.interior[d] + 1);
      inside = inside && j[d] >= 0 && j[d] < out[0].dims()[d];
    }
    if (inside) out[0].copy(flatten(j, strides), in[0], from);
    ++from;
  } while (next_index(i, in[0].dims()));
}

absl::StatusOr<Factors> concatenate_factors(const Eqn& e) {
  const DimList& dim = e.attrs<Concatenate>().dim;
  const Type first = e.in(0).type();
  if (absl::Status s = check_one_dim("dim", dim, first.rank()); !s.ok()) return s;
  std::int64_t total = 0;
  for (int k = 0; k < e.num_in(); ++k) {
    const Type x = e.in(k).type();
    bool fits = x.rank() == first.rank();
    for (int d = 0; fits && d < x.rank(); ++d) fits = d == dim[0] || x.dim(d) == first.dim(d);
    if (!fits)
      return absl::InvalidArgumentError(fmt::format("operands 0 ({}) and {} ({}) must agree in every dim but {}",
                                                    to_string(first), k, to_string(x), dim[0]));
    total += x.dim(static_cast<int>(dim[0]));
  }
  Factors r;
  TensorFactors shared;
  for (int d = 0; d < first.rank(); ++d) shared.push_back(d == dim[0] ? FactorList{} : FactorList{r.add(first.dim(d))});
  for (int k = 0; k < e.num_in(); ++k) {
    r.in.push_back(shared);
    r.in[k][dim[0]] = {r.add(e.in(k).dims()[dim[0]], FactorClass::M)};
  }
  r.out.push_back(shared);
  r.out[0][dim[0]] = {r.add(total, FactorClass::M)};
  for (int k = 0; k < e.num_in(); ++k) r.neighbours.emplace_back(r.in[k][dim[0]][0], r.out[0][dim[0]][0]);
  return r;
}

Values concatenate_transpose(Builder&, const Eqn& e, const Values& x, const Values& ct) {
  const int dim = static_cast<int>(e.attrs<Concatenate>().dim[0]);
  Values in(e.num_in());
  std::int64_t at = 0;
  for (int k = 0; k < e.num_in(); ++k) {
    const std::int64_t n = e.in(k).dims()[dim];
    if (!x[k]) in[k] = slice_dim(ct[0], dim, at, at + n);
    at += n;
  }
  return in;
}

// Of each operand what it has for this device's part of the result, at its place there.
Values localize_concatenate(const Shard& s) {
  const int dim = static_cast<int>(s.whole.attrs<Concatenate>().dim[0]);
  const FactorList& to = s.factors.out[0][dim];
  const Value zero = s.b.constant(s.operands[0].dtype(), 0);
  const Value first = s.offset(to);
  const Shape dims = s.local_dims(s.factors.out[0]);
  const Value place = s.b.emit(iota, {}, Iota{.shape = dims, .dim = {dim}, .dtype = first.dtype()}) + first;
  Value result;
  std::int64_t start = 0;
  for (std::size_t k = 0; k < s.operands.size(); ++k) {
    const Footprint want = Footprint::of_windows(s, to[0], -start, 1, 1);
    const Value part = with_halo(s, s.operands[k], dim, s.factors.in[k][dim][0], want, zero);
    const Value is_before = s.b.emit(lt, {place, number(place, static_cast<double>(start))});
    result = result ? where(is_before, result, part) : part;
    start += s.whole.in(static_cast<int>(k)).dims()[dim];
  }
  return {result};
}

/// Of what a kernel puts together: it has a parameter for each, and an element looks for its own among all, or there is
/// a loop nest for each.
constexpr std::ptrdiff_t kMostParts = 64;

bool has_concatenate(const Eqn& e, const Target&) { return e.num_in() <= kMostParts; }

/// Concatenations of neighbours, one after another.
Values expand_concatenate(Builder& b, const Eqn& e, const Values& operands) {
  Values runs;
  for (auto from = operands.begin(); from != operands.end();) {
    const auto to = from + std::min(kMostParts, operands.end() - from);
    runs.push_back(b.emit(concatenate, Values(from, to), e.attrs<Concatenate>()));
    from = to;
  }
  return {b.emit(concatenate, runs, e.attrs<Concatenate>())};
}

void eval_concatenate(const Eqn& e, std::span<const Literal> in, std::span<Literal> out) {
  const std::int64_t dim = e.attrs<Concatenate>().dim[0];
  const std::vector<std::int64_t> strides = strides_of(out[0].dims());
  std::int64_t start = 0;
  for (const Literal& x : in) {
    DimList i(x.dims().size());
    std::int64_t from = 0;
    if (x.size() > 0) do {
        DimList j = i;
        j[dim] += start;
        out[0].copy(flatten(j, strides), x, from++);
      } while (next_index(i, x.dims()));
    start += x.dims()[dim];
  }
}

}  // namespace

constinit const OpDef slice = view({
    .name = "slice",
    .doc = "Elements start, start + stride, ... below limit along every dim.",
    .attrs = attrs_of<Slice>(),
    .factors = slice_factors,
    .transpose = slice_transpose,
    .localize = localize_slice,
    .splits = splits_rows,
    .lower = slice_lower,
    .samples =
        [] {
          return Samples{"slice f32[6] {start=[1], limit=[4], stride=[1]}",
                         "slice f64[5, 7] {start=[0, 1], limit=[5, 6], stride=[1, 2]}",
                         "slice f64[5] {start=[2], limit=[2], stride=[1]}",
                         "slice i32[9] {start=[1], limit=[9], stride=[3]}",
                         "slice f64[3, 4] {start=[1, 0], limit=[3, 4], stride=[1, 1]}",
                         "slice f64[]",
                         "slice bf16[4] {start=[1], limit=[3], stride=[1]}",
                         "slice f16[0] {start=[0], limit=[0], stride=[1]}",
                         "slice bool[4] {start=[0], limit=[4], stride=[2]}"};
        },
});

constinit const OpDef pad = {
    .name = "pad",
    .doc =
        "x with `low` and `high` elements of the fill (operand 1, rank 0) around it and `interior` between; negative "
        "low and high crop.",
    .arity = 2,
    .attrs = attrs_of<Pad>(),
    .factors = pad_factors,
    .linear = jointly(3),
    .transpose = pad_transpose,
    .batch = pad_batch,
    .localize = localize_pad,
    .splits = splits_rows,
    .lower = [](const Eqn& e) -> Lowering { return lowering::Pad{e.attrs<Pad>().low, e.attrs<Pad>().interior}; },
    .eval = eval_pad,
    .samples =
        [] {
          return Samples{"pad f32[3], f32[] {low=[1], high=[2], interior=[0]}",
                         "pad f64[3, 2], f64[] {low=[0, 1], high=[0, 0], interior=[1, 0]}",
                         "pad f64[5], f64[] {low=[-1], high=[-2], interior=[0]}",
                         "pad f64[4], f64[] {low=[-1], high=[2], interior=[2]}",
                         "pad f64[0], f64[] {low=[2], high=[1], interior=[1]}",
                         "pad i32[2], i32[] {low=[1], high=[1], interior=[0]}",
                         "pad f64[], f64[]",
                         "pad bf16[2], bf16[] {low=[1], high=[0], interior=[2]}",
                         "pad f16[1, 2], f16[] {low=[0, -1], high=[1, 1], interior=[0, 0]}",
                         "pad bool[2], bool[] {low=[1], high=[1], interior=[0]}",
                         "pad f64[3], f64[] {low=[-5], high=[4], interior=[0]}"};
        },
};

constinit const OpDef concatenate = {
    .name = "concatenate",
    .doc = "The operands one after another along `dim`.",
    .attrs = attrs_of<Concatenate>(),
    .factors = concatenate_factors,
    .linear = jointly(all_operands),
    .transpose = concatenate_transpose,
    .localize = localize_concatenate,
    .splits = splits_rows,
    .lower = [](const Eqn& e) -> Lowering {
      return lowering::Concatenate{static_cast<int>(e.attrs<Concatenate>().dim[0])};
    },
    .expand = expand_concatenate,
    .has_kernel = has_concatenate,
    .eval = eval_concatenate,
    .samples =
        [] {
          return Samples{"concatenate f32[2, 3], f32[2, 1] {dim=[1]}",
                         "concatenate f64[2], f64[0], f64[3] {dim=[0]}",
                         "concatenate f64[3, 2] {dim=[0]}",
                         "concatenate i32[1, 2], i32[2, 2] {dim=[0]}",
                         "concatenate bf16[2], bf16[2] {dim=[0]}",
                         "concatenate f16[1], f16[1], f16[1] {dim=[0]}",
                         "concatenate bool[2], bool[1] {dim=[0]}",
                         "concatenate f64[2, 0], f64[2, 0] {dim=[1]}"};
        },
};

}  // namespace sheaf::ir::ops
