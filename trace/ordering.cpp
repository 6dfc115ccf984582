// Functions that pick elements by data: take, windows at computed places, one-hot rows, and sorting.
#include <fmt/format.h>

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

using Dims = std::vector<std::int64_t>;

void check_integer(std::string_view name, const Operand& indices) {
  if (is_int(indices.dtype())) return;
  const Named named{"indices", indices.array()};
  throw TypeError(UserLine::or_own(indices.loc()),
                  fmt::format("{}: indices must be integers{}", name, describe({&named, 1})));
}

void check_starts(std::string_view name, const Operand& x, const Operand& starts) {
  check_integer(name, starts);
  if (starts.shape() == Shape{x.rank()}) return;
  const Named named[] = {{"operand", x.array()}, {"starts", starts.array()}};
  throw ShapeError(UserLine::or_own(x.loc()), fmt::format("{}: starts must have the shape [{}], one integer per dim{}",
                                                          name, x.rank(), describe(named)));
}

void check_window(std::string_view name, const Operand& starts, const Shape& shape, const Shape& window, Loc loc) {
  std::vector<PositionRange> ranges;
  for (std::size_t d = 0; d < shape.size(); ++d)
    ranges.push_back({.axis = static_cast<std::int64_t>(d), .extent = shape[d], .window = window[d]});
  check_positions(name, to_array(starts), ranges, loc);
}

void fill_dims(Dims& dims, int rank) {
  for (int d = 0; d < rank; ++d) dims.push_back(d);
}

}  // namespace

Array take(Operand x, Operand indices, int axis, const Indexing& options) {
  const int dim = checked_axis("take", x, axis, x.loc());
  check_integer("take", indices);
  const Array array = to_array(x);
  std::vector<Index> index(static_cast<std::size_t>(dim), Index(slice(), x.loc()));
  index.emplace_back(to_array(indices), x.loc());
  return read_index("take", array, plan_index("take", array, index), options, x.loc());
}

Array take_along_axis(Operand x, Operand indices, int axis, const Indexing& options) {
  const int dim = checked_axis("take_along_axis", x, axis, x.loc());
  check_integer("take_along_axis", indices);
  Shape a = x.shape(), b = indices.shape();
  if (a.size() == b.size()) a[dim] = b[dim] = 0;
  if (a != b) {
    const Named named[] = {{"operand", x.array()}, {"indices", indices.array()}};
    throw ShapeError(UserLine::or_own(x.loc()),
                     fmt::format("take_along_axis: the shapes must agree in all dims but {}{}", dim, describe(named)));
  }
  if (options.mode.value_or(OutOfRange::promise) == OutOfRange::promise) {
    const PositionRange range{.axis = dim, .extent = x.shape()[dim]};
    check_positions("take_along_axis", to_array(indices), {&range, 1}, x.loc());
  }
  return compose1("take_along_axis", RuleKey().add(std::int64_t{dim}).add(key_of(options)), {x, indices}, x.loc(),
                  [&](std::span<const Array> in) {
                    const std::int64_t extent = in[0].shape()[dim];
                    const Array wrapped = from_front(in[1], extent, position_dtype(in[1].dtype(), extent));
                    ir::ops::Gather g;
                    set_options(g, "take_along_axis", options, in[0].dtype(), x.loc());
                    for (int d = 0; d < in[0].rank(); ++d) {
                      g.slice_sizes.push_back(1);
                      if (d == dim) continue;
                      g.operand_batch.push_back(d);
                      g.indices_batch.push_back(d);
                    }
                    g.collapsed.push_back(dim);
                    g.start_index_map.push_back(dim);
                    g.index_dim.push_back(in[1].rank());
                    return apply1("take_along_axis", RuleKey().add(std::int64_t{dim}).add(key_of(options)),
                                  {in[0], expand_dims(wrapped, {-1})}, {},
                                  [&](ir::Builder& builder, const ir::Values& v) -> ir::Values {
                                    return {emit1(builder, ir::ops::gather, v, g)};
                                  });
                  });
}

Array dynamic_slice(Operand x, Operand starts, const Shape& sizes) {
  check_starts("dynamic_slice", x, starts);
  const Shape shape = x.shape();
  bool fits = sizes.size() == shape.size();
  for (std::size_t d = 0; fits && d < sizes.size(); ++d) fits = sizes[d] >= 0 && sizes[d] <= shape[d];
  if (!fits) {
    const Named named{"operand", x.array()};
    throw ShapeError(UserLine::or_own(x.loc()), fmt::format("dynamic_slice: a window of {} does not fit into {}{}",
                                                            to_string(sizes), to_string(shape), describe({&named, 1})));
  }
  if (shape.empty()) return to_array(x);
  check_window("dynamic_slice", starts, shape, sizes, x.loc());
  return apply1("dynamic_slice", RuleKey().add(sizes), {x, starts}, x.loc(),
                [&](ir::Builder& b, const ir::Values& in) -> ir::Values {
                  ir::ops::DynamicSlice attrs{.sizes = sizes};
                  fill_dims(attrs.dims, in[0].rank());
                  attrs.index_dim.push_back(0);
                  return {emit1(b, ir::ops::dynamic_slice, in, std::move(attrs))};
                });
}

