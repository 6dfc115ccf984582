// Reading and writing through an index: slices and reshapes where positions are fixed, gather and scatter where they
// are data.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <limits>

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
using Kind = IndexPlan::Result::Kind;

// The ranges of the plan, list dims whole; every dim is still there.
ir::Value take_ranges(ir::Builder& b, ir::Value x, const IndexPlan& plan) {
  ir::ops::Slice s;
  ir::ops::Reverse reversed;
  for (std::size_t d = 0; d < plan.dims.size(); ++d) {
    const IndexPlan::Dim& p = plan.dims[d];
    const std::int64_t last = p.start + (p.count - 1) * p.step, stride = std::abs(p.step);
    const std::int64_t low = p.count == 0 ? 0 : std::min(p.start, last),
                       high = p.count == 0 ? 0 : std::max(p.start, last) + 1;
    s.start.push_back(p.list >= 0 ? 0 : low);
    s.limit.push_back(p.list >= 0 ? x.dims()[d] : high);
    s.stride.push_back(p.list >= 0 ? 1 : stride);
    if (p.step < 0) reversed.dims.push_back(static_cast<std::int64_t>(d));
  }
  const bool is_whole = s.limit == x.dims() &&
                        std::all_of(s.start.begin(), s.start.end(), [](auto v) { return v == 0; }) &&
                        std::all_of(s.stride.begin(), s.stride.end(), [](auto v) { return v == 1; });
  if (!is_whole) x = emit1(b, ir::ops::slice, {x}, std::move(s));
  return reversed.dims.empty() ? x : emit1(b, ir::ops::reverse, {x}, std::move(reversed));
}

// Extents of the result; `lists` are those of the broadcast lists.
Shape result_shape(const IndexPlan& plan, const Shape& lists) {
  Shape shape;
  for (const IndexPlan::Result& r : plan.results) {
    if (r.kind == Kind::lists) shape.insert(shape.end(), lists.begin(), lists.end());
    else shape.push_back(r.kind == Kind::new_axis ? 1 : plan.dims[r.dim].count);
  }
  return shape;
}

Shape list_shape(const IndexPlan& plan, Loc loc) {
  std::vector<Operand> operands;
  for (const Array& l : plan.lists) operands.emplace_back(l, loc);
  return broadcast_shapes("index", operands, loc);
}

// One dtype for all positions, since they become one index vector.
DType index_dtype(const IndexPlan& plan, const Shape& shape) {
  for (std::size_t d = 0; d < plan.dims.size(); ++d)
    if (const int l = plan.dims[d].list; l >= 0 && position_dtype(plan.lists[l].dtype(), shape[d]) == i64) return i64;
  return i32;
}

// Index vectors along a new last dim.
Array index_vectors(const std::vector<Array>& lists, const Shape& shape) {
  std::vector<Array> columns;
  for (const Array& l : lists) columns.push_back(expand_dims(broadcast_to(l, shape), {-1}));
  return concatenate(columns, -1);
}

std::vector<Operand> with_lists(const Array& x, const IndexPlan& plan, Loc loc) {
  std::vector<Operand> operands{Operand(x, loc)};
  for (const Array& l : plan.lists) operands.emplace_back(l, loc);
  return operands;
}

Array read_lists(std::string_view name, const Array& x, const IndexPlan& plan, const Shape& lists,
                 std::span<const Array> list_values, const Indexing& options, Loc loc) {
  ir::ops::Gather g;
  set_options(g, name, options, x.dtype(), loc);
  const DType dtype = index_dtype(plan, x.shape());
  std::vector<Array> indices;
  for (std::size_t d = 0; d < plan.dims.size(); ++d) {
    const IndexPlan::Dim& p = plan.dims[d];
    g.slice_sizes.push_back(p.list >= 0 ? 1 : p.count);
    if (p.list < 0) continue;
    g.collapsed.push_back(static_cast<std::int64_t>(d));
    g.start_index_map.push_back(static_cast<std::int64_t>(d));
    indices.push_back(from_front(list_values[p.list], x.shape()[d], dtype));
  }
  std::int64_t position = 0;
  for (const IndexPlan::Result& r : plan.results) {
    if (r.kind == Kind::lists) position += static_cast<std::int64_t>(lists.size());
    else if (r.kind == Kind::dim) g.offset_dims.push_back(position++);
  }
  g.index_dim.push_back(static_cast<std::int64_t>(lists.size()));
  const Array vectors = index_vectors(indices, lists);
  return apply1(name, RuleKey().add(plan.key).add(key_of(options)), {x, vectors}, {},
                [&](ir::Builder& b, const ir::Values& in) -> ir::Values {
                  const ir::Value v = emit1(b, ir::ops::gather, {take_ranges(b, in[0], plan), in[1]}, g);
                  return {ir::ops::reshape_to(v, result_shape(plan, lists))};
                });
}

