// Sliding windows: a view of every window, and reductions over each. The view is what max and prod differentiate
// through; a sum of windows is its own kind of transpose, with the roles of stride and spreading exchanged.
#include <fmt/format.h>

#include <limits>

#include "ir/ops/halo.h"
#include "ir/ops/slide.h"

namespace sheaf::ir::ops {
namespace {

// Windows of more elements than this are reduced dim by dim: what a kernel reads at each position stays short.
constexpr std::int64_t kWindow = 16;

absl::StatusOr<Slides> slides_of(const SlidingWindows& a, Type x) {
  const std::size_t n = a.dims.size();
  if (a.sizes.size() != n || a.strides.size() != n || a.dilations.size() != n)
    return absl::InvalidArgumentError(
        fmt::format("sizes {}, strides {} and dilations {} must have one entry for each of dims {}", to_string(a.sizes),
                    to_string(a.strides), to_string(a.dilations), to_string(a.dims)));
  if (absl::Status s = check_dims("dims", a.dims, x.rank()); !s.ok()) return s;
  Slides slides;
  for (std::size_t m = 0; m < n; ++m) {
    const int d = static_cast<int>(a.dims[m]);
    slides.push_back(
        {.dim = d, .extent = x.dim(d), .size = a.sizes[m], .stride = a.strides[m], .dilation = a.dilations[m]});
    if (absl::Status s = check_slide(slides.back()); !s.ok()) return s;
  }
  return slides;
}

absl::StatusOr<Factors> sliding_factors(const Eqn& e) {
  const Type x = e.in(0).type();
  const absl::StatusOr<Slides> slides = slides_of(e.attrs<SlidingWindows>(), x);
  if (!slides.ok()) return slides.status();
  Factors r;
  TensorFactors in(x.rank()), out(x.rank());
  for (int d = 0; d < x.rank(); ++d) in[d] = out[d] = {r.add(x.dim(d))};
  for (const Slide& s : *slides) {
    in[s.dim] = {r.add(s.extent, FactorClass::M)};
    out[s.dim] = {r.add(s.count(), FactorClass::M)};
    r.neighbours.emplace_back(in[s.dim][0], out[s.dim][0]);
    out.push_back({r.add(s.size, FactorClass::N)});
  }
  r.in = {in};
  r.out = {out};
  return r;
}

// y[.., windows, .., taps] to the positions the taps were read at, summed; `s` is the last window's slide.
Value overlap_add(Value y, const Slide& s) {
  Builder& b = y.builder();
  const int taps = y.rank() - 1;
  const auto placed = [&](Value v, std::int64_t low, std::int64_t interior) {  // along s.dim, to the operand's extent
    const DimList zeros(v.rank(), 0);
    Pad attrs{.low = zeros, .high = zeros, .interior = zeros};
    attrs.low[s.dim] = low;
    attrs.interior[s.dim] = interior;
    attrs.high[s.dim] = s.extent - low - Slide::spread_by(v.dims()[s.dim], interior + 1);
    return b.emit(pad, {v, b.constant(v.dtype(), 0)}, std::move(attrs));
  };
  if (s.dilation == 1 && s.stride >= s.size) {  // no two windows meet: [.., windows * stride, ..]
    const Value spread = pad_dim(y, taps, 0, s.stride - s.size, 0);
    DimList perm = dim_range(0, taps);
    perm.insert(perm.begin() + s.dim + 1, taps);
    const Value beside = permute(spread, perm);
    Shape merged = y.dims();
    merged.pop_back();
    merged[s.dim] *= s.stride;
    return placed(reshape_to(beside, merged), 0, 0);
  }
  Shape one_tap = y.dims();
  one_tap.pop_back();
  Value sum;
  for (std::int64_t k = 0; k < s.size; ++k) {
    const Value tap = placed(reshape_to(slice_dim(y, taps, k, k + 1), one_tap), k * s.dilation, s.stride - 1);
    sum = sum ? sum + tap : tap;
  }
  return sum;
}

Values sliding_transpose(Builder& b, const Eqn& e, const Values&, const Values& cts) {
  const Type x = e.in(0).type();
  if (cts[0].type().num_elements() == 0) return {b.zeros(x)};
  const Slides slides = *slides_of(e.attrs<SlidingWindows>(), x);
  Value y = convert_to(cts[0], accumulator(x.dtype()));
  for (std::size_t m = slides.size(); m-- > 0;) y = overlap_add(y, slides[m]);
  return {convert_to(y, x.dtype())};
}

Values localize_sliding(const Shard& s) {
  Value x = s.operands[0];
  const Slides slides = *slides_of(s.whole.attrs<SlidingWindows>(), s.whole.in(0).type());
  for (const Slide& slide : slides) {
    const int from = s.factors.in[0][slide.dim][0], to = s.factors.out[0][slide.dim][0];
    if (!s.is_split(to)) continue;
    const Footprint want = Footprint::of_windows(s, to, 0, slide.stride, slide.span());
    x = with_halo(s, x, slide.dim, from, want, s.b.constant(x.dtype(), 0));
  }
  return s.emit({x});
}

void eval_sliding(const Eqn& e, std::span<const Literal> in, std::span<Literal> out) {
  if (out[0].size() == 0) return;
  const SlidingWindows& a = e.attrs<SlidingWindows>();
  const std::size_t rank = in[0].dims().size();
  const DimList strides = strides_of(in[0].dims());
  DimList i(out[0].dims().size());
  std::int64_t to = 0;
  do {
    DimList j(i.begin(), i.begin() + static_cast<std::ptrdiff_t>(rank));
    for (std::size_t m = 0; m < a.dims.size(); ++m)
      j[a.dims[m]] = j[a.dims[m]] * a.strides[m] + i[rank + m] * a.dilations[m];
    out[0].copy(to++, in[0], flatten(j, strides));
  } while (next_index(i, out[0].dims()));
}

// ---- reduce_window ----

bool is_logical(ReduceKind kind) { return kind == ReduceKind::and_ || kind == ReduceKind::or_; }

absl::StatusOr<std::vector<DType>> window_dtypes(const Eqn& e) {
  const ReduceKind kind = e.attrs<ReduceWindow>().kind;
  const DType t = e.in(0).dtype();
  if (is_logical(kind) ? !is_bool(t) : !is_int(t) && !is_float(t))
    return absl::InvalidArgumentError(fmt::format("{} takes {}, not {}", kReduceKindWords[static_cast<int>(kind)],
                                                  is_logical(kind) ? "bool" : "integers or floats",
                                                  to_string(e.in(0).type())));
  return std::vector<DType>{t};
}

Slides slides_of(const ReduceWindow& a, Type x) {
  Slides slides;
  for (int d = 0; d < x.rank(); ++d)
    slides.push_back({.dim = d,
                      .extent = x.dim(d),
                      .size = a.window[d],
                      .stride = a.strides[d],
                      .low = a.low[d],
                      .high = a.high[d],
                      .base_dilation = a.base_dilation[d],
                      .dilation = a.window_dilation[d]});
  return slides;
}

ReduceWindow attrs_of_slides(ReduceKind kind, const Slides& slides) {
  ReduceWindow a{.kind = kind};
  for (const Slide& s : slides) {
    a.window.push_back(s.size);
    a.strides.push_back(s.stride);
    a.low.push_back(s.low);
    a.high.push_back(s.high);
    a.base_dilation.push_back(s.base_dilation);
    a.window_dilation.push_back(s.dilation);
  }
  return a;
}

absl::StatusOr<Factors> window_factors(const Eqn& e) {
  const ReduceWindow& a = e.attrs<ReduceWindow>();
  const Type x = e.in(0).type();
  for (const auto& [field, list] : {std::pair<std::string_view, const DimList*>("window", &a.window),
                                    {"strides", &a.strides},
                                    {"low", &a.low},
                                    {"high", &a.high},
                                    {"base_dilation", &a.base_dilation},
                                    {"window_dilation", &a.window_dilation}})
    if (absl::Status s = check_length(field, *list, x.rank()); !s.ok()) return s;
  Factors r;
  TensorFactors in, out;
  const Slides slides = slides_of(a, x);
  if (absl::Status status = check_slides(x, slides); !status.ok()) return status;
  for (const Slide& s : slides) {
    in.push_back({r.add(s.extent, s.is_identity() ? FactorClass::P : FactorClass::M)});
    out.push_back(s.is_identity() ? in.back() : FactorList{r.add(s.count(), FactorClass::M)});
    if (!s.is_identity()) r.neighbours.emplace_back(in.back()[0], out.back()[0]);
  }
  r.in = {in};
  r.out = {out};
  return r;
}

// What changes nothing under `kind`.
Value identity_of(Builder& b, ReduceKind kind, DType t) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();  // saturates to the lowest and largest integer
  switch (kind) {
    case ReduceKind::sum:
    case ReduceKind::or_: return b.constant(t, 0);
    case ReduceKind::prod:
    case ReduceKind::and_: return b.constant(t, 1);
    case ReduceKind::max: return b.constant(t, -kInfinity);
    case ReduceKind::min: return b.constant(t, kInfinity);
  }
  SHEAF_CHECK(false);
}

// The slides with more than one element, or not at every place.
Slides moving(const Slides& slides) {
  Slides some;
  for (const Slide& s : slides)
    if (s.size != 1 || s.stride != 1) some.push_back(s);
  return some;
}

// All windows of x, each flattened: [windows.., elements of one].
Value flat_windows(Value x, const Slides& slides, Value fill) {
  const Value w = windows_of(pad_for(x, slides, fill), moving(slides));
  Shape flat;
  std::int64_t size = 1;
  for (const Slide& s : slides) {
    flat.push_back(s.count());
    size *= s.size;
  }
  flat.push_back(size);
  return reshape_to(w, flat);
}

// The tangent of the first element of each window, in row-major order, that equals the extreme; of a NaN: 0.
Value extreme_tangent(const Eqn& e, const Slides& slides, Value dx) {
  Builder& b = dx.builder();
  const Value x = flat_windows(e.in(0), slides, identity_of(b, e.attrs<ReduceWindow>().kind, e.in(0).dtype()));
  const int last = x.rank() - 1;
  const DimList kept = dim_range(0, last);
  const Value is_extreme = b.emit(eq, {x, broadcast_to(e.out(), x.dims(), kept)});
  const Value order = b.emit(iota, {}, Iota{.shape = x.dims(), .dim = {last}, .dtype = DType::i32});
  const Value none = b.full(order.type(), static_cast<double>(x.dims()[last]));
  const Value first = reduce_dims(b.emit(select, {is_extreme, order, none}), ReduceKind::min, {last});
  const Value is_winner = b.emit(eq, {order, broadcast_to(first, x.dims(), kept)});
  return reduce_dims(where_or_zero(is_winner, flat_windows(dx, slides, b.constant(dx.dtype(), 0))), ReduceKind::sum,
                     {last});
}

Value prod_tangent(const Eqn& e, const Slides& slides, Value dx) {
  Builder& b = dx.builder();
  const DType wide = accumulator(dx.dtype());
  const Value x = flat_windows(convert_to(e.in(0), wide), slides, b.constant(wide, 1));
  const Value d = flat_windows(convert_to(dx, wide), slides, b.constant(wide, 0));
  return convert_to(reduce_dims(product_of_others(x) * d, ReduceKind::sum, {x.rank() - 1}), dx.dtype());
}

Values window_jvp(Builder& b, const Eqn& e, const Values& tangents) {
  const ReduceWindow& a = e.attrs<ReduceWindow>();
  const Slides slides = slides_of(a, e.in(0).type());
  switch (a.kind) {
    case ReduceKind::sum: return {b.emit(reduce_window, {tangents[0]}, a)};
    case ReduceKind::prod: return {prod_tangent(e, slides, tangents[0])};
    case ReduceKind::max:
    case ReduceKind::min: return {extreme_tangent(e, slides, tangents[0])};
    case ReduceKind::and_:
    case ReduceKind::or_: return {Value()};
  }
  return {Value()};
}

Values window_transpose(Builder& b, const Eqn& e, const Values&, const Values& cts) {
  if (cts[0].type().num_elements() == 0) return {b.zeros(e.in(0).type())};
  Slides back;
  for (const Slide& s : slides_of(e.attrs<ReduceWindow>(), e.in(0).type())) back.push_back(s.backward());
  return {b.emit(reduce_window, {cts[0]}, attrs_of_slides(ReduceKind::sum, back))};
}

Values localize_window(const Shard& s) {
  Value x = s.operands[0];
  const ReduceKind kind = s.whole.attrs<ReduceWindow>().kind;
  Slides slides = slides_of(s.whole.attrs<ReduceWindow>(), s.whole.in(0).type());
  for (Slide& slide : slides) {
    const int from = s.factors.in[0][slide.dim][0], to = s.factors.out[0][slide.dim][0];
    if (!s.is_split(to) || from == to) continue;
    const Footprint want = Footprint::of_windows(s, to, -slide.low, slide.stride, slide.span(), slide.base_dilation);
    x = with_halo(s, x, slide.dim, from, want, identity_of(s.b, kind, x.dtype()));
    slide.low = slide.high = 0;
    slide.base_dilation = 1;
  }
  return {s.b.emit(reduce_window, {x}, attrs_of_slides(kind, slides))};
}

// Windows as wide as their dim are plain reductions; the others are read as views, a few elements at each place.
Values expand_window(Builder& b, const Eqn& e, const Values& operands) {
  const ReduceKind kind = e.attrs<ReduceWindow>().kind;
  const DType dtype = e.out().dtype(), wide = accumulator(dtype);
  const Slides slides = slides_of(e.attrs<ReduceWindow>(), e.in(0).type());
  Value x = pad_for(convert_to(operands[0], wide), slides, identity_of(b, kind, wide));
  DimList whole;
  Slides sliding;
  std::int64_t size = 1;
  for (const Slide& s : moving(slides)) {
    if (s.is_whole() && s.size > 1) {
      whole.push_back(s.dim);
    } else {
      sliding.push_back(s);
      size *= s.size;
    }
  }
  if (!whole.empty()) {
    Shape kept = x.dims();
    for (std::int64_t d : whole) kept[d] = 1;
    x = reshape_to(reduce_dims(x, kind, whole), kept);
  }
  const int rank = x.rank();
  const auto reduce_windows = [&](const Slides& some) {
    x = reduce_dims(windows_of(x, some), kind, dim_range(rank, static_cast<int>(some.size())));
  };
  if (size <= kWindow) {
    reduce_windows(sliding);
  } else {
    for (const Slide& s : sliding) reduce_windows({s});
  }
  return {convert_to(x, dtype)};
}

ScalarOp scalar_op_of(ReduceKind kind) {
  constexpr ScalarOp kOps[] = {ScalarOp::add, ScalarOp::mul,  ScalarOp::max,
                               ScalarOp::min, ScalarOp::and_, ScalarOp::or_};
  return kOps[static_cast<int>(kind)];
}

// Calls f(from) for every element of x in the window at `at`, in row-major order; -1 for one of the padding.
template <class F>
void for_each_in_window(const Slides& slides, const DimList& at, const DimList& strides, F f) {
  Shape sizes;
  for (const Slide& s : slides) sizes.push_back(s.size);
  DimList k(slides.size());
  do {
    std::int64_t from = 0;
    for (std::size_t d = 0; d < slides.size() && from >= 0; ++d) {
      const Slide& s = slides[d];
      const std::int64_t p = at[d] * s.stride + k[d] * s.dilation - s.low;
      const bool is_element = p >= 0 && p < s.spread() && p % s.base_dilation == 0;
      from = is_element ? from + p / s.base_dilation * strides[d] : -1;
    }
    f(from);
  } while (next_index(k, sizes));
}

void eval_window(const Eqn& e, std::span<const Literal> in, std::span<Literal> out) {
  const ReduceKind kind = e.attrs<ReduceWindow>().kind;
  const Literal& x = in[0];
  const Slides slides = slides_of(e.attrs<ReduceWindow>(), x.type());
  const DimList strides = strides_of(x.dims());
  Builder identities;
  const Literal identity = literal_of(*identity_of(identities, kind, x.dtype()).eqn());
  const ScalarFn& combine = scalar_primitive(scalar_op_of(kind), x.dtype());
  const bool is_wide = is_float(x.dtype()) && (kind == ReduceKind::sum || kind == ReduceKind::prod);
  if (out[0].size() == 0) return;
  DimList at(slides.size());
  std::int64_t to = 0;
  do {
    double total = identity.get(0);
    std::uint64_t bits = identity.bits(0);
    for_each_in_window(slides, at, strides, [&](std::int64_t from) {
      if (from < 0) return;
      if (is_wide) {
        total = kind == ReduceKind::sum ? total + x.get(from) : total * x.get(from);
      } else {
        const std::uint64_t both[] = {bits, x.bits(from)};
        bits = eval(combine, both);
      }
    });
    if (is_wide) out[0].set(to++, total);
    else out[0].set_bits(to++, bits);
  } while (next_index(at, out[0].dims()));
}

Cost window_cost(const Eqn& e) {
  double size = 1;
  for (std::int64_t n : e.attrs<ReduceWindow>().window) size *= static_cast<double>(n);
  const Type y = e.out().type();
  return {.flops = size * static_cast<double>(y.num_elements()),
          .bytes = static_cast<double>(e.in(0).type().bytes() + y.bytes())};
}

}  // namespace

