// Convolution with dims in any order, any number of spatial dims, padding, strides, dilations of both operands, and
// groups of features or of the batch. Both transposes are convolutions again: the roles of dims, strides and groups are
// exchanged.
#include "ir/ops/conv.h"

#include <fmt/format.h>

#include "ir/ops/halo.h"
#include "ir/ops/products.h"

namespace sheaf::ir::ops {
namespace {

absl::StatusOr<std::vector<DType>> conv_dtypes(const Eqn& e) {
  return product_dtypes(e, e.attrs<Conv>().dtype, ComplexProducts::no);
}

DimList concat(const DimList& a, const DimList& b, const DimList& c, const DimList& d) {
  return ops::concat(ops::concat(a, b), ops::concat(c, d));
}

// Every dim has one role.
absl::Status check_roles(std::string_view tensor, const DimList& dims, int rank) {
  if (absl::Status s = check_dims(fmt::format("{} dims", tensor), dims, rank); !s.ok()) return s;
  if (static_cast<int>(dims.size()) == rank) return absl::OkStatus();
  return absl::InvalidArgumentError(
      fmt::format("{} dims {} must give each of the {} dims one role", tensor, to_string(dims), rank));
}

absl::Status check_lists(const Eqn& e) {
  const Conv& a = e.attrs<Conv>();
  const int out_rank = static_cast<int>(concat(a.out_shared, a.out_batch, a.out_spatial, a.out_feature).size());
  for (const absl::Status& s :
       {check_roles("lhs", concat(a.lhs_shared, a.lhs_batch, a.lhs_feature, a.lhs_spatial), e.in(0).rank()),
        check_roles("rhs", concat(a.rhs_shared, a.rhs_feature, a.rhs_spatial, a.rhs_output), e.in(1).rank()),
        check_roles("result", concat(a.out_shared, a.out_batch, a.out_spatial, a.out_feature), out_rank)})
    if (!s.ok()) return s;
  const std::size_t spatial = a.lhs_spatial.size();
  if (a.lhs_shared.size() != a.rhs_shared.size() || a.lhs_shared.size() != a.out_shared.size() ||
      a.lhs_batch.size() != a.out_batch.size() || a.lhs_feature.size() != a.rhs_feature.size() ||
      a.rhs_output.size() != a.out_feature.size() || spatial != a.rhs_spatial.size() || spatial != a.out_spatial.size())
    return absl::InvalidArgumentError("lhs, rhs and result must have the same number of dims in each role they share");
  for (const auto& [field, list] : {std::pair<std::string_view, const DimList*>("strides", &a.strides),
                                    {"low", &a.low},
                                    {"high", &a.high},
                                    {"lhs_dilation", &a.lhs_dilation},
                                    {"rhs_dilation", &a.rhs_dilation}})
    if (!list->empty() && list->size() != spatial)
      return absl::InvalidArgumentError(
          fmt::format("{} {} must have one entry for each of the {} spatial dims", field, to_string(*list), spatial));
  return absl::OkStatus();
}

// The dims that groups part.
absl::Status check_groups(const Eqn& e) {
  const Conv& a = e.attrs<Conv>();
  if (a.groups < 1 || a.batch_groups < 1 || (a.groups > 1 && a.batch_groups > 1))
    return absl::InvalidArgumentError(fmt::format(
        "groups ({}) and batch_groups ({}) must be at least 1, and one of them 1", a.groups, a.batch_groups));
  const std::int64_t parts = a.groups * a.batch_groups;
  if (parts == 1) return absl::OkStatus();
  const DimList& lhs = a.groups > 1 ? a.lhs_feature : a.lhs_batch;
  const std::string_view what = a.groups > 1 ? "features" : "batch";
  if (lhs.empty() || a.rhs_output.empty())
    return absl::InvalidArgumentError(
        fmt::format("there is no dim of {} and output to part into {} groups", what, parts));
  const std::int64_t n = e.in(0).dims()[lhs[0]], o = e.in(1).dims()[a.rhs_output[0]];
  if (n % parts || o % parts)
    return absl::InvalidArgumentError(
        fmt::format("{} groups must divide lhs {} ({}) and rhs outputs ({})", parts, what, n, o));
  return absl::OkStatus();
}

class ConvFactors {
 public:
  explicit ConvFactors(const Eqn& e)
      : a_(e.attrs<Conv>()),
        lhs_(e.in(0).type()),
        rhs_(e.in(1).type()),
        l_(lhs_.rank()),
        r_(rhs_.rank()),
        o_(lhs_.rank() + rhs_.rank()) {}

