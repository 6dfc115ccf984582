// Constants, iota and the changes of shape that are pure index maps. All are linear, and each transposes to the others.
#include <numeric>

#include "ir/ops/sheet.h"

namespace sheaf::ir::ops {
namespace {

using Index = std::vector<std::int64_t>;

// out[i] = in[source(i)] for every index i of the result.
template <class Source>
void eval_index_map(const Literal& in, Literal& out, Source source) {
  if (out.size() == 0) return;
  const std::vector<std::int64_t> strides = strides_of(in.dims());
  Index i(out.dims().size());
  std::int64_t at = 0;
  do out.copy(at++, in, flatten(source(i), strides)); while (next_index(i, out.dims()));
}

void eval_view(const Eqn& e, std::span<const Literal> in, std::span<Literal> out) {
  const auto view = std::get<lowering::View>(e.op->lower(e));
  eval_index_map(in[0], out[0], [&](const Index& i) {
    Index j(view.offset);
    for (std::size_t d = 0; d < j.size(); ++d)
      if (view.source[d] >= 0) j[d] += view.stride[d] * i[view.source[d]];
    return j;
  });
}

void eval_same_order(const Eqn&, std::span<const Literal> in, std::span<Literal> out) {
  std::memcpy(out[0].data(), in[0].data(), in[0].bytes());
}

absl::Status check_length(std::string_view field, const DimList& list, int rank) {
  if (static_cast<int>(list.size()) == rank) return absl::OkStatus();
  return absl::InvalidArgumentError(fmt::format("{} {} must have one entry for each of the {} dims", field, to_string(list), rank));
}

absl::Status check_shape(const DimList& shape) {
  for (std::int64_t n : shape)
    if (n < 0) return absl::InvalidArgumentError(fmt::format("shape {} must not be negative", to_string(shape)));
  return absl::OkStatus();
}

// --- constant, iota ----------------------------------------------------------------------------------------------------

absl::StatusOr<Factors> constant_factors(const Eqn& e) {
  const Constant& c = e.attrs<Constant>();
  if (absl::Status s = check_shape(c.dims); !s.ok()) return s;
  if (static_cast<std::int64_t>(c.hex.size()) != 2 * num_elements(c.dims) * size_bytes(c.dtype))
    return absl::InvalidArgumentError(fmt::format("hex must hold {} bytes of {}{}", num_elements(c.dims) * size_bytes(c.dtype),
                                                  name(c.dtype), to_string(c.dims)));
  if (c.hex.find_first_not_of("0123456789abcdef") != std::string::npos)
    return absl::InvalidArgumentError("hex must be lower-case hexadecimal");
  Factors r;
  r.out.emplace_back();
  for (std::int64_t n : c.dims) r.out[0].push_back({r.add(n, FactorClass::N)});
  return r;
}

absl::StatusOr<Factors> iota_factors(const Eqn& e) {
  const Iota& a = e.attrs<Iota>();
  if (absl::Status s = check_shape(a.shape); !s.ok()) return s;
  if (a.dim.size() != 1) return absl::InvalidArgumentError("dim must be one dim");
  if (absl::Status s = check_dims("dim", a.dim, static_cast<int>(a.shape.size())); !s.ok()) return s;
  Factors r;
  r.out.emplace_back();
  for (std::int64_t d = 0; d < static_cast<std::int64_t>(a.shape.size()); ++d)
    r.out[0].push_back({r.add(a.shape[d], FactorClass::P, Combine::none, d == a.dim[0])});
  return r;
}

void eval_iota(const Eqn& e, std::span<const Literal>, std::span<Literal> out) {
  const std::int64_t dim = e.attrs<Iota>().dim[0];
  if (out[0].size() == 0) return;
  Index i(out[0].dims().size());
  std::int64_t at = 0;
  do {
    if (is_float(out[0].dtype())) out[0].set(at++, static_cast<double>(i[dim]));
    else out[0].set_int(at++, i[dim]);
  } while (next_index(i, out[0].dims()));
}

// --- broadcast ---------------------------------------------------------------------------------------------------------

absl::StatusOr<Factors> broadcast_factors(const Eqn& e) {
  const Broadcast& a = e.attrs<Broadcast>();
  const Type x = e.in(0).type();
  if (absl::Status s = check_shape(a.shape); !s.ok()) return s;
  if (absl::Status s = check_length("dims", a.dims, x.rank()); !s.ok()) return s;
  if (absl::Status s = check_dims("dims", a.dims, static_cast<int>(a.shape.size())); !s.ok()) return s;
  Factors r;
  r.in.emplace_back();
  TensorFactors out(a.shape.size());
  for (int d = 0; d < x.rank(); ++d) {
    const std::int64_t to = a.shape[a.dims[d]];
    if (x.dim(d) != to && x.dim(d) != 1)
      return absl::InvalidArgumentError(fmt::format("cannot broadcast {} to {}: dim {} ({}) must be 1 or dim {} of the result ({})",
                                                    to_string(x), to_string(a.shape), d, x.dim(d), a.dims[d], to));
    r.in[0].push_back({r.add(x.dim(d))});
    if (x.dim(d) == to) out[a.dims[d]] = r.in[0].back();
  }
  for (std::size_t d = 0; d < out.size(); ++d)
    if (out[d].empty()) out[d] = {r.add(a.shape[d])};
  r.out.push_back(std::move(out));
  return r;
}

// Sum over what was new or repeated, then the remaining dims back into the operand's order.
Values broadcast_transpose(Builder&, const Eqn& e, const Values&, const Values& ct) {
  const Broadcast& a = e.attrs<Broadcast>();
  const Shape& dims = e.in(0).dims();
  DimList summed, kept;  // of the result
  for (std::int64_t d = 0; d < static_cast<std::int64_t>(a.shape.size()); ++d) {
    const auto from = std::find(a.dims.begin(), a.dims.end(), d);
    const bool repeats = from == a.dims.end() || (dims[from - a.dims.begin()] == 1 && a.shape[d] != 1);
    (repeats ? summed : kept).push_back(d);
  }
  DimList perm;
  for (std::int64_t d : a.dims)
    if (const auto at = std::find(kept.begin(), kept.end(), d); at != kept.end()) perm.push_back(at - kept.begin());
  return {reshape_to(permute(reduce_dims(ct[0], ReduceKind::sum, summed), perm), dims)};
}

Lowering broadcast_lower(const Eqn& e) {
  const Broadcast& a = e.attrs<Broadcast>();
  lowering::View v;
  for (int d = 0; d < e.in(0).rank(); ++d) {
    const bool moves = e.in(0).dims()[d] == a.shape[a.dims[d]];
    v.source.push_back(moves ? static_cast<int>(a.dims[d]) : -1);
    v.stride.push_back(moves ? 1 : 0);
    v.offset.push_back(0);
  }
  return v;
}

// --- reshape -----------------------------------------------------------------------------------------------------------

// Common factors of both shapes, major to minor: [6, 4] -> [2, 12] is (a b) c -> a (b c). Where the two do not divide,
// private N factors run until the products agree again.
class ReshapeFactors {
 public:
  ReshapeFactors(const Shape& from, const Shape& to) : from_(from), to_(to), in_(from.size()), out_(to.size()) {}