// One block of consecutive positions, but not everything.
bool is_block(const IndexPlan& plan) {
  const auto consecutive = [](const IndexPlan::Dim& d) { return d.step == 1 || d.count <= 1; };
  const auto whole = [](const IndexPlan::Dim& d) { return d.is_whole; };
  return plan.is_basic() && std::all_of(plan.dims.begin(), plan.dims.end(), consecutive) &&
         !std::all_of(plan.dims.begin(), plan.dims.end(), whole);
}

Shape block_shape(const IndexPlan& plan) {
  Shape shape;
  for (const IndexPlan::Dim& d : plan.dims) shape.push_back(d.count);
  return shape;
}

// Where the block starts. While tracing it is a constant; eagerly it is data, so that x[0], x[1], ... are one program.
Array block_starts(const IndexPlan& plan, Loc loc) {
  std::vector<std::int64_t> starts;
  for (const IndexPlan::Dim& d : plan.dims) starts.push_back(d.start);
  if (!Recorder::current()) return array(starts, {}, {}, loc);
  return apply1("index", RuleKey().add(starts), {}, loc, [&](ir::Builder& b, const ir::Values&) -> ir::Values {
    ir::Literal literal(ir::Type(i64, {static_cast<std::int64_t>(starts.size())}));
    for (std::size_t d = 0; d < starts.size(); ++d) literal.set_int(static_cast<std::int64_t>(d), starts[d]);
    return {b.constant(literal)};
  });
}

}  // namespace

DType position_dtype(DType list, std::int64_t extent) {
  return size_bytes(list) == 8 || list == u32 || extent > std::numeric_limits<std::int32_t>::max() ? i64 : i32;
}

Array from_front(const Array& list, std::int64_t extent, DType dtype) {
  // What i64 does not hold is as far out of range as its largest.
  const Array i = convert(list.dtype() == u64 ? minimum(list, std::numeric_limits<std::int64_t>::max()) : list, dtype);
  return is_unsigned_int(list.dtype()) ? i : where(i < 0, i + extent, i);
}

std::vector<std::int64_t> key_of(const Indexing& options) {
  const bool has_fill = options.fill.has_value();
  return {options.mode ? static_cast<std::int64_t>(*options.mode) : -1,
          has_fill ? static_cast<std::int64_t>(options.fill->kind()) : -1,
          has_fill ? std::bit_cast<std::int64_t>(options.fill->as_double()) : 0,
          has_fill ? options.fill->as_int() : 0,
          options.unique,
          options.sorted,
          options.deterministic};
}

void set_options(ir::ops::Gather& gather, std::string_view name, const Indexing& options, DType dtype, Loc loc) {
  using Mode = ir::lowering::OutOfBounds;
  constexpr Mode kModes[] = {Mode::clip, Mode::fill, Mode::promise};
  gather.mode = kModes[static_cast<int>(options.mode.value_or(OutOfRange::clip))];
  gather.deterministic = options.deterministic;
  if (gather.mode != Mode::fill || !options.fill) return;
  const Number fill = *options.fill;
  const bool is_whole = fill.kind() != Number::Kind::floating;
  if (is_int(dtype) && !(is_whole && (fill.is_above_i64() ? dtype == u64 : holds(dtype, fill.as_int()))))
    throw TypeError(UserLine::or_own(loc), fmt::format("{}: the fill value {} does not fit in {}", name,
                                                       fill.as_double(), sheaf::name(dtype)));
  ir::Literal value(ir::Type(part_dtype(dtype), {}));
  if (is_int(dtype)) value.set_int(0, fill.as_int());
  else value.set(0, fill.as_double());
  gather.has_fill = true;
  gather.fill_bits = static_cast<std::int64_t>(value.bits(0));
}