constinit const OpDef sliding_windows = {
    .name = "sliding_windows",
    .doc =
        "Every window of sizes[m] elements, dilations[m] apart, along each dims[m], from every strides[m]-th element: "
        "x's dims with the number of windows, then the windows' sizes. Windows that do not fit are left out.",
    .arity = 1,
    .attrs = attrs_of<SlidingWindows>(),
    .factors = sliding_factors,
    .linear = jointly(1),
    .transpose = sliding_transpose,
    .localize = localize_sliding,
    .splits = splits_rows,
    .lower = [](const Eqn& e) -> Lowering {
      const SlidingWindows& a = e.attrs<SlidingWindows>();
      return lowering::Windows{.dims = a.dims, .strides = a.strides, .dilations = a.dilations};
    },
    .eval = eval_sliding,
    .samples =
        [] {
          return Samples{"sliding_windows f64[5, 2] {dims=[0], sizes=[3], strides=[1], dilations=[1]}",
                         "sliding_windows f64[7] {dims=[0], sizes=[2], strides=[3], dilations=[1]}",
                         "sliding_windows f64[2, 8] {dims=[1], sizes=[3], strides=[2], dilations=[2]}",
                         "sliding_windows f32[4, 5] {dims=[1, 0], sizes=[2, 3], strides=[1, 1], dilations=[1, 1]}",
                         "sliding_windows bf16[5] {dims=[0], sizes=[3], strides=[1], dilations=[1]}",
                         "sliding_windows f16[4] {dims=[0], sizes=[2], strides=[2], dilations=[1]}",
                         "sliding_windows i32[2, 3] {dims=[1], sizes=[4], strides=[1], dilations=[1]}",
                         "sliding_windows bool[4] {dims=[0], sizes=[1], strides=[2], dilations=[1]}",
                         "sliding_windows f32[3] {dims=[], sizes=[], strides=[], dilations=[]}"};
        },
};