  Factors run() {
    if (num_elements(from_) == 0) return whole();
    while (true) {
      next(from_, i_, left_in_, in_);
      next(to_, j_, left_out_, out_);
      if (left_in_ == 1 && left_out_ == 1) break;
      const std::int64_t g = std::gcd(left_in_, left_out_);
      if (g > 1) {
        const int f = r_.add(g);
        in_[i_].push_back(f);
        out_[j_].push_back(f);
        left_in_ /= g;
        left_out_ /= g;
      } else {
        apart();
      }
    }
    return finish();
  }

 private:
  // Moves to the next dim larger than 1 when the last is used up; dims of 1 get a factor of their own.
  void next(const Shape& dims, int& at, std::int64_t& left, TensorFactors& factors) {
    while (left == 1 && at + 1 < static_cast<int>(dims.size())) {
      left = dims[++at];
      if (left == 1) factors[at].push_back(r_.add(1));
    }
  }

  void apart() {
    std::int64_t p = left_in_, q = left_out_;
    in_[i_].push_back(r_.add(p, FactorClass::N));
    out_[j_].push_back(r_.add(q, FactorClass::N));
    while (p != q) {
      const bool in_behind = p < q;
      std::int64_t& product = in_behind ? p : q;
      const std::int64_t n = in_behind ? from_[++i_] : to_[++j_];
      product *= n;
      (in_behind ? in_[i_] : out_[j_]).push_back(r_.add(n, FactorClass::N));
    }
    left_in_ = left_out_ = 1;
  }

