// gather and scatter by dimension numbers: the ops themselves, with the modes of indexing.
#include <fmt/format.h>

#include <algorithm>

#include "ir/ops/attrs.h"
#include "ir/ops/rules.h"
#include "sheaf/ops.h"
#include "trace/apply.h"
#include "trace/debug_index.h"
#include "trace/index_plan.h"
#include "trace/messages.h"
#include "trace/promotion.h"
#include "trace/recorder.h"

namespace sheaf {
namespace {

void check_indices(std::string_view name, const Operand& indices) {
  if (is_int(indices.dtype()) && indices.rank() > 0) return;
  const Named named{"indices", indices.array()};
  throw TypeError(
      UserLine::or_own(indices.loc()),
      fmt::format("{}: indices must be integers, vectors along the last dim{}", name, describe({&named, 1})));
}

RuleKey key_of(const WindowDims& d) {
  RuleKey key;
  for (const auto* list : {&d.inside, &d.dropped, &d.starts, &d.batch, &d.indices_batch}) key.add(*list);
  return key;
}

// Where each component of an index vector may start, as far as the dims make sense; the op refuses what does not.
std::vector<PositionRange> ranges_of(const Shape& shape, const Shape& sizes, const WindowDims& dims) {
  std::vector<PositionRange> ranges;
  for (const std::int64_t d : dims.starts)
    if (d >= 0 && d < std::ssize(shape) && d < std::ssize(sizes))
      ranges.push_back({.axis = d, .extent = shape[d], .window = sizes[d], .wraps = false});
  return ranges;
}

void check_starts(std::string_view name, const Operand& indices, const std::vector<PositionRange>& ranges,
                  const WindowDims& dims, const Indexing& options, Loc loc) {
  if (options.mode.value_or(OutOfRange::promise) != OutOfRange::promise || ranges.size() != dims.starts.size()) return;
  if (!ranges.empty()) check_positions(name, to_array(indices), ranges, loc);
}

// The extents of a window per dim of x, 1 where windows lack it.
Shape window_sizes(const Shape& shape, const Shape& updates, const WindowDims& dims) {
  Shape sizes;
  std::size_t next = 0;
  const auto lists = [](const std::vector<std::int64_t>& all, std::int64_t d) {
    return std::find(all.begin(), all.end(), d) != all.end();
  };
  for (std::int64_t d = 0; d < std::ssize(shape); ++d) {
    const bool is_inside = !lists(dims.dropped, d) && !lists(dims.batch, d) && next < dims.inside.size();
    const std::int64_t at = is_inside ? dims.inside[next++] : -1;
    sizes.push_back(at >= 0 && at < std::ssize(updates) ? updates[at] : 1);
  }
  return sizes;
}

// Starts moved to where windows fit.
ir::Value clipped(ir::Builder& b, ir::Value indices, const std::vector<PositionRange>& ranges) {
  std::vector<double> last;  // a narrow dtype's largest where it does not hold them
  for (const PositionRange& r : ranges) last.push_back(static_cast<double>(r.extent - r.window));
  const ir::Literal limits(indices.dtype(), {std::ssize(last)}, last);
  const ir::Value high = ir::ops::broadcast_to(b.constant(limits), indices.dims(), {indices.rank() - 1});
  return b.emit(ir::ops::min, {b.emit(ir::ops::max, {indices, b.zeros(indices.type())}), high});
}

ir::lowering::Scatter::Combine combine_of(Combine how) {
  using C = ir::lowering::Scatter::Combine;
  constexpr C kCombines[] = {C::set, C::add, C::mul, C::min, C::max};
  return kCombines[static_cast<int>(how)];
}

}  // namespace

Array gather(Operand x, Operand indices, const WindowDims& dims, const Shape& sizes, const Indexing& options) {
  check_indices("gather", indices);
  check_starts("gather", indices, ranges_of(x.shape(), sizes, dims), dims, options, x.loc());
  ir::ops::Gather g{.offset_dims = dims.inside,
                    .collapsed = dims.dropped,
                    .start_index_map = dims.starts,
                    .operand_batch = dims.batch,
                    .indices_batch = dims.indices_batch,
                    .index_dim = {indices.rank() - 1},
                    .slice_sizes = sizes};
  set_options(g, "gather", options, x.dtype(), x.loc());
  return apply1("gather", key_of(dims).add(sizes).add(key_of(options)), {x, indices}, x.loc(),
                [&](ir::Builder& b, const ir::Values& in) { return ir::Values{emit1(b, ir::ops::gather, in, g)}; });
}

Array scatter(Operand x, Operand indices, Operand updates, const WindowDims& dims, Combine how,
              const Indexing& options) {
  check_indices("scatter", indices);
  const std::vector<PositionRange> ranges = ranges_of(x.shape(), window_sizes(x.shape(), updates.shape(), dims), dims);
  check_starts("scatter", indices, ranges, dims, options, x.loc());
  if (ranges.size() == dims.starts.size() && !ranges.empty() && indices.shape().back() == std::ssize(ranges))
    check_promise("scatter", to_array(indices), ranges,
                  {.unique = options.unique,
                   .sorted = options.sorted,
                   .clips = options.mode == OutOfRange::clip,
                   .batch = dims.indices_batch},
                  x.loc());
  const Operand both[] = {x, updates};
  check_fits("scatter", both, x.dtype());
  const ir::ops::Scatter s{.combine = combine_of(how),
                           .update_window_dims = dims.inside,
                           .inserted = dims.dropped,
                           .scatter_dims = dims.starts,
                           .operand_batch = dims.batch,
                           .indices_batch = dims.indices_batch,
                           .index_dim = {indices.rank() - 1},
                           .unique = options.unique,
                           .sorted = options.sorted,
                           .deterministic = options.deterministic};
  const bool clips = options.mode == OutOfRange::clip && ranges.size() == dims.starts.size() && !ranges.empty();
  return apply1("scatter", key_of(dims).add(static_cast<std::int64_t>(how)).add(key_of(options)),
                {x, indices, Input(updates, x.dtype())}, x.loc(), [&](ir::Builder& b, const ir::Values& in) {
                  const bool fits = in[1].dims().back() == std::ssize(ranges);
                  const ir::Value starts = clips && fits ? clipped(b, in[1], ranges) : in[1];
                  return ir::Values{emit1(b, ir::ops::scatter, {in[0], starts, in[2]}, s)};
                });
}

}  // namespace sheaf
