// Convolution and pooling: letters become the roles of dims, "SAME" becomes widths, and the rest is one equation each.
#include <fmt/format.h>

#include <algorithm>

#include "ir/ops/attrs.h"
#include "ir/ops/conv.h"
#include "sheaf/ops.h"
#include "trace/apply.h"
#include "trace/messages.h"
#include "trace/precision.h"
#include "trace/promotion.h"
#include "trace/recorder.h"

namespace sheaf {
namespace {

using List = std::vector<std::int64_t>;
using ir::ops::Slide;
using ir::ops::Slides;

[[noreturn]] void fail(std::string_view name, const std::string& what, const Operand& x,
                       const Operand* kernel = nullptr) {
  std::vector<Named> named{{kernel ? "lhs" : "operand", x.array()}};
  if (kernel) named.push_back({"rhs", kernel->array()});
  throw ShapeError(UserLine::or_own(x.loc()), fmt::format("{}: {}{}", name, what, describe(named)));
}

// ---- names of dims ----

std::string spatial_letters(std::size_t count) {
  constexpr std::string_view kLetters = "DHW";
  if (count <= 3) return std::string(kLetters.substr(3 - count));
  std::string letters;
  for (std::size_t i = 0; i < count; ++i) letters += static_cast<char>('a' + i);
  return letters;
}

// The layout given, or channels last; it has a letter for each dim, all different, `one` and `other` among them.
std::string checked_layout(std::string_view name, const std::string& given, char one, char other, bool last,
                           const Operand& x, const Operand* kernel, int rank) {
  if (given.empty()) {
    if (rank < 2) fail(name, fmt::format("there must be dims {} and {}, and any spatial ones", one, other), x, kernel);
    const std::string spatial = spatial_letters(static_cast<std::size_t>(rank - 2));
    return last ? spatial + one + other : one + spatial + other;
  }
  std::string sorted = given;
  std::sort(sorted.begin(), sorted.end());
  const bool repeats = std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end();
  const auto has = [&](char c) { return given.find(c) != std::string::npos; };
  if (repeats || !has(one) || !has(other))
    fail(
        name,
        fmt::format("the layout \"{}\" must name {} and {} once, and spatial dims by other letters", given, one, other),
        x, kernel);
  if (static_cast<int>(given.size()) != rank)
    fail(name, fmt::format("the layout \"{}\" names {} dims, not {}", given, given.size(), rank), x, kernel);
  return given;
}

std::string without(std::string layout, char one, char other) {
  std::erase_if(layout, [&](char c) { return c == one || c == other; });
  return layout;
}

std::int64_t dim_of(const std::string& layout, char letter) { return static_cast<std::int64_t>(layout.find(letter)); }

// The dims of `spatial`, letter by letter; every layout has the same letters.
List dims_of(std::string_view name, const std::string& layout, const std::string& spatial, const Operand& x,
             const Operand* kernel) {
  List dims;
  for (const char c : spatial) {
    if (layout.find(c) == std::string::npos)
      fail(name, fmt::format("the layout \"{}\" lacks the spatial dim {}", layout, c), x, kernel);
    dims.push_back(dim_of(layout, c));
  }
  return dims;
}

// ---- windows ----

std::int64_t checked_entry(std::string_view name, std::string_view field, const List& list, std::size_t i,
                           std::size_t count, const Operand& x, const Operand* kernel) {
  if (list.empty()) return 1;
  if (list.size() != count)
    fail(name, fmt::format("{} {} must have {} entries, one for each dim of the window", field, to_string(list), count),
         x, kernel);
  if (list[i] < 1) fail(name, fmt::format("{} {} must be at least 1", field, to_string(list)), x, kernel);
  return list[i];
}

// As many windows as ceil(extent / stride); the odd element goes to the end.
void pad_same(Slide& s) {
  const std::int64_t n = s.spread(), count = (n + s.stride - 1) / s.stride;
  const std::int64_t total = std::max<std::int64_t>((count - 1) * s.stride + s.span() - n, 0);
  s.low = total / 2;
  s.high = total - s.low;
}

void set_padding(std::string_view name, const Padding& padding, Slides& slides, const Operand& x,
                 const Operand* kernel) {
  if (padding.name == "VALID") return;
  if (padding.name == "SAME") {
    std::for_each(slides.begin(), slides.end(), pad_same);
    return;
  }
  if (!padding.name.empty())
    fail(name, fmt::format("the padding \"{}\" is none of \"SAME\", \"VALID\" and widths", padding.name), x, kernel);
  if (padding.widths.size() != slides.size())
    fail(name,
         fmt::format("{} widths of padding must be {}, one for each dim of the window", padding.widths.size(),
                     slides.size()),
         x, kernel);
  for (std::size_t i = 0; i < slides.size(); ++i) {
    slides[i].low = padding.widths[i].first;
    slides[i].high = padding.widths[i].second;
  }
}

RuleKey& add(RuleKey& key, const Slides& slides) {
  for (const Slide& s : slides)
    for (std::int64_t v : {std::int64_t{s.dim}, s.size, s.stride, s.low, s.high, s.base_dilation, s.dilation})
      key.add(v);
  return key;
}

Array reduce_windows(std::string_view name, ir::ReduceKind kind, const Operand& x, DType dtype, const Slides& slides) {
  RuleKey key;
  return apply1(name, add(key, slides), {Input(x, dtype)}, x.loc(), [&](ir::Builder& b, const ir::Values& in) {
    const List ones(in[0].rank(), 1), zeros(in[0].rank(), 0);
    ir::ops::ReduceWindow a{.kind = kind,
                            .window = ones,
                            .strides = ones,
                            .low = zeros,
                            .high = zeros,
                            .base_dilation = ones,
                            .window_dilation = ones};
    for (const Slide& s : slides) {
      a.window[s.dim] = s.size;
      a.strides[s.dim] = s.stride;
      a.low[s.dim] = s.low;
      a.high[s.dim] = s.high;
      a.base_dilation[s.dim] = s.base_dilation;
      a.window_dilation[s.dim] = s.dilation;
    }
    return ir::Values{emit1(b, ir::ops::reduce_window, in, std::move(a))};
  });
}

Array window_reduce(std::string_view name, ir::ReduceKind kind, const Operand& x, const Window& o) {
  const Shape shape = x.shape();
  Slides slides;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    const auto entry = [&](std::string_view field, const List& list) {
      return checked_entry(name, field, list, d, shape.size(), x, nullptr);
    };
    slides.push_back({.dim = static_cast<int>(d),
                      .extent = shape[d],
                      .size = entry("window", o.window),
                      .stride = entry("strides", o.strides),
                      .base_dilation = entry("base_dilation", o.base_dilation),
                      .dilation = entry("dilation", o.dilation)});
  }
  set_padding(name, o.padding, slides, x, nullptr);
  return reduce_windows(name, kind, x, is_bool(x.dtype()) ? i32 : x.dtype(), slides);
}

Slides pool_slides(std::string_view name, const Operand& x, const Pool& o) {
  const std::string layout = checked_layout(name, o.input, 'N', 'C', false, x, nullptr, x.rank());
  const List dims = dims_of(name, layout, without(layout, 'N', 'C'), x, nullptr);
  const List strides = o.strides.empty() ? o.window : o.strides;
  Slides slides;
  for (std::size_t i = 0; i < dims.size(); ++i)
    slides.push_back({.dim = static_cast<int>(dims[i]),
                      .extent = x.shape()[dims[i]],
                      .size = checked_entry(name, "window", o.window, i, dims.size(), x, nullptr),
                      .stride = checked_entry(name, "strides", strides, i, dims.size(), x, nullptr)});
  set_padding(name, o.padding, slides, x, nullptr);
  return slides;
}

ir::ops::Conv conv_attrs(const Operand& x, const Operand& kernel, const Conv& o) {
  const std::string_view name = "conv";
  const std::string input = checked_layout(name, o.input, 'N', 'C', false, x, &kernel, x.rank());
  const std::string weights = checked_layout(name, o.kernel, 'I', 'O', true, x, &kernel, kernel.rank());
  const std::string output =
      checked_layout(name, o.output.empty() ? input : o.output, 'N', 'C', false, x, &kernel, x.rank());
  if (input.size() != weights.size())
    fail(name, fmt::format("the kernel must have as many dims as the input, {}, not {}", input.size(), weights.size()),
         x, &kernel);
  const std::string spatial = without(input, 'N', 'C');
  ir::ops::Conv a{.lhs_batch = {dim_of(input, 'N')},
                  .lhs_feature = {dim_of(input, 'C')},
                  .lhs_spatial = dims_of(name, input, spatial, x, &kernel),
                  .rhs_feature = {dim_of(weights, 'I')},
                  .rhs_spatial = dims_of(name, weights, spatial, x, &kernel),
                  .rhs_output = {dim_of(weights, 'O')},
                  .out_batch = {dim_of(output, 'N')},
                  .out_spatial = dims_of(name, output, spatial, x, &kernel),
                  .out_feature = {dim_of(output, 'C')},
                  .groups = o.groups,
                  .batch_groups = o.batch_groups};
  Slides slides;
  for (std::size_t i = 0; i < spatial.size(); ++i) {
    const auto entry = [&](std::string_view field, const List& list) {
      return checked_entry(name, field, list, i, spatial.size(), x, &kernel);
    };
    slides.push_back({.dim = static_cast<int>(a.lhs_spatial[i]),
                      .extent = x.shape()[a.lhs_spatial[i]],
                      .size = kernel.shape()[a.rhs_spatial[i]],
                      .stride = entry("strides", o.strides),
                      .base_dilation = entry("input_dilation", o.input_dilation),
                      .dilation = entry("kernel_dilation", o.kernel_dilation)});
  }
  set_padding(name, o.padding, slides, x, &kernel);
  ir::ops::set_slides(a, slides);
  return a;
}

}  // namespace