  // Empty tensors: equal leading dims pass through, the rest is whole.
  Factors whole() {
    bool same = true;
    for (std::size_t d = 0; d < std::max(from_.size(), to_.size()); ++d) {
      same = same && d < from_.size() && d < to_.size() && from_[d] == to_[d];
      if (same) {
        in_[d] = out_[d] = {r_.add(from_[d])};
        continue;
      }
      if (d < from_.size()) in_[d] = {r_.add(from_[d], FactorClass::N)};
      if (d < to_.size()) out_[d] = {r_.add(to_[d], FactorClass::N)};
    }
    return finish();
  }

  Factors finish() {
    r_.in = {std::move(in_)};
    r_.out = {std::move(out_)};
    return std::move(r_);
  }

  const Shape& from_;
  const Shape& to_;
  Factors r_;
  TensorFactors in_, out_;
  int i_ = -1, j_ = -1;
  std::int64_t left_in_ = 1, left_out_ = 1;
};

absl::StatusOr<Factors> reshape_factors(const Eqn& e) {
  const Shape& to = e.attrs<Reshape>().shape;
  if (absl::Status s = check_shape(to); !s.ok()) return s;
  if (num_elements(to) != e.in(0).type().num_elements())
    return absl::InvalidArgumentError(fmt::format("cannot reshape {} ({} elements) to {} ({} elements)", to_string(e.in(0).type()),
                                                  e.in(0).type().num_elements(), to_string(to), num_elements(to)));
  return ReshapeFactors(e.in(0).dims(), to).run();
}

// --- transpose, slice, reverse -------------------------------------------------------------------------------------------

absl::StatusOr<Factors> transpose_factors(const Eqn& e) {
  const DimList& perm = e.attrs<Transpose>().perm;
  const Type x = e.in(0).type();
  if (absl::Status s = check_length("perm", perm, x.rank()); !s.ok()) return s;
  if (absl::Status s = check_dims("perm", perm, x.rank()); !s.ok()) return s;
  Factors r;
  r.in.emplace_back();
  r.out.emplace_back();
  for (int d = 0; d < x.rank(); ++d) r.in[0].push_back({r.add(x.dim(d))});
  for (std::int64_t d : perm) r.out[0].push_back(r.in[0][d]);
  return r;
}

Lowering transpose_lower(const Eqn& e) {
  const DimList from = inverse(e.attrs<Transpose>().perm);
  lowering::View v;
  for (std::int64_t d : from) {
    v.source.push_back(static_cast<int>(d));
    v.stride.push_back(1);
    v.offset.push_back(0);
  }
  return v;
}

absl::StatusOr<Factors> slice_factors(const Eqn& e) {
  const Slice& a = e.attrs<Slice>();
  const Type x = e.in(0).type();
  for (const auto& [field, list] : {std::pair<std::string_view, const DimList*>("start", &a.start), {"limit", &a.limit}, {"stride", &a.stride}})
    if (absl::Status s = check_length(field, *list, x.rank()); !s.ok()) return s;
  Factors r;
  r.in.emplace_back();
  r.out.emplace_back();
  for (int d = 0; d < x.rank(); ++d) {
    const std::int64_t start = a.start[d], limit = a.limit[d], stride = a.stride[d];
    if (start < 0 || start > limit || limit > x.dim(d) || stride < 1)
      return absl::InvalidArgumentError(fmt::format("slice [{}:{}:{}] of dim {} of {}: need 0 <= start <= limit <= {} and stride >= 1",
                                                    start, limit, stride, d, to_string(x), x.dim(d)));
    if (start == 0 && limit == x.dim(d) && stride == 1) {
      r.in[0].push_back({r.add(x.dim(d))});
      r.out[0].push_back(r.in[0].back());
    } else {
      r.in[0].push_back({r.add(x.dim(d), FactorClass::M)});
      r.out[0].push_back({r.add((limit - start + stride - 1) / stride, FactorClass::M)});
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

Lowering slice_lower(const Eqn& e) {
  const Slice& a = e.attrs<Slice>();
  lowering::View v{.source = {}, .stride = a.stride, .offset = a.start};
  for (int d = 0; d < e.in(0).rank(); ++d) v.source.push_back(d);
  return v;
}

absl::StatusOr<Factors> reverse_factors(const Eqn& e) {
  const DimList& dims = e.attrs<Reverse>().dims;
  const Type x = e.in(0).type();
  if (absl::Status s = check_dims("dims", dims, x.rank()); !s.ok()) return s;
  Factors r;
  r.in.emplace_back();
  for (int d = 0; d < x.rank(); ++d) r.in[0].push_back({r.add(x.dim(d), lists(dims, d) ? FactorClass::M : FactorClass::P)});
  r.out = r.in;
  return r;
}

Lowering reverse_lower(const Eqn& e) {
  const DimList& dims = e.attrs<Reverse>().dims;
  lowering::View v;
  for (int d = 0; d < e.in(0).rank(); ++d) {
    v.source.push_back(d);
    v.stride.push_back(lists(dims, d) ? -1 : 1);
    v.offset.push_back(lists(dims, d) ? e.in(0).dims()[d] - 1 : 0);
  }
  return v;
}

// --- pad ---------------------------------------------------------------------------------------------------------------

absl::StatusOr<Factors> pad_factors(const Eqn& e) {
  const Pad& a = e.attrs<Pad>();
  const Type x = e.in(0).type();
  if (e.in(1).rank() != 0) return absl::InvalidArgumentError(fmt::format("the fill must be rank 0, not {}", to_string(e.in(1).type())));
  for (const auto& [field, list] : {std::pair<std::string_view, const DimList*>("low", &a.low), {"high", &a.high}, {"interior", &a.interior}})
    if (absl::Status s = check_length(field, *list, x.rank()); !s.ok()) return s;
  Factors r;
  r.in.resize(2);
  r.out.emplace_back();
  for (int d = 0; d < x.rank(); ++d) {
    const std::int64_t n = x.dim(d), low = a.low[d], high = a.high[d], interior = a.interior[d];
    const std::int64_t padded = low + high + n + (n > 1 ? (n - 1) * interior : 0);
    if (interior < 0 || padded < 0)
      return absl::InvalidArgumentError(fmt::format("pad (low {}, high {}, interior {}) of dim {} of {} leaves {} elements", low, high,
                                                    interior, d, to_string(x), padded));
    if (low == 0 && high == 0 && interior == 0) {
      r.in[0].push_back({r.add(n)});
      r.out[0].push_back(r.in[0].back());
    } else {
      r.in[0].push_back({r.add(n, FactorClass::M)});
      r.out[0].push_back({r.add(padded, FactorClass::M)});
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
  for (DimList* list : {static_cast<DimList*>(&a.low), static_cast<DimList*>(&a.high), static_cast<DimList*>(&a.interior)})
    list->insert(list->begin() + at, 0);
  if (in[1].dim < 0) return {{b.emit(pad, {x, in[1].value}, std::move(a)), at}};
  const Value padded = b.emit(pad, {x, b.constant(x.dtype(), 0)}, a);
  const Value fill = broadcast_to(in[1].value, padded.dims(), {at});
  return {{b.emit(select, {fill_mask(b, x.dims(), a), fill, padded}), at}};
}

void eval_pad(const Eqn& e, std::span<const Literal> in, std::span<Literal> out) {
  const Pad& a = e.attrs<Pad>();
  for (std::int64_t i = 0; i < out[0].size(); ++i) out[0].copy(i, in[1], 0);
  if (in[0].size() == 0) return;
  const std::vector<std::int64_t> strides = strides_of(out[0].dims());
  Index i(in[0].dims().size());
  std::int64_t from = 0;
  do {
    Index j(i.size());
    bool inside = true;
    for (std::size_t d = 0; d < i.size(); ++d) {
      j[d] = a.low[d] + i[d] * (a.interior[d] + 1);
      inside = inside && j[d] >= 0 && j[d] < out[0].dims()[d];
    }
    if (inside) out[0].copy(flatten(j, strides), in[0], from);
    ++from;
  } while (next_index(i, in[0].dims()));
}

// --- concatenate -------------------------------------------------------------------------------------------------------

absl::StatusOr<Factors> concatenate_factors(const Eqn& e) {
  const DimList& dim = e.attrs<Concatenate>().dim;
  if (e.num_in() == 0) return absl::InvalidArgumentError("needs at least one operand");
  const Type first = e.in(0).type();
  if (dim.size() != 1) return absl::InvalidArgumentError("dim must be one dim");
  if (absl::Status s = check_dims("dim", dim, first.rank()); !s.ok()) return s;
  std::int64_t total = 0;
  for (int k = 0; k < e.num_in(); ++k) {
    const Type x = e.in(k).type();
    bool fits = x.rank() == first.rank();
    for (int d = 0; fits && d < x.rank(); ++d) fits = d == dim[0] || x.dim(d) == first.dim(d);
    if (!fits)
      return absl::InvalidArgumentError(fmt::format("operands 0 ({}) and {} ({}) must agree in every dim but {}", to_string(first), k,
                                                    to_string(x), dim[0]));
    total += x.dim(static_cast<int>(dim[0]));
  }
  Factors r;
  TensorFactors shared;
  for (int d = 0; d < first.rank(); ++d) shared.push_back(d == dim[0] ? FactorList{} : FactorList{r.add(first.dim(d))});
  for (int k = 0; k < e.num_in(); ++k) {
    r.in.push_back(shared);
    r.in[k][dim[0]] = {r.add(e.in(k).dims()[dim[0]], FactorClass::N)};
  }
  r.out.push_back(shared);
  r.out[0][dim[0]] = {r.add(total, FactorClass::N)};
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

void eval_concatenate(const Eqn& e, std::span<const Literal> in, std::span<Literal> out) {
  const std::int64_t dim = e.attrs<Concatenate>().dim[0];
  const std::vector<std::int64_t> strides = strides_of(out[0].dims());
  std::int64_t start = 0;
  for (const Literal& x : in) {
    Index i(x.dims().size());
    std::int64_t from = 0;
    if (x.size() > 0) do {
        Index j = i;
        j[dim] += start;
        out[0].copy(flatten(j, strides), x, from++);
      } while (next_index(i, x.dims()));
    start += x.dims()[dim];
  }
}

constexpr OpDef view(OpDef d) {
  d.arity = 1;
  d.linear = jointly(1);
  if (!d.eval) d.eval = eval_view;
  return d;
}

}  // namespace

constinit const OpDef constant = {
    .name = "constant",
    .doc = "A literal: `1.5:f32` in place of an operand at rank 0, else its bytes in hexadecimal.",
    .arity = 0,
    .attrs = attrs_of<Constant>(),
    .factors = constant_factors,
    .dtypes = [](const Eqn& e) -> absl::StatusOr<std::vector<DType>> { return std::vector<DType>{e.attrs<Constant>().dtype}; },
    .no_jvp = Absent::no_operands,
    .lower = [](const Eqn& e) -> Lowering {
      SHEAF_CHECK(e.out().rank() == 0, "dense constants are buffers of the plan");
      ScalarBuilder s;
      return lowering::Map{s.finish(s.constant_bits(e.out().dtype(), literal_of(e).bits(0)))};
    },
    .eval = [](const Eqn& e, std::span<const Literal>, std::span<Literal> out) { out[0] = literal_of(e); },
    .samples = [] { return Samples{"constant {hex=\"0000803f\"}", "constant {dims=[2], hex=\"0000803f00000040\"}"}; },
};

constinit const OpDef iota = {
    .name = "iota",
    .doc = "Each element is its index along `dim`.",
    .arity = 0,
    .attrs = attrs_of<Iota>(),
    .factors = iota_factors,
    .dtypes = [](const Eqn& e) -> absl::StatusOr<std::vector<DType>> {
      const DType t = e.attrs<Iota>().dtype;
      if (!is_int(t) && !is_float(t)) return absl::InvalidArgumentError(fmt::format("dtype must be an integer or floating point, not {}", name(t)));
      return std::vector<DType>{t};
    },
    .no_jvp = Absent::no_operands,
    .lower = [](const Eqn& e) -> Lowering { return lowering::Iota{static_cast<int>(e.attrs<Iota>().dim[0])}; },
    .eval = eval_iota,
    .samples = [] { return Samples{"iota {shape=[4, 3], dim=[1]}", "iota {shape=[5], dim=[0], dtype=f32}", "iota {shape=[0], dim=[0]}", "iota {shape=[300], dim=[0], dtype=u8}", "iota {shape=[3, 2], dim=[0], dtype=bf16}"}; },
};

constinit const OpDef broadcast = view({
    .name = "broadcast",
    .doc = "Dim d of x lies along dim dims[d] of the result; new dims and dims of size 1 repeat.",
    .attrs = attrs_of<Broadcast>(),
    .factors = broadcast_factors,
    .transpose = broadcast_transpose,
    .lower = broadcast_lower,
    .samples = [] { return Samples{"broadcast f32[3] {shape=[2, 3], dims=[1]}", "broadcast f64[3, 1] {shape=[3, 4], dims=[0, 1]}", "broadcast f64[] {shape=[2, 2]}", "broadcast f64[2, 3] {shape=[3, 4, 2], dims=[2, 0]}", "broadcast i32[1] {shape=[4], dims=[0]}", "broadcast f32[0] {shape=[2, 0], dims=[1]}", "broadcast bf16[2] {shape=[2, 2], dims=[0]}", "broadcast bool[3] {shape=[3, 2], dims=[0]}", "broadcast f64[1, 1] {shape=[1, 3], dims=[0, 1]}"}; },
});

constinit const OpDef reshape = view({
    .name = "reshape",
    .doc = "The same elements in row-major order under another shape.",
    .attrs = attrs_of<Reshape>(),
    .factors = reshape_factors,
    .transpose = [](Builder&, const Eqn& e, const Values&, const Values& ct) -> Values { return {reshape_to(ct[0], e.in(0).dims())}; },
    .lower = [](const Eqn&) -> Lowering { return lowering::Reshape{}; },
    .eval = eval_same_order,
    .samples = [] { return Samples{"reshape f32[2, 3, 4] {shape=[6, 4]}", "reshape f64[6] {shape=[2, 3]}", "reshape f64[4, 3] {shape=[3, 4]}", "reshape f64[1] {shape=[]}", "reshape f64[] {shape=[1, 1]}", "reshape f32[0, 3] {shape=[3, 0]}", "reshape i32[6, 4] {shape=[2, 1, 12]}", "reshape bf16[4] {shape=[2, 2]}"}; },
});

constinit const OpDef transpose = view({
    .name = "transpose",
    .doc = "Dim d of the result is dim perm[d] of x.",
    .attrs = attrs_of<Transpose>(),
    .factors = transpose_factors,
    .transpose = [](Builder&, const Eqn& e, const Values&, const Values& ct) -> Values { return {permute(ct[0], inverse(e.attrs<Transpose>().perm))}; },
    .lower = transpose_lower,
    .samples = [] { return Samples{"transpose f32[2, 3] {perm=[1, 0]}", "transpose f64[2, 3, 4] {perm=[2, 0, 1]}", "transpose i32[3, 3] {perm=[1, 0]}", "transpose f64[]", "transpose f32[2, 0] {perm=[1, 0]}", "transpose bf16[3, 2] {perm=[1, 0]}"}; },
});

constinit const OpDef slice = view({
    .name = "slice",
    .doc = "Elements start, start + stride, ... below limit along every dim.",
    .attrs = attrs_of<Slice>(),
    .factors = slice_factors,
    .transpose = slice_transpose,
    .lower = slice_lower,
    .samples = [] { return Samples{"slice f32[6] {start=[1], limit=[4], stride=[1]}", "slice f64[5, 7] {start=[0, 1], limit=[5, 6], stride=[1, 2]}", "slice f64[5] {start=[2], limit=[2], stride=[1]}", "slice i32[9] {start=[1], limit=[9], stride=[3]}", "slice f64[3, 4] {start=[1, 0], limit=[3, 4], stride=[1, 1]}", "slice f64[]"}; },
});

constinit const OpDef pad = {
    .name = "pad",
    .doc = "x with `low` and `high` elements of the fill (operand 1, rank 0) around it and `interior` between; negative low and high crop.",
    .arity = 2,
    .attrs = attrs_of<Pad>(),
    .factors = pad_factors,
    .linear = jointly(3),
    .transpose = pad_transpose,
    .batch = pad_batch,
    .lower = [](const Eqn& e) -> Lowering { return lowering::Pad{e.attrs<Pad>().low, e.attrs<Pad>().interior}; },
    .eval = eval_pad,
    .samples = [] { return Samples{"pad f32[3], f32[] {low=[1], high=[2], interior=[0]}", "pad f64[3, 2], f64[] {low=[0, 1], high=[0, 0], interior=[1, 0]}", "pad f64[5], f64[] {low=[-1], high=[-2], interior=[0]}", "pad f64[4], f64[] {low=[-1], high=[2], interior=[2]}", "pad f64[0], f64[] {low=[2], high=[1], interior=[1]}", "pad i32[2], i32[] {low=[1], high=[1], interior=[0]}", "pad f64[], f64[]"}; },
};

constinit const OpDef concatenate = {
    .name = "concatenate",
    .doc = "The operands one after another along `dim`.",
    .attrs = attrs_of<Concatenate>(),
    .factors = concatenate_factors,
    .linear = jointly(all_operands),
    .transpose = concatenate_transpose,
    .lower = [](const Eqn& e) -> Lowering { return lowering::Concatenate{static_cast<int>(e.attrs<Concatenate>().dim[0])}; },
    .eval = eval_concatenate,
    .samples = [] { return Samples{"concatenate f32[2, 3], f32[2, 1] {dim=[1]}", "concatenate f64[2], f64[0], f64[3] {dim=[0]}", "concatenate f64[3, 2] {dim=[0]}", "concatenate i32[1, 2], i32[2, 2] {dim=[0]}", "concatenate bf16[2], bf16[2] {dim=[0]}"}; },
};

constinit const OpDef reverse = view({
    .name = "reverse",
    .doc = "Reverses the order of elements along `dims`.",
    .attrs = attrs_of<Reverse>(),
    .factors = reverse_factors,
    .transpose = [](Builder& b, const Eqn& e, const Values&, const Values& ct) -> Values { return {b.emit(reverse, {ct[0]}, e.attrs<Reverse>())}; },
    .lower = reverse_lower,
    .samples = [] { return Samples{"reverse f32[4, 6] {dims=[1]}", "reverse f64[3, 2] {dims=[0, 1]}", "reverse i32[5] {dims=[0]}", "reverse f64[2, 2]", "reverse f64[0] {dims=[0]}"}; },
});

}  // namespace sheaf::ir::ops