namespace {

// Positions that the user did not say what to do with.
void check_lists(std::string_view name, const Array& x, const IndexPlan& plan, const Indexing& options, Loc loc) {
  if (options.mode.value_or(OutOfRange::promise) != OutOfRange::promise) return;
  for (std::size_t d = 0; d < plan.dims.size(); ++d) {
    if (plan.dims[d].list < 0) continue;
    const PositionRange range{.axis = static_cast<std::int64_t>(d), .extent = x.shape()[d]};
    check_positions(name, plan.lists[plan.dims[d].list], {&range, 1}, loc);
  }
}

// The places that lists name, in the array: what a write promises is of these.
void check_promises(std::string_view name, const Array& x, const IndexPlan& plan, const Shape& lists,
                    const Indexing& options, Loc loc) {
  if (!checks_indices() || plan.is_basic()) return;
  std::vector<PositionRange> ranges;
  std::vector<Array> positions;
  const DType dtype = index_dtype(plan, x.shape());
  for (std::size_t d = 0; d < plan.dims.size(); ++d) {
    if (plan.dims[d].list < 0) continue;
    ranges.push_back({.axis = static_cast<std::int64_t>(d), .extent = x.shape()[d]});
    positions.push_back(from_front(plan.lists[plan.dims[d].list], x.shape()[d], dtype));
  }
  const Promise promise{.unique = options.unique, .sorted = options.sorted, .clips = options.mode == OutOfRange::clip};
  check_promise(name, index_vectors(positions, lists), ranges, promise, loc);
}

}  // namespace

Array read_index(std::string_view name, const Array& x, const IndexPlan& plan, const Indexing& options, Loc loc) {
  if (is_block(plan) && !Recorder::current() && node_of(x, loc).kind == ArrayNode::Kind::concrete) {
    const Shape shape = result_shape(plan, {});
    const Array starts = block_starts(plan, loc);
    const Operand operands[] = {Operand(x, loc), Operand(starts, loc)};
    return compose("index", RuleKey().add(block_shape(plan)).add(shape), operands, loc, [&](std::span<const Array> in) {
      return std::vector{reshape(dynamic_slice(in[0], in[1], block_shape(plan)), shape)};
    })[0];
  }
  if (plan.is_basic()) {
    return apply1("index", RuleKey().add(plan.key), {Operand(x, loc)}, loc,
                  [&](ir::Builder& b, const ir::Values& in) -> ir::Values {
                    return {ir::ops::reshape_to(take_ranges(b, in[0], plan), result_shape(plan, {}))};
                  });
  }
  const Shape lists = list_shape(plan, loc);
  check_lists(name, x, plan, options, loc);
  return compose(name, RuleKey().add(plan.key).add(key_of(options)), with_lists(x, plan, loc), loc,
                 [&](std::span<const Array> in) {
                   return std::vector{read_lists(name, in[0], plan, lists, in.subspan(1), options, loc)};
                 })[0];
}

Array Array::index(std::initializer_list<Index> index) const {
  const std::span all(index.begin(), index.size());
  return read_index("index", *this, plan_index("index", *this, all), {}, all.empty() ? made_at() : all[0].loc);
}

