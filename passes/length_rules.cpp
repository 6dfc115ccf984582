// Most follows from an op's factors: along a dim that passes through, padding stays padding; before one is summed or
// compared, padding becomes what changes nothing. Ops that look at places have a rule of their own, or are refused.
#include "passes/length_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "ir/op.h"
#include "ir/ops/rules.h"

namespace sheaf::passes {

using namespace ir;

namespace {

// What changes nothing when it is combined: of a float sum -0, as -0 + 0 is 0.
Value neutral(Builder& b, DType t, Combine combine) {
  Literal x(Type(t, {}));
  const bool lowest = combine == Combine::max, largest = combine == Combine::min;
  if (is_float(t) || is_complex(t)) {
    const double inf = std::numeric_limits<double>::infinity();
    return b.constant(t, lowest ? -inf : largest ? inf : combine == Combine::prod ? 1.0 : -0.0);
  }
  if (is_bool(t)) {
    x.set_bits(0, combine == Combine::and_ || combine == Combine::prod || largest ? 1 : 0);
    return b.constant(x);
  }
  const int bits = 8 * size_bytes(t);
  const std::uint64_t ones = bits == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << bits) - 1;
  const std::uint64_t sign = std::uint64_t{1} << (bits - 1);
  const bool is_signed = is_signed_int(t);
  if (combine == Combine::and_) x.set_bits(0, ones);
  else if (combine == Combine::prod) x.set_bits(0, 1);
  else if (lowest) x.set_bits(0, is_signed ? sign : 0);
  else if (largest) x.set_bits(0, is_signed ? ones ^ sign : ones);
  return b.constant(x);
}

Value largest(Builder& b, DType t) { return neutral(b, t, Combine::min); }

// What sort puts last.
Value last_in_order(Builder& b, DType t) {
  return is_float(t) ? b.constant(t, std::numeric_limits<double>::quiet_NaN()) : largest(b, t);
}

absl::Status no_rule(std::string_view why) { return absl::InvalidArgumentError(std::string(why)); }
constexpr std::string_view kNoRule = "it has no rule for a dim whose length varies";

bool lists(const std::vector<std::int64_t>& dims, std::int64_t d) { return std::ranges::find(dims, d) != dims.end(); }

class Emission {
 public:
  Emission(Builder& b, const Eqn& e, const LengthMarks& m, std::size_t k, Values operands,
           const std::vector<Extent>& extents, const Values& values)
      : b_(b),
        e_(e),
        m_(m),
        starts_(m.starts[k]),
        operands_(std::move(operands)),
        extents_(extents),
        lengths_(values) {}

  absl::StatusOr<Values> run();

 private:
  using Result = absl::StatusOr<Values>;

  int mark(Value v, std::int64_t d) const {
    const std::vector<int>& dims = m_.dims[v];
    return dims.empty() ? -1 : dims[static_cast<std::size_t>(d)];
  }
  Result same() { return b_.clone(e_, operands_); }