Array conv(Operand x, Operand kernel, const Conv& o) {
  ir::ops::Conv attrs = conv_attrs(x, kernel, o);
  const Operand both[] = {x, kernel};
  const DType dtype = promote(both).dtype, computed = is_bool(dtype) ? i32 : dtype;
  if (o.dtype && *o.dtype != computed) attrs.dtype = *o.dtype;
  attrs.precision = precision_of(o.precision, computed);
  RuleKey key;
  for (const List* list : std::initializer_list<const List*>{
           &attrs.lhs_batch, &attrs.lhs_feature, &attrs.lhs_spatial, &attrs.rhs_feature, &attrs.rhs_spatial,
           &attrs.rhs_output, &attrs.out_batch, &attrs.out_spatial, &attrs.out_feature, &attrs.strides, &attrs.low,
           &attrs.high, &attrs.lhs_dilation, &attrs.rhs_dilation})
    key.add(*list);
  key.add(o.groups).add(o.batch_groups).add(static_cast<std::int64_t>(attrs.dtype));
  key.add(static_cast<std::int64_t>(attrs.precision));
  return apply1("conv", std::move(key), {Input(x, computed), Input(kernel, computed)}, x.loc(),
                [&](ir::Builder& b, const ir::Values& in) { return ir::Values{emit1(b, ir::ops::conv, in, attrs)}; });
}