namespace {

Array combine(Write how, const Array& old, const Array& value) {
  switch (how) {
    case Write::set: return value;
    case Write::add: return old + value;
    case Write::mul: return old * value;
    case Write::min: return minimum(old, value);
    case Write::max: return maximum(old, value);
  }
  return value;
}

// No position occurs twice, so writing is reading, combining and putting back.
Array write_block(const Array& x, const IndexPlan& plan, const Array& value, const Array& starts, Write how) {
  const Shape block = block_shape(plan), shape = result_shape(plan, {});
  const Array old = how == Write::set ? value : reshape(dynamic_slice(x, starts, block), shape);
  const Array placed = reshape(broadcast_to(convert(combine(how, old, value), x.dtype()), shape), block);
  return dynamic_update_slice(x, placed, starts);
}

Array write_ranges(const Array& x, const IndexPlan& plan, const Array& value, Write how) {
  const Shape window = block_shape(plan), shape = result_shape(plan, {});
  const Array old = how == Write::set ? value : read_index("at", x, plan, {}, {});
  const Array placed = reshape(broadcast_to(convert(combine(how, old, value), x.dtype()), shape), window);
  if (num_elements(window) == 0) return x;
  if (window == x.shape() && std::all_of(plan.dims.begin(), plan.dims.end(), [](const auto& d) { return d.step == 1; }))
    return placed;
  // Strided: spread the values to their places, and choose by a mask spread the same way.
  return apply1("at", RuleKey().add(plan.key), {x, placed}, {},
                [&](ir::Builder& b, const ir::Values& in) -> ir::Values {
                  ir::ops::Reverse reversed;
                  ir::ops::Pad spread;
                  for (std::size_t d = 0; d < plan.dims.size(); ++d) {
                    const IndexPlan::Dim& p = plan.dims[d];
                    const std::int64_t last = p.start + (p.count - 1) * p.step, stride = std::abs(p.step);
                    if (p.step < 0) reversed.dims.push_back(static_cast<std::int64_t>(d));
                    spread.low.push_back(std::min(p.start, last));
                    spread.high.push_back(in[0].dims()[d] - 1 - std::max(p.start, last));
                    spread.interior.push_back(p.count > 1 ? stride - 1 : 0);
                  }
                  ir::Value v = in[1];
                  if (!reversed.dims.empty()) v = emit1(b, ir::ops::reverse, {v}, std::move(reversed));
                  const ir::Value mask =
                      emit1(b, ir::ops::pad, {b.full(v.type().with_dtype(bool_), 1), b.constant(bool_, 0)}, spread);
                  v = emit1(b, ir::ops::pad, {v, b.constant(v.dtype(), 0)}, spread);
                  return {emit1(b, ir::ops::select, {mask, v, in[0]})};
                });
}

ir::lowering::Scatter::Combine scatter_combine(Write how) {
  using C = ir::lowering::Scatter::Combine;
  switch (how) {
    case Write::set: return C::set;
    case Write::add: return C::add;
    case Write::mul: return C::mul;
    case Write::min: return C::min;
    case Write::max: return C::max;
  }
  return C::set;
}

// Updates are laid out as [lists, partial ranges, whole dims]; partial ranges become lists of their own.
Array write_lists(const Array& x, const IndexPlan& plan, const Array& value, Write how, const Shape& lists,
                  std::span<const Array> list_values, const Indexing& options) {
  ir::ops::Scatter s{
      .combine = scatter_combine(how), .unique = options.unique, .deterministic = options.deterministic};
  const DType dtype = index_dtype(plan, x.shape());
  Shape index_shape = lists;
  std::vector<int> partial;
  for (std::size_t d = 0; d < plan.dims.size(); ++d) {
    const IndexPlan::Dim& p = plan.dims[d];
    if (p.list < 0 && !p.is_whole) {
      partial.push_back(static_cast<int>(d));
      index_shape.push_back(p.count);
    }
  }
  s.sorted = options.sorted && num_elements(index_shape) == num_elements(lists);  // else rows start over: 0 1 0 1
  std::vector<Array> indices;
  for (std::size_t d = 0; d < plan.dims.size(); ++d) {
    const IndexPlan::Dim& p = plan.dims[d];
    if (p.is_whole && p.list < 0) continue;
    s.inserted.push_back(static_cast<std::int64_t>(d));
    s.scatter_dims.push_back(static_cast<std::int64_t>(d));
    const auto at = std::find(partial.begin(), partial.end(), static_cast<int>(d));
    Shape wide(index_shape.size(), 1);
    if (at == partial.end()) {
      Array list = from_front(list_values[p.list], x.shape()[d], dtype);
      if (options.mode == OutOfRange::clip) list = clip(list, 0, x.shape()[d] - 1);
      std::copy(list.shape().begin(), list.shape().end(),
                wide.begin() + static_cast<std::ptrdiff_t>(lists.size()) - list.rank());
      indices.push_back(reshape(list, wide));
    } else {
      wide[lists.size() + static_cast<std::size_t>(at - partial.begin())] = p.count;
      indices.push_back(reshape(convert(arange(p.count) * p.step + p.start, dtype), wide));
    }
  }
  // From the order of the result to the order of the updates.
  std::vector<int> labels;  // of the result's dims: -1 - k for dim k of the lists, else the dim
  Shape without_new;
  for (const IndexPlan::Result& r : plan.results) {
    if (r.kind == Kind::new_axis) continue;
    if (r.kind == Kind::dim) labels.push_back(r.dim), without_new.push_back(plan.dims[r.dim].count);
    for (std::size_t k = 0; r.kind == Kind::lists && k < lists.size(); ++k)
      labels.push_back(-1 - static_cast<int>(k)), without_new.push_back(lists[k]);
  }
  std::vector<int> wanted;
  for (std::size_t k = 0; k < lists.size(); ++k) wanted.push_back(-1 - static_cast<int>(k));
  wanted.insert(wanted.end(), partial.begin(), partial.end());
  for (std::size_t d = 0; d < plan.dims.size(); ++d)
    if (plan.dims[d].is_whole && plan.dims[d].list < 0) {
      s.update_window_dims.push_back(static_cast<std::int64_t>(wanted.size()));
      wanted.push_back(static_cast<int>(d));
    }
  Dims perm;
  for (const int label : wanted) perm.push_back(std::find(labels.begin(), labels.end(), label) - labels.begin());
  s.index_dim.push_back(static_cast<std::int64_t>(index_shape.size()));
  const Array full = broadcast_to(convert(value, x.dtype()), result_shape(plan, lists));
  const Array updates = transpose(reshape(full, without_new), perm);
  return apply1(
      "at", RuleKey().add(plan.key).add(static_cast<std::int64_t>(how)).add(key_of(options)),
      {x, index_vectors(indices, index_shape), updates}, {},
      [&](ir::Builder& b, const ir::Values& in) -> ir::Values { return {emit1(b, ir::ops::scatter, in, s)}; });
}

}  // namespace