Array dynamic_update_slice(Operand x, Operand update, Operand starts) {
  check_starts("dynamic_update_slice", x, starts);
  const Shape shape = x.shape(), window = update.shape();
  bool fits = window.size() == shape.size();
  for (std::size_t d = 0; fits && d < window.size(); ++d) fits = window[d] <= shape[d];
  if (!fits) {
    const Named named[] = {{"operand", x.array()}, {"update", update.array()}};
    throw ShapeError(UserLine::or_own(x.loc()),
                     fmt::format("dynamic_update_slice: an update of {} does not fit into {}{}", to_string(window),
                                 to_string(shape), describe(named)));
  }
  if (shape.empty()) return convert(update, x.dtype());
  check_window("dynamic_update_slice", starts, shape, window, x.loc());
  const Operand both[] = {x, update};
  check_fits("dynamic_update_slice", both, x.dtype());
  return apply1("dynamic_update_slice", RuleKey(), {x, Input(update, x.dtype()), starts}, x.loc(),
                [&](ir::Builder& b, const ir::Values& in) -> ir::Values {
                  ir::ops::DynamicUpdateSlice attrs;
                  fill_dims(attrs.dims, in[0].rank());
                  attrs.index_dim.push_back(0);
                  return {emit1(b, ir::ops::dynamic_update_slice, in, std::move(attrs))};
                });
}

Array one_hot(Operand x, std::int64_t classes, DType dtype) {
  check_integer("one_hot", x);
  if (classes < 0) throw ShapeError(UserLine::or_own(x.loc()), fmt::format("one_hot: {} classes", classes));
  return compose1(
      "one_hot", RuleKey().add(classes).add(static_cast<std::int64_t>(dtype)), {x}, x.loc(),
      [&](std::span<const Array> in) { return convert(expand_dims(in[0], {-1}) == arange(classes), dtype); });
}

std::vector<Array> sort_together(const std::vector<Array>& operands, int axis, int num_keys, Loc loc) {
  if (operands.empty()) throw ShapeError(UserLine::or_own(loc), "sort_together: no arrays");
  const int dim = checked_axis("sort_together", Operand(operands[0], loc), axis, loc);
  if (num_keys < 1 || num_keys > static_cast<int>(operands.size()))
    throw ShapeError(UserLine::or_own(loc),
                     fmt::format("sort_together: {} keys of {} arrays", num_keys, operands.size()));
  std::vector<Input> inputs;
  for (const Array& x : operands) inputs.emplace_back(Operand(x, loc));
  return apply("sort_together", RuleKey().add(std::int64_t{dim}).add(std::int64_t{num_keys}), inputs, loc,
               [&](ir::Builder& b, const ir::Values& in) {
                 return emit(b, ir::ops::sort, in,
                             std::make_shared<const ir::ops::Sort>(ir::ops::Sort{.dim = {dim}, .num_keys = num_keys}));
               });
}

Array sort(Operand x, int axis) {
  const int dim = checked_axis("sort", x, axis, x.loc());
  return apply1("sort", RuleKey().add(std::int64_t{dim}), {x}, x.loc(),
                [&](ir::Builder& b, const ir::Values& in) -> ir::Values {
                  return {emit1(b, ir::ops::sort, in, ir::ops::Sort{.dim = {dim}})};
                });
}

TopK top_k(Operand x, std::int64_t k, int axis) {
  const int dim = checked_axis("top_k", x, axis, x.loc());
  const Input inputs[] = {x};
  const std::vector<Array> both = apply(
      "top_k", RuleKey().add(std::int64_t{dim}).add(k), inputs, x.loc(), [&](ir::Builder& b, const ir::Values& in) {
        return emit(b, ir::ops::top_k, in, std::make_shared<const ir::ops::TopK>(ir::ops::TopK{.dim = {dim}, .k = k}));
      });
  return {both[0], both[1]};
}

Array argsort(Operand x, int axis) {
  const int dim = checked_axis("argsort", x, axis, x.loc());
  return compose1("argsort", RuleKey().add(std::int64_t{dim}), {x}, x.loc(),
                  [&](std::span<const Array> in) { return sort_together({in[0], iota(in[0].shape(), dim)}, dim)[1]; });
}

}  // namespace sheaf