  absl::StatusOr<Factors> run() {
    const std::int64_t parts = a_.groups * a_.batch_groups;
    // The number of groups is an attribute, which a part's rule has to say anew.
    const FactorList group = parts > 1 ? FactorList{f_.add(parts, FactorClass::P, Combine::none, true)} : FactorList{};
    const auto with_group = [&](std::size_t i, bool has_group, FactorList list) {
      if (i == 0 && has_group) list.insert(list.begin(), group.begin(), group.end());
      return list;
    };
    for (std::size_t i = 0; i < a_.lhs_shared.size(); ++i) {
      const std::int64_t m = lhs_.dims()[a_.lhs_shared[i]], n = rhs_.dims()[a_.rhs_shared[i]];
      if (m != n) return mismatch("shared dims", a_.lhs_shared[i], m, a_.rhs_shared[i], n);
      l_[a_.lhs_shared[i]] = r_[a_.rhs_shared[i]] = o_[a_.out_shared[i]] = {f_.add(m)};
    }
    for (std::size_t i = 0; i < a_.lhs_batch.size(); ++i) {
      const std::int64_t n = lhs_.dims()[a_.lhs_batch[i]];
      o_[a_.out_batch[i]] = {f_.add(i == 0 ? n / a_.batch_groups : n)};
      l_[a_.lhs_batch[i]] = with_group(i, a_.batch_groups > 1, o_[a_.out_batch[i]]);
    }
    for (std::size_t i = 0; i < a_.lhs_feature.size(); ++i) {
      const std::int64_t m = lhs_.dims()[a_.lhs_feature[i]], n = rhs_.dims()[a_.rhs_feature[i]];
      if (m != (i == 0 ? n * a_.groups : n))
        return mismatch(a_.groups > 1 ? fmt::format("features in {} groups", a_.groups) : "features", a_.lhs_feature[i],
                        m, a_.rhs_feature[i], n);
      r_[a_.rhs_feature[i]] = {f_.add(n, FactorClass::R, Combine::sum)};
      l_[a_.lhs_feature[i]] = with_group(i, a_.groups > 1, r_[a_.rhs_feature[i]]);
    }
    for (std::size_t i = 0; i < a_.rhs_output.size(); ++i) {
      const std::int64_t n = rhs_.dims()[a_.rhs_output[i]];
      r_[a_.rhs_output[i]] = o_[a_.out_feature[i]] = with_group(i, parts > 1, {f_.add(i == 0 ? n / parts : n)});
    }
    return spatial();
  }

 private:
  static absl::Status mismatch(std::string_view what, std::int64_t lhs_dim, std::int64_t m, std::int64_t rhs_dim,
                               std::int64_t n) {
    return absl::InvalidArgumentError(
        fmt::format("{}: lhs dim {} ({}) and rhs dim {} ({}) must match", what, lhs_dim, m, rhs_dim, n));
  }

  absl::StatusOr<Factors> spatial() {
    const Slides slides = slides_of(a_, lhs_, rhs_);
    if (absl::Status status = check_slides(lhs_, slides); !status.ok()) return status;
    for (std::size_t i = 0; i < slides.size(); ++i) {
      const Slide& s = slides[i];
      FactorList& out = o_[a_.out_spatial[i]];
      if (s.is_identity()) {
        l_[s.dim] = out = {f_.add(s.extent)};
        r_[a_.rhs_spatial[i]] = {f_.add(s.size, FactorClass::N)};
        continue;
      }
      // Windows slide over lhs, or where those are longer than there are places for them, it slides over them.
      const bool slides_over = s.size > s.count();
      l_[s.dim] = {f_.add(s.extent, FactorClass::M)};
      out = {f_.add(s.count(), slides_over ? FactorClass::N : FactorClass::M)};
      r_[a_.rhs_spatial[i]] = {slides_over ? f_.add(s.size, FactorClass::R, Combine::sum, true)
                                           : f_.add(s.size, FactorClass::N)};
      f_.neighbours.emplace_back(l_[s.dim][0], (slides_over ? r_[a_.rhs_spatial[i]] : out)[0]);
    }
    o_.resize(a_.out_shared.size() + a_.out_batch.size() + a_.out_spatial.size() + a_.out_feature.size());
    f_.in = {l_, r_};
    f_.out = {o_};
    return f_;
  }