Array write_index(std::string_view name, const Array& x, const IndexPlan& plan, Operand value, Write how,
                  const Indexing& options) {
  const Loc loc = value.loc();
  const Operand both[] = {Operand(x, loc), value};
  check_fits(name, both, x.dtype());
  const Shape lists = plan.is_basic() ? Shape{} : list_shape(plan, loc);
  const Shape target = result_shape(plan, lists), given = value.shape();
  bool fits = given.size() <= target.size();
  for (std::size_t d = 0; fits && d < given.size(); ++d) {
    const std::int64_t n = target[target.size() - given.size() + d];
    fits = given[d] == n || given[d] == 1;
  }
  if (!fits) {
    const Named named[] = {{"operand", &x}, {"value", value.array()}};
    throw ShapeError(UserLine::or_own(loc),
                     fmt::format("{}: a value of shape {} does not broadcast to the indexed {}{}", name,
                                 to_string(given), to_string(target), describe(named)));
  }
  if (is_block(plan)) {
    const Array starts = block_starts(plan, loc);
    const Operand operands[] = {Operand(x, loc), value, Operand(starts, loc)};
    return compose(name, RuleKey().add(block_shape(plan)).add(target), operands, loc, [&](std::span<const Array> in) {
      return std::vector{write_block(in[0], plan, in[1], in[2], how)};
    })[0];
  }
  check_lists(name, x, plan, options, loc);
  check_promises(name, x, plan, lists, options, loc);
  std::vector<Operand> operands = with_lists(x, plan, loc);
  operands.push_back(value);
  return compose(name, RuleKey().add(plan.key).add(key_of(options)), operands, loc, [&](std::span<const Array> in) {
    const Array& v = in.back();
    return std::vector{plan.is_basic()
                           ? write_ranges(in[0], plan, v, how)
                           : write_lists(in[0], plan, v, how, lists, in.subspan(1, plan.lists.size()), options)};
  })[0];
}

Array At::get(const Indexing& options, Loc loc) const {
  return read_index("at.get", x_, plan_index("at.get", x_, index_), options, loc);
}
Array At::set(Operand v, const Indexing& options) const {
  return write_index("at.set", x_, plan_index("at.set", x_, index_), v, Write::set, options);
}
Array At::add(Operand v, const Indexing& options) const {
  return write_index("at.add", x_, plan_index("at.add", x_, index_), v, Write::add, options);
}
Array At::mul(Operand v, const Indexing& options) const {
  return write_index("at.mul", x_, plan_index("at.mul", x_, index_), v, Write::mul, options);
}
Array At::min(Operand v, const Indexing& options) const {
  return write_index("at.min", x_, plan_index("at.min", x_, index_), v, Write::min, options);
}
Array At::max(Operand v, const Indexing& options) const {
  return write_index("at.max", x_, plan_index("at.max", x_, index_), v, Write::max, options);
}

}  // namespace sheaf