  // x with `fill` in its padding along the dim.
  Value masked(Value x, std::int64_t dim, int s, Value fill) {
    const Value position = b_.emit(ops::iota, {}, ops::Iota{.shape = x.dims(), .dim = {dim}, .dtype = DType::i32});
    return ops::where(b_.emit(ops::lt, {position, lengths_[s]}), x, fill);
  }
  void mask(std::size_t k, std::int64_t dim, int s, Combine combine) {
    operands_[k] = masked(operands_[k], dim, s, neutral(b_, operands_[k].dtype(), combine));
  }
  Value number(DType t, std::int64_t n) {
    Literal x(Type(t, {}));
    x.set_int(0, n);
    return b_.constant(x);
  }
  // The length less so much.
  Value before_end(int s, std::int64_t n) { return b_.emit(ops::add, {lengths_[s], number(DType::i32, -n)}); }
  Value vector_of(Values components) {
    for (Value& x : components) x = ops::reshape_to(x, {1});
    return components.size() == 1 ? components[0] : b_.emit(ops::concatenate, components, ops::Concatenate{.dim = {0}});
  }
  // `sizes` of the dims, from `starts` on.
  Value window(Value x, const std::vector<std::int64_t>& dims, std::vector<std::int64_t> sizes, const Values& starts) {
    return b_.emit(ops::dynamic_slice, {x, vector_of(starts)},
                   ops::DynamicSlice{.dims = dims, .sizes = std::move(sizes), .index_dim = {0}});
  }
  // x with `part` in it, from `starts` on.
  Value with_part(Value x, Value part, const std::vector<std::int64_t>& dims, const Values& starts) {
    return b_.emit(ops::dynamic_update_slice, {x, part, vector_of(starts)},
                   ops::DynamicUpdateSlice{.dims = dims, .index_dim = {0}});
  }
  // Of the equation's operand or result: what the extent of dim d is.
  Value extent(Value v, std::int64_t d) {
    const int s = mark(v, d);
    return s >= 0 ? lengths_[s] : number(DType::i32, v.dims()[d]);
  }
  // The elements within the length in opposite order.
  Value turned(Value x, std::int64_t dim, int s) {
    const std::int64_t n = x.dims()[dim];
    const Value back = b_.emit(ops::reverse, {x}, ops::Reverse{.dims = {dim}});
    return to_front(back, dim, b_.emit(ops::sub, {number(DType::i32, n), lengths_[s]}));
  }
  // x from `start` on; behind its end anything.
  Value to_front(Value x, std::int64_t dim, Value start) {
    const Value twice = b_.emit(ops::concatenate, {x, x}, ops::Concatenate{.dim = {dim}});
    return window(twice, {dim}, {x.dims()[dim]}, {start});
  }
  // One entry for each component of the vectors along the dim, to be combined with them.
  Value per_component(Values entries, Value vectors, std::int64_t dim) {
    if (entries.size() == 1) return entries[0];
    return ops::broadcast_to(vector_of(std::move(entries)), vectors.dims(), {dim});
  }
  // Indices of a dtype that holds any place.
  static Value wide(Value indices) {
    return ops::convert_to(indices, size_bytes(indices.dtype()) < 4 ? DType::i32 : indices.dtype());
  }

  template <Result (Emission::*Rule)()>
  static Result call(Emission& e) {
    return (e.*Rule)();
  }
  Result by_factors(const std::vector<int>& with_rule = {});
  absl::Status note(Value v, const TensorFactors& dims, std::vector<int>& length) const;
  bool is_simple(const Factor& f) const;
  bool keeps_order() const;
  Result reshape();
  Result slice();
  Result pad();
  Result concatenate();
  Result reverse();
  Result cumulative();
  Result recurrence();
  Result extreme();
  Result sort();
  Result top_k();
  Result window_at_places();
  Result random_bits();
  Result windows();
  Result conv();
  Result gather();
  Result scatter();