  const Conv& a_;
  Type lhs_, rhs_;
  Factors f_;
  TensorFactors l_, r_, o_;
};

absl::StatusOr<Factors> conv_factors(const Eqn& e) {
  if (absl::Status s = check_lists(e); !s.ok()) return s;
  if (absl::Status s = check_groups(e); !s.ok()) return s;
  return ConvFactors(e).run();
}

Values localize_conv(const Shard& s) {
  Conv a = s.whole.attrs<Conv>();
  Value lhs = s.operands[0];
  Slides slides = slides_of(a, s.whole.in(0).type(), s.whole.in(1).type());
  for (std::size_t i = 0; i < slides.size(); ++i) {
    Slide& slide = slides[i];
    const int from = s.factors.in[0][slide.dim][0], window = s.factors.in[1][a.rhs_spatial[i]][0],
              to = s.factors.out[0][a.out_spatial[i]][0];
    if (!s.is_split(from) || from == to) continue;
    // Part of the windows, or a part of every window.
    const Footprint want =
        s.is_split(to) ? Footprint::of_windows(s, to, -slide.low, slide.stride, slide.span(), slide.base_dilation)
                       : Footprint::of_windows(s, window, -slide.low, slide.dilation,
                                               Slide::spread_by(slide.count(), slide.stride), slide.base_dilation);
    lhs = with_halo(s, lhs, slide.dim, from, want, s.b.constant(lhs.dtype(), 0));
    slide.low = slide.high = 0;
    slide.base_dilation = 1;
  }
  set_slides(a, slides);
  if (a.groups > 1) a.groups = s.local_size(s.factors.in[0][a.lhs_feature[0]][0]);
  if (a.batch_groups > 1) a.batch_groups = s.local_size(s.factors.in[0][a.lhs_batch[0]][0]);
  return {s.b.emit(conv, {lhs, s.operands[1]}, std::move(a))};
}

// ---- transposes ----

// The leading part of dim `from`, which is [parts, rest], becomes the leading part of dim `to`.
Value move_groups(Value x, std::int64_t from, std::int64_t to, std::int64_t parts) {
  if (parts == 1) return x;
  Value y = split(x, from, parts);
  DimList perm = dim_range(0, y.rank());
  perm.erase(perm.begin() + from);
  perm.insert(perm.begin() + to, from);
  y = permute(y, perm);
  Shape merged = y.dims();
  merged[to + 1] *= parts;
  merged.erase(merged.begin() + to);
  return reshape_to(y, merged);
}

// ct convolved with rhs back to front, its features and outputs exchanged.
Value lhs_cotangent(Builder& b, const Eqn& e, Value rhs, Value ct) {
  const Conv& a = e.attrs<Conv>();
  Slides back;
  for (const Slide& s : slides_of(a, e.in(0).type(), e.in(1).type())) back.push_back(s.backward());
  const std::int64_t parts = a.groups * a.batch_groups;
  Conv c{.lhs_shared = DimList(a.out_shared),
         .lhs_batch = DimList(a.out_batch),
         .lhs_feature = DimList(a.out_feature),
         .lhs_spatial = DimList(a.out_spatial),
         .rhs_shared = a.rhs_shared,
         .rhs_feature = a.rhs_output,
         .rhs_spatial = a.rhs_spatial,
         .rhs_output = a.rhs_feature,
         .out_shared = DimList(a.lhs_shared),
         .out_batch = DimList(a.lhs_batch),
         .out_spatial = DimList(a.lhs_spatial),
         .out_feature = DimList(a.lhs_feature),
         .groups = parts,
         .precision = a.precision};
  set_slides(c, back);
  Value weights = convert_to(rhs, ct.dtype());
  if (!a.rhs_spatial.empty()) weights = b.emit(reverse, {weights}, Reverse{.dims = a.rhs_spatial});
  if (parts > 1) weights = move_groups(weights, a.rhs_output[0], a.rhs_feature[0], parts);
  const Value raw = b.emit(conv, {ct, weights}, std::move(c));
  return a.batch_groups > 1 ? move_groups(raw, a.lhs_feature[0], a.lhs_batch[0], parts) : raw;
}

// lhs convolved with ct as the window: its features are the batch, and the batch is summed.
Value rhs_cotangent(Builder& b, const Eqn& e, Value lhs, Value ct) {
  const Conv& a = e.attrs<Conv>();
  Slides over;
  for (const Slide& s : slides_of(a, e.in(0).type(), e.in(1).type())) over.push_back(s.over_results());
  Conv c{.lhs_shared = a.lhs_shared,
         .lhs_batch = a.lhs_feature,
         .lhs_feature = a.lhs_batch,
         .lhs_spatial = a.lhs_spatial,
         .rhs_shared = DimList(a.out_shared),
         .rhs_feature = DimList(a.out_batch),
         .rhs_spatial = DimList(a.out_spatial),
         .rhs_output = DimList(a.out_feature),
         .out_shared = DimList(a.rhs_shared),
         .out_batch = DimList(a.rhs_feature),
         .out_spatial = DimList(a.rhs_spatial),
         .out_feature = DimList(a.rhs_output),
         .groups = a.batch_groups,
         .batch_groups = a.groups,
         .precision = a.precision};
  set_slides(c, over);
  return b.emit(conv, {convert_to(lhs, ct.dtype()), ct}, std::move(c));
}

Values conv_transpose(Builder& b, const Eqn& e, const Values& operands, const Values& cts) {
  const int linear = operands[1] ? 0 : 1;
  Value ct;
  if (cts[0].type().num_elements() == 0 || e.in(linear).type().num_elements() == 0) ct = b.zeros(e.in(linear).type());
  else if (linear == 0) ct = convert_to(lhs_cotangent(b, e, operands[1], cts[0]), e.in(0).dtype());
  else ct = convert_to(rhs_cotangent(b, e, operands[0], cts[0]), e.in(1).dtype());
  return linear == 0 ? Values{ct, Value()} : Values{Value(), ct};
}

// ---- reference ----

// Calls f(lhs element, rhs element) for every product in the result's element at `at`; of padding the first is -1. What
// spreads lhs is no padding: all of its products are left out.
class Terms {
 public:
  Terms(const Eqn& e, const Literal& lhs, const Literal& rhs)
      : a_(e.attrs<Conv>()),
        slides_(slides_of(a_, lhs.type(), rhs.type())),
        lhs_(lhs),
        rhs_(rhs),
        lhs_strides_(strides_of(lhs.dims())),
        rhs_strides_(strides_of(rhs.dims())) {
    for (std::int64_t d : a_.rhs_feature) ranges_.push_back(rhs.dims()[d]);
    for (const Slide& s : slides_) ranges_.push_back(s.size);
    const std::int64_t parts = a_.groups * a_.batch_groups;
    if (parts > 1) outputs_of_group_ = rhs.dims()[a_.rhs_output[0]] / parts;
  }