Array window_sum(Operand x, const Window& o) { return window_reduce("window_sum", ir::ReduceKind::sum, x, o); }
Array window_prod(Operand x, const Window& o) { return window_reduce("window_prod", ir::ReduceKind::prod, x, o); }
Array window_max(Operand x, const Window& o) { return window_reduce("window_max", ir::ReduceKind::max, x, o); }
Array window_min(Operand x, const Window& o) { return window_reduce("window_min", ir::ReduceKind::min, x, o); }

Array max_pool(Operand x, const Pool& o) {
  return reduce_windows("max_pool", ir::ReduceKind::max, x, x.dtype(), pool_slides("max_pool", x, o));
}

Array min_pool(Operand x, const Pool& o) {
  return reduce_windows("min_pool", ir::ReduceKind::min, x, x.dtype(), pool_slides("min_pool", x, o));
}

// Sums in f32 at least; where padding does not count, the number of elements in a window is a sum of ones.
Array avg_pool(Operand x, const Pool& o) {
  const Slides slides = pool_slides("avg_pool", x, o);
  const DType dtype = floating(x.dtype());
  double size = 1;
  for (const Slide& s : slides) size *= static_cast<double>(s.size);
  RuleKey key;
  return compose1("avg_pool", add(key, slides).add(std::int64_t{o.counts_padding}), {x}, x.loc(),
                  [&](std::span<const Array> in) {
                    const auto total = [&](const Array& v) {
                      return reduce_windows("avg_pool", ir::ReduceKind::sum, v, accumulator(dtype), slides);
                    };
                    if (o.counts_padding) return convert(total(in[0]) / size, dtype);
                    return convert(total(in[0]) / total(ones_like(in[0])), dtype);
                  });
}

}  // namespace sheaf