  Builder& b_;
  const Eqn& e_;
  const LengthMarks& m_;
  const std::vector<int>& starts_;
  Values operands_;
  const std::vector<Extent>& extents_;
  const Values& lengths_;  // of all extents, by number
};

absl::StatusOr<Values> Emission::run() {
  struct Rule {
    Op op;
    Result (*emit)(Emission&);
  };
  static constexpr Rule kRules[] = {
      {&ops::reshape, call<&Emission::reshape>},
      {&ops::slice, call<&Emission::slice>},
      {&ops::pad, call<&Emission::pad>},
      {&ops::concatenate, call<&Emission::concatenate>},
      {&ops::reverse, call<&Emission::reverse>},
      {&ops::cumulative, call<&Emission::cumulative>},
      {&ops::recurrence, call<&Emission::recurrence>},
      {&ops::argmax, call<&Emission::extreme>},
      {&ops::argmin, call<&Emission::extreme>},
      {&ops::sort, call<&Emission::sort>},
      {&ops::top_k, call<&Emission::top_k>},
      {&ops::dynamic_slice, call<&Emission::window_at_places>},
      {&ops::dynamic_update_slice, call<&Emission::window_at_places>},
      {&ops::random_bits, call<&Emission::random_bits>},
      {&ops::sliding_windows, call<&Emission::same>},  // each is within its operand
      {&ops::reduce_window, call<&Emission::windows>},
      {&ops::conv, call<&Emission::conv>},
      {&ops::gather, call<&Emission::gather>},
      {&ops::scatter, call<&Emission::scatter>},
  };
  if (e_.effects != Effects::none && e_.op != &ops::check)
    return no_rule("what happens outside of the program would see the padding");
  const auto* const rule = std::ranges::find(kRules, e_.op, &Rule::op);
  if (rule == std::end(kRules)) return by_factors();
  return rule->emit(*this);
}

// `with_rule`: factors that the caller has seen to.
absl::StatusOr<Values> Emission::by_factors(const std::vector<int>& with_rule) {
  constexpr std::string_view kNone = "it has no rule for arrays of a length that varies";
  if (!e_.op->factors) return no_rule(kNone);
  const absl::StatusOr<Factors> factors = e_.op->factors(e_);
  if (!factors.ok()) return no_rule(kNone);
  std::vector<int> length(factors->factors.size(), -1);
  absl::Status status;
  for (int k = 0; k < e_.num_in(); ++k) status.Update(note(e_.in(k), factors->in[k], length));
  for (int j = 0; j < e_.num_out(); ++j) status.Update(note(e_.out(j), factors->out[j], length));
  if (!status.ok()) return status;
  const auto has_rule = [&](int f) { return std::ranges::find(with_rule, f) != with_rule.end(); };
  for (int f = 0; f < std::ssize(length); ++f)
    if (length[f] >= 0 && !has_rule(f) && !is_simple(factors->factors[f])) return no_rule(kNoRule);
  for (int k = 0; k < e_.num_in(); ++k)
    for (std::size_t d = 0; d < factors->in[k].size(); ++d) {
      if (mark(e_.in(k), static_cast<std::int64_t>(d)) < 0) continue;
      const int f = factors->in[k][d][0];
      if (factors->factors[f].cls == FactorClass::R && !has_rule(f))
        mask(static_cast<std::size_t>(k), static_cast<std::int64_t>(d), length[f], factors->factors[f].combine);
    }
  return same();
}

// A dim that is a length is one factor, which is that length wherever it is.
absl::Status Emission::note(Value v, const TensorFactors& dims, std::vector<int>& length) const {
  for (std::size_t d = 0; d < dims.size(); ++d) {
    const int s = mark(v, static_cast<std::int64_t>(d));
    if (s >= 0 && (dims[d].size() != 1 || (length[dims[d][0]] >= 0 && length[dims[d][0]] != s)))
      return no_rule("it takes dims apart or together of which the length of one varies");
    if (s >= 0) length[dims[d][0]] = s;
  }
  for (std::size_t d = 0; d < dims.size(); ++d)
    for (const int f : dims[d])
      if (length[f] >= 0 && mark(v, static_cast<std::int64_t>(d)) < 0)
        return no_rule("it meets a dim whose length varies with one of a fixed size");
  return absl::OkStatus();
}

// Each element of a result comes from the elements at its own place, or from all along the dim by something that has
// a neutral element.
bool Emission::is_simple(const Factor& f) const {
  if (f.cls == FactorClass::P) return !f.absolute || e_.op == &ops::iota;
  const bool sums = e_.op == &ops::reduce || e_.op == &ops::dot || e_.op == &ops::conv;
  return f.cls == FactorClass::R && sums && !f.absolute && f.combine != Combine::none && f.combine != Combine::custom;
}

// Whether padding is at the end of the result where it is at the end of the operand: dims that become others, few as
// can be, are all fixed, or only the first of them varies, here and there.
bool Emission::keeps_order() const {
  struct Group {
    Extent first = {};  // without times: fixed
    std::int64_t rest = 1;
    bool is_simple = true;
  };
  const auto take = [&](Value v, int d, std::int64_t& size, Group& g) {
    const int s = mark(v, d);
    const std::int64_t n = v.dims()[d];
    if (s >= 0) g.is_simple &= size == 1 && g.first.times.empty();
    if (s >= 0) g.first = extents_[static_cast<std::size_t>(s)];
    else g.rest *= n;
    size *= n;
  };
  const Value x = e_.in(0), y = e_.out();
  for (int i = 0, j = 0; i < x.rank() || j < y.rank();) {
    Group in, out;
    std::int64_t from = 1, to = 1;
    if (i < x.rank()) take(x, i++, from, in);
    if (j < y.rank()) take(y, j++, to, out);
    while (from != to && (from < to ? i < x.rank() : j < y.rank()))
      if (from < to) take(x, i++, from, in);
      else take(y, j++, to, out);
    if (from != to || !in.is_simple || !out.is_simple) return false;
    const bool varies = !in.first.times.empty();
    if (varies != !out.first.times.empty()) return false;
    for (std::size_t s = 0; varies && s < in.first.times.size(); ++s)
      if (in.first.times[s] * in.rest != out.first.times[s] * out.rest) return false;
    if (in.first.plus * in.rest != out.first.plus * out.rest) return false;
  }
  return true;
}

// Elsewhere each element is looked up at the place that it has without padding.
absl::StatusOr<Values> Emission::reshape() {
  if (keeps_order()) return same();
  const Value x = e_.in(0), y = e_.out();
  if (x.type().num_elements() > std::numeric_limits<std::int32_t>::max())
    return no_rule("it takes dims apart or together of which the length of one varies, of too many elements");
  if (x.type().num_elements() == 0) return same();
  Value place = b_.zeros(Type(DType::i32, y.dims()));  // among the elements that are no padding
  for (std::int64_t d = 0; d < y.rank(); ++d)
    place =
        place * extent(y, d) + b_.emit(ops::iota, {}, ops::Iota{.shape = y.dims(), .dim = {d}, .dtype = DType::i32});
  Value at = b_.zeros(place.type());  // among all
  for (std::int64_t d = x.rank(), stride = 1; d-- > 0; stride *= x.dims()[d]) {
    const Value n = b_.emit(ops::max, {extent(x, d), number(DType::i32, 1)});
    at = at + b_.emit(ops::rem, {place, n}) * number(DType::i32, stride);
    place = place / n;
  }
  Shape index_dims = y.dims();
  index_dims.push_back(1);
  return Values{
      b_.emit(ops::gather, {ops::reshape_to(operands_[0], {x.type().num_elements()}), ops::reshape_to(at, index_dims)},
              ops::Gather{.collapsed = {0}, .start_index_map = {0}, .index_dim = {y.rank()}, .slice_sizes = {1}})};
}

// Padding stays at the end, wherever it begins.
absl::StatusOr<Values> Emission::slice() {
  ops::Slice a = e_.attrs<ops::Slice>();
  std::vector<std::int64_t> dims, sizes;
  Values starts;
  for (std::size_t d = 0; d < starts_.size(); ++d) {
    if (starts_[d] < 0) continue;
    dims.push_back(static_cast<std::int64_t>(d));
    sizes.push_back(a.limit[d] - a.start[d]);
    starts.push_back(lengths_[starts_[d]]);
    a.limit[d] = sizes.back();
    a.start[d] = 0;
  }
  if (dims.empty()) return same();
  return Values{b_.emit(ops::slice, {window(operands_[0], dims, sizes, starts)}, std::move(a))};
}

// What comes from behind the end is the fill.
absl::StatusOr<Values> Emission::pad() {
  ops::Pad a = e_.attrs<ops::Pad>();
  const Value fill = operands_[1];
  std::vector<std::int64_t> dims;
  Values starts;
  for (std::int64_t d = 0; d < std::ssize(a.low); ++d) {
    if (const int s = mark(e_.in(0), d); s >= 0) operands_[0] = masked(operands_[0], d, s, fill);
    if (starts_.empty() || starts_[static_cast<std::size_t>(d)] < 0) continue;
    if (a.high[d] < 0 || a.interior[d] > 0) return no_rule(kNoRule);
    dims.push_back(d);
    starts.push_back(lengths_[starts_[static_cast<std::size_t>(d)]]);
    a.low[d] = a.high[d] = 0;
  }
  if (dims.empty()) return same();
  const Value part = b_.emit(ops::pad, {operands_[0], fill}, std::move(a));
  return Values{with_part(ops::broadcast_to(fill, e_.out().dims(), {}), part, dims, starts)};
}

// Each operand begins where the one before ends, over its padding.
absl::StatusOr<Values> Emission::concatenate() {
  const std::int64_t dim = e_.attrs<ops::Concatenate>().dim[0];
  const auto ends_early = [&](int k) { return mark(e_.in(k), dim) >= 0; };
  bool is_in_place = true;
  for (int k = 0; k + 1 < e_.num_in(); ++k) is_in_place &= !ends_early(k);
  if (is_in_place) return same();
  Value all = b_.zeros(Type(e_.out().dtype(), e_.out().dims())), at = number(DType::i32, 0);
  for (int k = 0; k < e_.num_in(); ++k) {
    all = with_part(all, operands_[static_cast<std::size_t>(k)], {dim}, {at});
    at = at + extent(e_.in(k), dim);
  }
  return Values{all};
}

absl::StatusOr<Values> Emission::reverse() {
  Value x = operands_[0];
  std::vector<std::int64_t> others;
  for (const std::int64_t d : e_.attrs<ops::Reverse>().dims) {
    const int s = mark(e_.in(0), d);
    if (s >= 0) x = turned(x, d, s);
    else others.push_back(d);
  }
  return Values{others.empty() ? x : b_.emit(ops::reverse, {x}, ops::Reverse{.dims = others})};
}

absl::StatusOr<Values> Emission::cumulative() {
  using Kind = lowering::Recurrence::Kind;
  const ops::Cumulative& a = e_.attrs<ops::Cumulative>();
  const int s = mark(e_.in(0), a.dim[0]);
  const Combine combine = a.kind == Kind::sum    ? Combine::sum
                          : a.kind == Kind::prod ? Combine::prod
                          : a.kind == Kind::min  ? Combine::min
                                                 : Combine::max;  // of logsumexp too: exp of it is 0
  if (s >= 0 && a.reverse) mask(0, a.dim[0], s, combine);
  return same();
}

// Backwards it would begin in the padding, and has no neutral element.
absl::StatusOr<Values> Emission::recurrence() {
  ops::Recurrence a = e_.attrs<ops::Recurrence>();
  const int s = mark(e_.in(0), a.dim[0]);
  if (s < 0 || !a.reverse) return same();
  const std::int64_t dim = a.dim[0];
  a.reverse = false;
  return Values{turned(
      b_.emit(ops::recurrence, {turned(operands_[0], dim, s), turned(operands_[1], dim, s)}, std::move(a)), dim, s)};
}

// Padding is behind all else, and of equal elements the first counts.
absl::StatusOr<Values> Emission::extreme() {
  const std::int64_t dim = e_.attrs<ops::ArgReduce>().dim[0];
  const int s = mark(e_.in(0), dim);
  if (s >= 0) mask(0, dim, s, e_.op == &ops::argmax ? Combine::max : Combine::min);
  return same();
}

// Padding comes last, as the order is stable.
absl::StatusOr<Values> Emission::sort() {
  const ops::Sort& a = e_.attrs<ops::Sort>();
  const int s = mark(e_.in(0), a.dim[0]);
  for (int k = 0; s >= 0 && k < a.num_keys; ++k)
    operands_[k] = masked(operands_[k], a.dim[0], s, last_in_order(b_, operands_[k].dtype()));
  return same();
}

absl::StatusOr<Values> Emission::top_k() {
  const std::int64_t dim = e_.attrs<ops::TopK>().dim[0];
  const int s = mark(e_.in(0), dim);
  if (s >= 0) mask(0, dim, s, Combine::max);
  return same();
}

// The starts are counted and clamped here, by the length, so that the op has nothing more to do.
absl::StatusOr<Values> Emission::window_at_places() {
  const bool is_update = e_.op == &ops::dynamic_update_slice;
  const std::size_t at = is_update ? 2 : 1;
  const ops::DynamicUpdateSlice a = [&] {
    if (is_update) return e_.attrs<ops::DynamicUpdateSlice>();
    const auto& read = e_.attrs<ops::DynamicSlice>();
    return ops::DynamicUpdateSlice{read.dims, read.batch, read.starts_batch, read.index_dim};
  }();
  const Value window = is_update ? e_.in(1) : e_.out();
  const absl::StatusOr<Factors> factors = e_.op->factors(e_);
  if (!factors.ok()) return factors.status();
  const Value starts = wide(operands_[at]);
  const DType t = starts.dtype();
  std::vector<int> with_rule;
  Values ends, last;
  for (const std::int64_t d : a.dims) {
    const int s = mark(e_.in(0), d);
    const std::int64_t n = e_.in(0).dims()[d], size = window.dims()[d];
    if (mark(window, d) >= 0) return no_rule(kNoRule);
    ends.push_back(s < 0 ? number(t, n) : ops::convert_to(lengths_[s], t));
    last.push_back(s < 0 ? number(t, n - size) : ops::convert_to(before_end(s, size), t));
    if (s >= 0) with_rule.push_back(factors->in[0][d][0]);
    if (s >= 0 && is_update) with_rule.push_back(factors->out[0][d][0]);
  }
  if (with_rule.empty()) return by_factors();
  const Value none = number(t, 0);
  const Value counted = ops::where(b_.emit(ops::lt, {starts, none}),
                                   b_.emit(ops::add, {starts, per_component(ends, starts, a.index_dim[0])}), starts);
  const Value most = per_component(last, starts, a.index_dim[0]);
  operands_[at] = b_.emit(ops::max, {b_.emit(ops::min, {counted, most}), none});
  return by_factors(with_rule);
}

// Bits go by the position in the whole array, which only the extents behind a dim tell.
absl::StatusOr<Values> Emission::random_bits() {
  const ops::RandomBits& a = e_.attrs<ops::RandomBits>();
  bool is_first = a.whole.empty();
  for (std::int64_t d = 0; d < std::ssize(a.shape); ++d) {
    const bool is_batch = lists(a.result_batch, d);
    if (!is_batch && mark(e_.out(), d) >= 0 && !is_first)
      return no_rule("its bits would be others: a length that varies has to be its first dim");
    if (!is_batch) is_first &= a.shape[d] == 1;
  }
  return same();
}

// Around an array, windows see what changes nothing; so they do behind the length.
absl::StatusOr<Values> Emission::windows() {
  const Combine combine = [&] {
    switch (e_.attrs<ops::ReduceWindow>().kind) {
      case ReduceKind::sum: return Combine::sum;
      case ReduceKind::prod: return Combine::prod;
      case ReduceKind::max: return Combine::max;
      case ReduceKind::min: return Combine::min;
      case ReduceKind::and_: return Combine::and_;
      case ReduceKind::or_: return Combine::or_;
    }
    return Combine::none;
  }();
  for (std::int64_t d = 0; d < e_.in(0).rank(); ++d) {
    const int s = mark(e_.in(0), d);
    if (s < 0 && mark(e_.out(), d) >= 0) return no_rule(kNoRule);
    if (s >= 0) mask(0, d, s, combine);
  }
  return same();
}

// The same of a spatial dim, and of a kernel whose extent varies, as in the derivative of the kernel.
absl::StatusOr<Values> Emission::conv() {
  const ops::Conv& a = e_.attrs<ops::Conv>();
  const absl::StatusOr<Factors> factors = e_.op->factors(e_);
  if (!factors.ok()) return factors.status();
  std::vector<int> with_rule;
  for (std::size_t i = 0; i < a.lhs_spatial.size(); ++i) {
    const std::int64_t l = a.lhs_spatial[i], r = a.rhs_spatial[i], o = a.out_spatial[i];
    const int s = mark(e_.in(0), l), kernel = mark(e_.in(1), r), to = mark(e_.out(), o);
    if (s < 0 && kernel < 0 && to < 0) continue;
    if (s < 0) return no_rule(kNoRule);
    mask(0, l, s, Combine::sum);
    if (kernel >= 0) mask(1, r, kernel, Combine::sum);
    for (const FactorList& list : {factors->in[0][l], factors->in[1][r], factors->out[0][o]})
      with_rule.insert(with_rule.end(), list.begin(), list.end());
  }
  return by_factors(with_rule);
}

// Places along a length that are beyond its end become the last one, or stay out of range.
absl::StatusOr<Values> Emission::gather() {
  const ops::Gather& a = e_.attrs<ops::Gather>();
  const absl::StatusOr<Factors> factors = e_.op->factors(e_);
  if (!factors.ok()) return factors.status();
  const Value indices = wide(operands_[1]), none = largest(b_, indices.dtype());
  std::vector<int> with_rule;
  Values last;
  for (const std::int64_t d : a.start_index_map) {
    const int s = mark(e_.in(0), d), f = factors->in[0][d][0];
    const bool is_one_place = s >= 0 && factors->factors[f].cls == FactorClass::R;
    last.push_back(is_one_place ? ops::convert_to(before_end(s, 1), indices.dtype()) : none);
    if (is_one_place) with_rule.push_back(f);
  }
  if (with_rule.empty()) return by_factors();
  const Value most = per_component(last, indices, a.index_dim[0]);
  const bool clips = a.mode == lowering::OutOfBounds::clip;
  operands_[1] = clips ? b_.emit(ops::min, {indices, most}) : ops::where(ops::greater(indices, most), none, indices);
  return by_factors(with_rule);
}

// What is written beyond the length is padding, and the padding's own updates are written nowhere.
absl::StatusOr<Values> Emission::scatter() {
  const ops::Scatter& a = e_.attrs<ops::Scatter>();
  const absl::StatusOr<Factors> factors = e_.op->factors(e_);
  if (!factors.ok()) return factors.status();
  std::vector<int> with_rule;
  for (const std::int64_t d : a.scatter_dims) {
    const int f = factors->in[0][d][0];
    if (mark(e_.in(0), d) >= 0 && factors->factors[f].absolute) with_rule.push_back(f);  // windows are one wide there
  }
  for (std::int64_t d = 0; d < e_.in(1).rank(); ++d) {
    const int s = mark(e_.in(1), d);
    if (s < 0 || lists(a.index_dim, d) || lists(a.indices_batch, d)) continue;
    const Value indices = wide(operands_[1]);
    operands_[1] = masked(indices, d, s, largest(b_, indices.dtype()));
    with_rule.push_back(factors->in[1][d][0]);
  }
  return by_factors(with_rule);
}

}  // namespace

absl::StatusOr<Values> padded_equation(Builder& b, const Eqn& e, const LengthMarks& m, std::size_t k, Values operands,
                                       const std::vector<Extent>& extents, const Values& values) {
  return Emission(b, e, m, k, std::move(operands), extents, values).run();
}

}  // namespace sheaf::passes