  template <class F>
  void for_each(const DimList& at, F f) const {
    if (num_elements(ranges_) == 0) return;
    DimList i(lhs_strides_.size()), j(rhs_strides_.size());
    const std::int64_t group = outputs_of_group_ ? at[a_.out_feature[0]] / outputs_of_group_ : 0;
    for (std::size_t k = 0; k < a_.lhs_shared.size(); ++k)
      i[a_.lhs_shared[k]] = j[a_.rhs_shared[k]] = at[a_.out_shared[k]];
    for (std::size_t k = 0; k < a_.lhs_batch.size(); ++k) i[a_.lhs_batch[k]] = at[a_.out_batch[k]];
    for (std::size_t k = 0; k < a_.rhs_output.size(); ++k) j[a_.rhs_output[k]] = at[a_.out_feature[k]];
    if (a_.batch_groups > 1) i[a_.lhs_batch[0]] += group * (lhs_.dims()[a_.lhs_batch[0]] / a_.batch_groups);
    const std::size_t features = a_.rhs_feature.size();
    DimList t(ranges_.size());
    do {
      for (std::size_t k = 0; k < features; ++k) i[a_.lhs_feature[k]] = j[a_.rhs_feature[k]] = t[k];
      if (a_.groups > 1) i[a_.lhs_feature[0]] += group * rhs_.dims()[a_.rhs_feature[0]];
      bool is_inside = true, is_between = false;
      for (std::size_t k = 0; k < slides_.size(); ++k) {
        const Slide& s = slides_[k];
        const std::int64_t p = at[a_.out_spatial[k]] * s.stride + t[features + k] * s.dilation - s.low;
        is_inside = is_inside && p >= 0 && p < s.spread();
        is_between = is_between || p % s.base_dilation != 0;
        i[s.dim] = p / s.base_dilation;
        j[a_.rhs_spatial[k]] = t[features + k];
      }
      if (!is_between) f(is_inside ? flatten(i, lhs_strides_) : -1, flatten(j, rhs_strides_));
    } while (next_index(t, ranges_));
  }