constinit const OpDef reduce_window = {
    .name = "reduce_window",
    .doc =
        "Reduces every window of x by `kind`: sum, prod, max, min (integers and floats), and, or (bool). Along each dim "
        "base_dilation - 1 identities go between elements, `low` before and `high` after them (negative: cropped); "
        "windows of `window` elements, window_dilation apart, start at every strides-th place where they fit. Sums and "
        "products of f16 and bf16 accumulate in f32 and round once. A NaN wins max and min. The derivative of max and "
        "min is that of the first element of the window, in row-major order, that equals the result; that of prod is "
        "exact at zeros.",
    .arity = 1,
    .attrs = attrs_of<ReduceWindow>(),
    .factors = window_factors,
    .dtypes = window_dtypes,
    .linear_when = [](const Eqn& e) { return e.attrs<ReduceWindow>().kind == ReduceKind::sum ? jointly(1) : Linear{}; },
    .jvp = window_jvp,
    .transpose = window_transpose,
    .localize = localize_window,
    .splits = splits_rows,
    .expand = expand_window,
    .eval = eval_window,
    .cost = window_cost,
    .ulp = 8,
    .samples =
        [] {
          return Samples{
              "reduce_window f64[2, 4, 4] {window=[1, 2, 2], strides=[1, 2, 2], low=[0, 0, 0], high=[0, 0, 0], "
              "base_dilation=[1, 1, 1], window_dilation=[1, 1, 1]}",
              "reduce_window f32[5, 3] {window=[3, 2], strides=[2, 1], low=[1, 0], high=[1, -1], base_dilation=[1, 1], "
              "window_dilation=[1, 1]}",
              "reduce_window f64[5] {window=[2], strides=[2], low=[1], high=[2], base_dilation=[2], window_dilation=[3]}",
              "reduce_window bf16[6] {window=[3], strides=[1], low=[1], high=[1], base_dilation=[1], window_dilation=[1]}",
              "reduce_window f16[6] {window=[6], strides=[1], low=[0], high=[0], base_dilation=[1], window_dilation=[1]}",
              "reduce_window f32[6, 7] {window=[5, 5], strides=[1, 2], low=[0, 0], high=[0, 0], base_dilation=[1, 1], "
              "window_dilation=[1, 1]}",
              "reduce_window f32[2] {window=[3], strides=[1], low=[0], high=[0], base_dilation=[1], window_dilation=[1]}",
              "reduce_window f32[0] {window=[2], strides=[1], low=[1], high=[1], base_dilation=[1], window_dilation=[1]}",
              "reduce_window f64[5, 4] {kind=max, window=[3, 2], strides=[2, 2], low=[1, 0], high=[1, 0], "
              "base_dilation=[1, 1], window_dilation=[1, 1]}",
              "reduce_window f32[4, 6] {kind=max, window=[2, 2], strides=[2, 2], low=[0, 0], high=[0, 0], "
              "base_dilation=[1, 1], window_dilation=[1, 1]}",
              "reduce_window bf16[5] {kind=max, window=[2], strides=[1], low=[0], high=[1], base_dilation=[1], "
              "window_dilation=[1]}",
              "reduce_window i32[5] {kind=max, window=[3], strides=[1], low=[1], high=[1], base_dilation=[1], "
              "window_dilation=[1]}",
              "reduce_window f64[6] {kind=min, window=[3], strides=[1], low=[0], high=[0], base_dilation=[1], "
              "window_dilation=[2]}",
              "reduce_window u8[2, 5] {kind=min, window=[2, 2], strides=[1, 2], low=[0, 1], high=[0, 0], "
              "base_dilation=[1, 1], window_dilation=[1, 1]}",
              "reduce_window f64[5] {kind=prod, window=[3], strides=[1], low=[1], high=[0], base_dilation=[1], "
              "window_dilation=[1]}",
              "reduce_window f16[4] {kind=prod, window=[2], strides=[2], low=[0], high=[0], base_dilation=[1], "
              "window_dilation=[1]}",
              "reduce_window bool[5] {kind=or, window=[2], strides=[1], low=[1], high=[0], base_dilation=[1], "
              "window_dilation=[1]}",
              "reduce_window bool[4] {kind=and, window=[2], strides=[2], low=[1], high=[1], base_dilation=[1], "
              "window_dilation=[1]}"};
        },
};

}  // namespace sheaf::ir::ops
