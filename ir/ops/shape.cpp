// Changes of shape that keep every element: each result element is one operand element, named by an index map.
// All are linear, and each transposes to others of them.
#include <numeric>

#include "ir/ops/halo.h"
#include "ir/ops/view.h"

namespace sheaf::ir::ops {
namespace {

void eval_same_order(const Eqn&, std::span<const Literal> in, std::span<Literal> out) {
  std::copy_n(in[0].data(), in[0].bytes(), out[0].data());
}

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
      return absl::InvalidArgumentError(
          fmt::format("cannot broadcast {} to {}: dim {} ({}) must be 1 or dim {} of the result ({})", to_string(x),
                      to_string(a.shape), d, x.dim(d), a.dims[d], to));
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

// Common factors of both shapes, major to minor: [6, 4] -> [2, 12] is (a b) c -> a (b c). Where the two do not divide,
// private N factors run until the products agree again.
class ReshapeFactors {
 public:
  ReshapeFactors(const Shape& from, const Shape& to) : from_(from), to_(to), in_(from.size()), out_(to.size()) {}

  Factors run() {
    if (num_elements(from_) == 0) return whole();
    while (true) {
      if (left_in_ == 1 && left_out_ == 1) share_ones();
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
  // Dims of 1 that both shapes have next pass through: a batch of one example is such a dim.
  void share_ones() {
    while (i_ + 1 < static_cast<int>(from_.size()) && j_ + 1 < static_cast<int>(to_.size()) && from_[i_ + 1] == 1 &&
           to_[j_ + 1] == 1)
      in_[++i_] = out_[++j_] = {r_.add(1)};
  }

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
    return absl::InvalidArgumentError(fmt::format("cannot reshape {} ({} elements) to {} ({} elements)",
                                                  to_string(e.in(0).type()), e.in(0).type().num_elements(),
                                                  to_string(to), num_elements(to)));
  return ReshapeFactors(e.in(0).dims(), to).run();
}

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

absl::StatusOr<Factors> reverse_factors(const Eqn& e) {
  const DimList& dims = e.attrs<Reverse>().dims;
  const Type x = e.in(0).type();
  if (absl::Status s = check_dims("dims", dims, x.rank()); !s.ok()) return s;
  Factors r;
  r.in.emplace_back();
  for (int d = 0; d < x.rank(); ++d)
    r.in[0].push_back({r.add(x.dim(d), lists(dims, d) ? FactorClass::M : FactorClass::P)});
  r.out = r.in;
  return r;
}

// Parts change places, and each is reversed.
Values localize_reverse(const Shard& s) {
  Value x = s.operands[0];
  for (const std::int64_t d : s.whole.attrs<Reverse>().dims) {
    const int f = s.factors.in[0][d][0];
    if (!s.is_split(f)) continue;
    Ppermute pairs{.axes = s.axes(f)};
    for (std::int64_t r = 0; r < s.ways(f); ++r) {
      pairs.sources.push_back(r);
      pairs.targets.push_back(s.ways(f) - 1 - r);
    }
    x = s.b.emit(ppermute, {x}, std::move(pairs));
  }
  return s.emit({x});
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

}  // namespace

constinit const OpDef broadcast = view({
    .name = "broadcast",
    .doc = "Dim d of x lies along dim dims[d] of the result; new dims and dims of size 1 repeat.",
    .attrs = attrs_of<Broadcast>(),
    .factors = broadcast_factors,
    .transpose = broadcast_transpose,
    .lower = broadcast_lower,
    .samples =
        [] {
          return Samples{"broadcast f32[3] {shape=[2, 3], dims=[1]}",
                         "broadcast f64[3, 1] {shape=[3, 4], dims=[0, 1]}",
                         "broadcast f64[] {shape=[2, 2]}",
                         "broadcast f64[2, 3] {shape=[3, 4, 2], dims=[2, 0]}",
                         "broadcast i32[1] {shape=[4], dims=[0]}",
                         "broadcast f32[0] {shape=[2, 0], dims=[1]}",
                         "broadcast bf16[2] {shape=[2, 2], dims=[0]}",
                         "broadcast bool[3] {shape=[3, 2], dims=[0]}",
                         "broadcast f64[1, 1] {shape=[1, 3], dims=[0, 1]}",
                         "broadcast f16[] {shape=[0, 2]}",
                         "broadcast u8[1] {shape=[0], dims=[0]}",
                         "broadcast f64[] {}"};
        },
});

constinit const OpDef reshape = view({
    .name = "reshape",
    .doc = "The same elements in row-major order under another shape.",
    .attrs = attrs_of<Reshape>(),
    .factors = reshape_factors,
    .transpose = [](Builder&, const Eqn& e, const Values&, const Values& ct) -> Values {
      return {reshape_to(ct[0], e.in(0).dims())};
    },
    .lower = [](const Eqn&) -> Lowering { return lowering::Reshape{}; },
    .eval = eval_same_order,
    .samples =
        [] {
          return Samples{"reshape f32[2, 3, 4] {shape=[6, 4]}",  "reshape f64[6] {shape=[2, 3]}",
                         "reshape f64[4, 3] {shape=[3, 4]}",     "reshape f64[1] {shape=[]}",
                         "reshape f64[] {shape=[1, 1]}",         "reshape f32[0, 3] {shape=[3, 0]}",
                         "reshape i32[6, 4] {shape=[2, 1, 12]}", "reshape bf16[4] {shape=[2, 2]}",
                         "reshape f16[2, 0] {shape=[2, 0, 3]}",  "reshape bool[4] {shape=[2, 2]}",
                         "reshape f64[2, 3, 4] {shape=[2, 12]}"};
        },
});

constinit const OpDef transpose = view({
    .name = "transpose",
    .doc = "Dim d of the result is dim perm[d] of x.",
    .attrs = attrs_of<Transpose>(),
    .factors = transpose_factors,
    .transpose = [](Builder&, const Eqn& e, const Values&, const Values& ct) -> Values {
      return {permute(ct[0], inverse(e.attrs<Transpose>().perm))};
    },
    .lower = transpose_lower,
    .samples =
        [] {
          return Samples{"transpose f32[2, 3] {perm=[1, 0]}", "transpose f64[2, 3, 4] {perm=[2, 0, 1]}",
                         "transpose i32[3, 3] {perm=[1, 0]}", "transpose f64[]",
                         "transpose f32[2, 0] {perm=[1, 0]}", "transpose bf16[3, 2] {perm=[1, 0]}",
                         "transpose f16[1, 3] {perm=[1, 0]}", "transpose bool[2, 2] {perm=[1, 0]}"};
        },
});

constinit const OpDef reverse = view({
    .name = "reverse",
    .doc = "Reverses the order of elements along `dims`.",
    .attrs = attrs_of<Reverse>(),
    .factors = reverse_factors,
    .transpose = [](Builder& b, const Eqn& e, const Values&, const Values& ct) -> Values {
      return {b.emit(reverse, {ct[0]}, e.attrs<Reverse>())};
    },
    .localize = localize_reverse,
    .splits = splits_rows,
    .lower = reverse_lower,
    .samples =
        [] {
          return Samples{"reverse f32[4, 6] {dims=[1]}", "reverse f64[3, 2] {dims=[0, 1]}",
                         "reverse i32[5] {dims=[0]}",    "reverse f64[2, 2]",
                         "reverse f64[0] {dims=[0]}",    "reverse bf16[3, 1] {dims=[0]}",
                         "reverse bool[4] {dims=[0]}",   "reverse f16[2, 0] {dims=[0, 1]}"};
        },
});

}  // namespace sheaf::ir::ops