 private:
  const Conv& a_;
  Slides slides_;
  const Literal &lhs_, &rhs_;
  DimList lhs_strides_, rhs_strides_;
  Shape ranges_;  // of the features, then the taps
  std::int64_t outputs_of_group_ = 0;
};

void eval_conv(const Eqn& e, std::span<const Literal> in, std::span<Literal> out) {
  const Literal &x = in[0], &y = in[1];
  if (out[0].size() == 0) return;
  const Terms terms(e, x, y);
  DimList at(out[0].dims().size());
  std::int64_t to = 0;
  do {
    double sum = 0;
    std::uint64_t int_sum = 0;  // unsigned, because integers wrap
    terms.for_each(at, [&](std::int64_t i, std::int64_t j) {
      if (is_float(x.dtype())) sum += (i < 0 ? 0 : x.get(i)) * y.get(j);
      else if (i >= 0) int_sum += static_cast<std::uint64_t>(x.get_int(i)) * static_cast<std::uint64_t>(y.get_int(j));
    });
    if (is_float(x.dtype())) out[0].set(to++, sum);
    else out[0].set_bits(to++, int_sum);
  } while (next_index(at, out[0].dims()));
}

Cost conv_cost(const Eqn& e) {
  const Conv& a = e.attrs<Conv>();
  double inner = 1;
  for (std::int64_t d : ops::concat(a.rhs_feature, a.rhs_spatial)) inner *= static_cast<double>(e.in(1).dims()[d]);
  return {.flops = 2 * inner * static_cast<double>(e.out().type().num_elements()),
          .bytes = static_cast<double>(e.in(0).type().bytes() + e.in(1).type().bytes() + e.out().type().bytes())};
}

constexpr std::string_view kBoth[] = {"lhs_shared", "rhs_shared", "out_shared"};
constexpr std::string_view kLhs[] = {"lhs_batch", "out_batch"};
constexpr std::string_view kRhs[] = {"rhs_output", "out_feature"};
constexpr BatchSlot kConvSlots[] = {
    {.operands = 0b11, .append = kBoth}, {.operands = 0b01, .append = kLhs}, {.operands = 0b10, .append = kRhs}};

}  // namespace

constinit const OpDef conv = {
    .name = "conv",
    .doc =
        "Every window of lhs times rhs, summed over features and the positions in a window (cross-correlation: rhs is "
        "not reversed). Dims have roles: see Conv in ir/ops/attrs.h. The result's spatial extents are those of the "
        "windows that fit into the padded, spread lhs. f16 and bf16 accumulate in f32 and round once to `dtype` "
        "(default: the operands'). Cotangents are computed in the result's dtype, then converted.",
    .arity = 2,
    .attrs = attrs_of<Conv>(),
    .factors = conv_factors,
    .dtypes = conv_dtypes,
    .linear = separately(0b11),
    .transpose = conv_transpose,
    .slots = kConvSlots,
    .localize = localize_conv,
    .splits = splits_rows,
    .expand = expand_conv,
    .eval = eval_conv,
    .cost = conv_cost,
    .ulp = 8,
    .samples =
        [] {
          return Samples{
              // NHWC, HWIO
              "conv f64[2, 4, 3, 2], f64[2, 2, 2, 3] {lhs_batch=[0], lhs_feature=[3], lhs_spatial=[1, 2], rhs_feature=[2], "
              "rhs_spatial=[0, 1], rhs_output=[3], out_batch=[0], out_spatial=[1, 2], out_feature=[3], low=[1, 0], high=[0, 1]}",
              "conv f32[1, 5, 6, 3], f32[3, 3, 3, 4] {lhs_batch=[0], lhs_feature=[3], lhs_spatial=[1, 2], rhs_feature=[2], "
              "rhs_spatial=[0, 1], rhs_output=[3], out_batch=[0], out_spatial=[1, 2], out_feature=[3], strides=[2, 2], "
              "low=[1, 1], high=[1, 1]}",
              // NCHW, OIHW
              "conv f32[2, 3, 4, 5], f32[2, 3, 2, 3] {lhs_batch=[0], lhs_feature=[1], lhs_spatial=[2, 3], rhs_feature=[1], "
              "rhs_spatial=[2, 3], rhs_output=[0], out_batch=[0], out_spatial=[2, 3], out_feature=[1]}",
              // one dim, every kind of dilation, and cropping
              "conv f64[2, 5, 2], f64[2, 2, 3] {lhs_batch=[0], lhs_feature=[2], lhs_spatial=[1], rhs_feature=[1], "
              "rhs_spatial=[0], rhs_output=[2], out_batch=[0], out_spatial=[1], out_feature=[2], strides=[2], low=[-1], "
              "high=[2], lhs_dilation=[3], rhs_dilation=[2]}",
              "conv f64[6, 1], f64[3, 1] {lhs_feature=[1], lhs_spatial=[0], rhs_feature=[1], rhs_spatial=[0], "
              "out_spatial=[0], strides=[2], low=[3], high=[-2]}",
              // groups
              "conv f64[2, 3, 4], f64[2, 2, 6] {lhs_batch=[0], lhs_feature=[2], lhs_spatial=[1], rhs_feature=[1], "
              "rhs_spatial=[0], rhs_output=[2], out_batch=[0], out_spatial=[1], out_feature=[2], groups=2}",
              "conv f64[4, 3, 2], f64[2, 2, 4] {lhs_batch=[0], lhs_feature=[2], lhs_spatial=[1], rhs_feature=[1], "
              "rhs_spatial=[0], rhs_output=[2], out_batch=[0], out_spatial=[1], out_feature=[2], batch_groups=2}",
              "conv f32[2, 5, 3], f32[3, 1, 3] {lhs_batch=[0], lhs_feature=[2], lhs_spatial=[1], rhs_feature=[1], "
              "rhs_spatial=[0], rhs_output=[2], out_batch=[0], out_spatial=[1], out_feature=[2], low=[1], high=[1], groups=3}",
              // a kernel for each channel, and each image
              "conv f32[2, 6, 5, 5], f32[3, 3, 1, 5] {lhs_batch=[0], lhs_feature=[3], lhs_spatial=[1, 2], rhs_feature=[2], "
              "rhs_spatial=[0, 1], rhs_output=[3], out_batch=[0], out_spatial=[1, 2], out_feature=[3], strides=[2, 2], "
              "low=[1, 1], high=[1, 1], groups=5}",
              "conv bf16[1, 6, 6], bf16[3, 1, 6] {lhs_batch=[0], lhs_feature=[2], lhs_spatial=[1], rhs_feature=[1], "
              "rhs_spatial=[0], rhs_output=[2], out_batch=[0], out_spatial=[1], out_feature=[2], rhs_dilation=[2], groups=6}",
              "conv f32[2, 4, 3], f32[2, 1, 6] {lhs_batch=[0], lhs_feature=[2], lhs_spatial=[1], rhs_feature=[1], "
              "rhs_spatial=[0], rhs_output=[2], out_batch=[0], out_spatial=[1], out_feature=[2], groups=3}",
              "conv f64[4, 3, 2], f64[2, 2, 4] {lhs_batch=[0], lhs_feature=[2], lhs_spatial=[1], rhs_feature=[1], "
              "rhs_spatial=[0], rhs_output=[2], out_batch=[0], out_spatial=[1], out_feature=[2], batch_groups=4}",
              // zeros between elements: several phases, of which some, one, or none meet anything
              "conv f64[2, 3, 4, 2], f64[3, 3, 2, 3] {lhs_batch=[0], lhs_feature=[3], lhs_spatial=[1, 2], rhs_feature=[2], "
              "rhs_spatial=[0, 1], rhs_output=[3], out_batch=[0], out_spatial=[1, 2], out_feature=[3], low=[1, 2], "
              "high=[2, -1], lhs_dilation=[2, 3]}",
              "conv f32[2, 3, 2], f32[1, 2, 3] {lhs_batch=[0], lhs_feature=[2], lhs_spatial=[1], rhs_feature=[1], "
              "rhs_spatial=[0], rhs_output=[2], out_batch=[0], out_spatial=[1], out_feature=[2], low=[1], high=[2], "
              "lhs_dilation=[3]}",
              "conv f32[1, 3, 2], f32[2, 2, 3] {lhs_batch=[0], lhs_feature=[2], lhs_spatial=[1], rhs_feature=[1], "
              "rhs_spatial=[0], rhs_output=[2], out_batch=[0], out_spatial=[1], out_feature=[2], strides=[2], low=[1], "
              "lhs_dilation=[2], rhs_dilation=[2]}",
              "conv bf16[1, 4, 2], bf16[3, 2, 2] {lhs_batch=[0], lhs_feature=[2], lhs_spatial=[1], rhs_feature=[1], "
              "rhs_spatial=[0], rhs_output=[2], out_batch=[0], out_spatial=[1], out_feature=[2], strides=[3], low=[2], high=[2], "
              "lhs_dilation=[4]}",
              // images of one element, and of none but padding; channels first of one position
              "conv f32[2, 1, 1, 3], f32[3, 3, 3, 4] {lhs_batch=[0], lhs_feature=[3], lhs_spatial=[1, 2], rhs_feature=[2], "
              "rhs_spatial=[0, 1], rhs_output=[3], out_batch=[0], out_spatial=[1, 2], out_feature=[3], low=[1, 1], "
              "high=[1, 1], lhs_dilation=[2, 1]}",
              "conv f32[2, 0, 3], f32[2, 3, 4] {lhs_batch=[0], lhs_feature=[2], lhs_spatial=[1], rhs_feature=[1], "
              "rhs_spatial=[0], rhs_output=[2], out_batch=[0], out_spatial=[1], out_feature=[2], low=[1], high=[2]}",
              "conv f32[2, 3, 2, 3], f32[4, 3, 1, 1] {lhs_batch=[0], lhs_feature=[1], lhs_spatial=[2, 3], rhs_feature=[1], "
              "rhs_spatial=[2, 3], rhs_output=[0], out_batch=[0], out_spatial=[2, 3], out_feature=[1]}",
              // shared dims, and three spatial ones
              "conv f64[3, 4, 2], f64[2, 3, 2] {lhs_shared=[0], lhs_spatial=[1], lhs_feature=[2], rhs_shared=[1], "
              "rhs_spatial=[0], rhs_feature=[2], out_shared=[1], out_spatial=[0]}",
              "conv f32[1, 3, 2, 4, 2], f32[2, 1, 3, 2, 2] {lhs_batch=[0], lhs_feature=[4], lhs_spatial=[1, 2, 3], "
              "rhs_feature=[3], rhs_spatial=[0, 1, 2], rhs_output=[4], out_batch=[0], out_spatial=[1, 2, 3], out_feature=[4]}",
              // no spatial dim, no window that fits, nothing to sum
              "conv f32[2, 3], f32[3, 4] {lhs_batch=[0], lhs_feature=[1], rhs_feature=[0], rhs_output=[1], out_batch=[0], "
              "out_feature=[1]}",
              "conv f32[2, 2, 3], f32[3, 3, 4] {lhs_batch=[0], lhs_feature=[2], lhs_spatial=[1], rhs_feature=[1], "
              "rhs_spatial=[0], rhs_output=[2], out_batch=[0], out_spatial=[1], out_feature=[2]}",
              "conv f32[2, 4, 0], f32[3, 0, 4] {lhs_batch=[0], lhs_feature=[2], lhs_spatial=[1], rhs_feature=[1], "
              "rhs_spatial=[0], rhs_output=[2], out_batch=[0], out_spatial=[1], out_feature=[2]}",
              // other dtypes
              "conv bf16[2, 5, 3], bf16[3, 3, 4] {lhs_batch=[0], lhs_feature=[2], lhs_spatial=[1], rhs_feature=[1], "
              "rhs_spatial=[0], rhs_output=[2], out_batch=[0], out_spatial=[1], out_feature=[2], dtype=f32}",
              "conv f16[1, 5, 2], f16[3, 2, 2] {lhs_batch=[0], lhs_feature=[2], lhs_spatial=[1], rhs_feature=[1], "
              "rhs_spatial=[0], rhs_output=[2], out_batch=[0], out_spatial=[1], out_feature=[2]}",
              "conv i8[1, 5, 2], i8[3, 2, 2] {lhs_batch=[0], lhs_feature=[2], lhs_spatial=[1], rhs_feature=[1], "
              "rhs_spatial=[0], rhs_output=[2], out_batch=[0], out_spatial=[1], out_feature=[2], dtype=i32}"};
        },
};

}  // namespace sheaf::ir::ops
