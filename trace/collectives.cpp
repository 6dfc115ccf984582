// Collectives as equations. One over the axes of a mesh is one equation, and so is one over an axis of a vmap; where
// axes of both kinds go together, it is taken apart into those, or, where that cannot be, goes through all values.
#include "sheaf/collectives.h"

#include <fmt/format.h>

#include <algorithm>

#include "ir/manual.h"
#include "ir/ops/attrs.h"
#include "ir/ops/rules.h"
#include "trace/apply.h"
#include "trace/axes.h"
#include "trace/messages.h"
#include "trace/recorder.h"

namespace sheaf {
namespace {

ir::Type type_of(const Operand& x) { return x.array() ? x.array()->node()->type : ir::Type(x.dtype(), {}); }

// One equation over axes of one kind; along those of a mesh the operand is made to vary, unless it is a sum yet.
template <class A>
Array collective(std::string_view who, const ir::OpDef& op, Operand x, const AxesInScope& axes, A attrs) {
  const Loc loc = UserLine::or_own(x.loc());
  check_all_meet(axes, who, loc);
  attrs.axes = axes.names();
  return apply1(who, RuleKey().add(attrs.axes[0]), {x}, loc, [&](ir::Builder& b, const ir::Values& v) -> ir::Values {
    const ir::Axes varying = ir::without(axes.manual(), v[0].type().manual().unreduced);
    return {emit1(b, op, {ir::varied(v[0], varying)}, attrs)};
  });
}

bool is_one_equation(const AxesInScope& axes) { return axes.axes.size() == 1 || axes.all_manual(); }

AxesInScope only(const NamedAxis& axis) { return {.axes = {axis}, .size = axis.size}; }

// The axes by kind: of vmaps first, each alone, then those of a mesh along which x is unreduced, then its others.
std::vector<AxesInScope> by_kind(const AxesInScope& axes, const Operand& x) {
  std::vector<AxesInScope> groups;
  AxesInScope unreduced, others;
  for (const NamedAxis& a : axes.axes) {
    if (a.kind != NamedAxis::Kind::manual) {
      groups.push_back(only(a));
      continue;
    }
    AxesInScope& group = ir::along(type_of(x).manual(), a.name) == Along::unreduced ? unreduced : others;
    group.axes.push_back(a);
    group.size *= a.size;
  }
  for (AxesInScope* group : {&unreduced, &others})
    if (!group->axes.empty()) groups.push_back(std::move(*group));
  return groups;
}

std::string axes_text(const AxisNames& axes) {
  std::string text;
  for (const std::string& name : axes.names) text += fmt::format("{}\"{}\"", text.empty() ? "" : ", ", name);
  return (axes.names.size() == 1 ? "axis " : "axes ") + text;
}

Array reduced(std::string_view who, Operand x, const AxisNames& names, ir::ReduceKind kind) {
  const Loc loc = UserLine::or_own(x.loc());
  const AxesInScope axes = axes_in_scope(names, who, loc);
  if (axes.size == 0 && kind != ir::ReduceKind::sum)
    throw ShapeError(
        loc, fmt::format("{}: {} has no examples, of which none is the largest or smallest", who, axes_text(names)));
  Array y = to_array(x);
  for (const AxesInScope& group : by_kind(axes, x))
    y = collective(who, ir::ops::all_reduce, Operand(y, loc), group, ir::ops::AllReduce{.kind = kind});
  return y;
}

int checked_dim(std::string_view who, int dim, int rank, Loc loc) {
  if (dim < -rank || dim >= rank)
    throw ShapeError(loc, fmt::format("{}: dim {} is out of range for a result of rank {}", who, dim, rank));
  return dim < 0 ? dim + rank : dim;
}

// Dims `dim` and the next as one.
Array merged(const Array& x, int dim) {
  Shape dims = x.shape();
  dims[dim] *= dims[dim + 1];
  dims.erase(dims.begin() + dim + 1);
  return reshape(x, dims);
}

Array gathered(std::string_view who, Operand x, const AxisNames& names, const AllGather& options) {
  const Loc loc = UserLine::or_own(x.loc());
  const UserLine line(loc);
  const AxesInScope axes = axes_in_scope(names, who, loc);
  const int dim = checked_dim(who, options.dim, x.rank() + !options.tiled, loc);
  ir::ops::AllGather attrs{.dim = dim, .tiled = options.tiled, .to = options.to};
  if (is_one_equation(axes)) {
    attrs.size = axes.size;
    return collective(who, ir::ops::all_gather, x, axes, attrs);
  }
  // The minor axis first: each further one is major to what there is.
  Array y = to_array(x);
  for (std::size_t i = axes.axes.size(); i-- > 0;) {
    attrs.size = axes.axes[i].size;
    y = collective(who, ir::ops::all_gather, y, only(axes.axes[i]), attrs);
    if (!options.tiled && i + 1 < axes.axes.size()) y = merged(y, dim);
  }
  return y;
}

void check_divides(std::string_view who, const Array& x, int dim, const AxisNames& names, std::int64_t size,
                   bool is_tiled, Loc loc) {
  const std::int64_t extent = x.shape()[dim];
  if (is_tiled ? size > 0 && extent % size == 0 : extent == size) return;
  const Named named{"operand", &x};
  throw ShapeError(
      loc, fmt::format("{}: dim {} must {} the size of {}, {}{}", who, dim, is_tiled ? "be a multiple of" : "have",
                       axes_text(names), size, describe({&named, 1})));
}

// What the one at `sources[i]` holds, at i; zeros where that is -1.
Array picked(Operand x, const AxisNames& names, const std::vector<std::int64_t>& sources, Loc loc) {
  const UserLine line(loc);
  const Array table =
      apply1("ppermute", RuleKey().add(std::span(sources)), {}, loc, [&](ir::Builder& b, const ir::Values&) {
        ir::Literal literal(ir::Type(i32, {std::ssize(sources)}));
        for (std::int64_t i = 0; i < std::ssize(sources); ++i) literal.set_int(i, sources[i]);
        return ir::Values{b.constant(literal)};
      });
  const Array source = take(table, axis_index(names, loc));
  const Array all = gathered("ppermute", x, names, {});
  return where(source >= 0, take(all, maximum(source, 0)), zeros_like(x));
}

// Row i of `split` of what everyone holds, i being the own position, side by side along `concat`.
Array exchanged(Operand x, const AxisNames& names, const AllToAll& options, std::int64_t size, Loc loc) {
  const UserLine line(loc);
  Array all = gathered("all_to_all", x, names, {});  // [from, ..]
  const int split = options.split + 1;
  if (options.tiled) {
    Shape dims = all.shape();
    dims.insert(dims.begin() + split, size);
    dims[split + 1] /= size;
    all = reshape(all, dims);
  }
  const Array own = take(all, axis_index(names, loc), split);  // [from, ..]
  const Array placed = moveaxis(own, 0, options.concat);
  return options.tiled ? merged(placed, options.concat) : placed;
}

}  // namespace

Array psum(Operand x, const AxisNames& axes) {
  return reduced("psum", is_bool(x.dtype()) ? Operand(convert(x, i32), x.loc()) : x, axes, ir::ReduceKind::sum);
}
Array pmax(Operand x, const AxisNames& axes) { return reduced("pmax", x, axes, ir::ReduceKind::max); }
Array pmin(Operand x, const AxisNames& axes) { return reduced("pmin", x, axes, ir::ReduceKind::min); }

Array pmean(Operand x, const AxisNames& axes) {
  const Loc loc = UserLine::or_own(x.loc());
  const std::int64_t size = axes_in_scope(axes, "pmean", loc).size;
  const UserLine line(loc);
  return psum(x, axes) / static_cast<double>(size);
}

Array all_gather(Operand x, const AxisNames& axes, int dim) { return gathered("all_gather", x, axes, {.dim = dim}); }
Array all_gather(Operand x, const AxisNames& axes, const AllGather& options) {
  return gathered("all_gather", x, axes, options);
}
Started all_gather_start(Operand x, const AxisNames& axes, const AllGather& options) {
  return Started(gathered("all_gather_start", x, axes, options));
}

Array psum_scatter(Operand x, const AxisNames& names, const PsumScatter& options) {
  const Loc loc = UserLine::or_own(x.loc());
  const UserLine line(loc);
  const AxesInScope axes = axes_in_scope(names, "psum_scatter", loc);
  const int dim = checked_axis("psum_scatter", x, options.dim, loc);
  Array y = to_array(x);
  check_divides("psum_scatter", y, dim, names, axes.size, options.tiled, loc);
  ir::ops::ReduceScatter attrs{.size = axes.size, .dim = dim, .tiled = options.tiled};
  if (is_one_equation(axes)) return collective("psum_scatter", ir::ops::reduce_scatter, x, axes, attrs);
  // The major axis first: what is left of it holds the blocks of the others.
  attrs.tiled = true;
  for (const NamedAxis& axis : axes.axes) {
    attrs.size = axis.size;
    y = collective("psum_scatter", ir::ops::reduce_scatter, y, only(axis), attrs);
  }
  return options.tiled ? y : squeeze(y, {dim});
}

Array ppermute(Operand x, const AxisNames& names, const std::vector<std::pair<std::int64_t, std::int64_t>>& pairs) {
  const Loc loc = UserLine::or_own(x.loc());
  const AxesInScope axes = axes_in_scope(names, "ppermute", loc);
  ir::ops::Ppermute attrs;
  std::vector<std::int64_t> sources(axes.size, -1);
  for (const auto& [from, to] : pairs) {
    if (from < 0 || from >= axes.size || to < 0 || to >= axes.size)
      throw ShapeError(loc, fmt::format("ppermute: the pair ({}, {}) is out of range for {} of size {}", from, to,
                                        axes_text(names), axes.size));
    if (sources[to] >= 0) throw ShapeError(loc, fmt::format("ppermute: example {} gets two values", to));
    if (std::find(attrs.sources.begin(), attrs.sources.end(), from) != attrs.sources.end())
      throw ShapeError(loc, fmt::format("ppermute: example {} gives its value to two", from));
    sources[to] = from;
    attrs.sources.push_back(from);
    attrs.targets.push_back(to);
  }
  if (!is_one_equation(axes)) return picked(x, names, sources, loc);
  return collective("ppermute", ir::ops::ppermute, x, axes, std::move(attrs));
}

Array all_to_all(Operand x, const AxisNames& axes, int split, int concat) {
  return all_to_all(x, axes, {.split = split, .concat = concat});
}
Array all_to_all(Operand x, const AxisNames& names, const AllToAll& options) {
  const Loc loc = UserLine::or_own(x.loc());
  const AxesInScope axes = axes_in_scope(names, "all_to_all", loc);
  const int split = checked_axis("all_to_all", x, options.split, loc);
  const int concat = checked_axis("all_to_all", x, options.concat, loc);
  check_divides("all_to_all", to_array(x), split, names, axes.size, options.tiled, loc);
  if (!is_one_equation(axes)) return exchanged(x, names, {split, concat, options.tiled}, axes.size, loc);
  return collective("all_to_all", ir::ops::all_to_all, x, axes,
                    ir::ops::AllToAll{.size = axes.size, .split = split, .concat = concat, .tiled = options.tiled});
}

Array axis_index(const AxisNames& names, Loc own) {
  const Loc loc = UserLine::or_own(own);
  const UserLine line(loc);
  const AxesInScope axes = axes_in_scope(names, "axis_index", loc);
  const auto index = [&](const AxesInScope& of) {
    const ir::ops::AxisIndex attrs{.axes = of.names(), .manual = of.all_manual()};
    return apply1("axis_index", RuleKey().add(attrs.axes[0]), {}, loc, [&](ir::Builder& b, const ir::Values&) {
      return ir::Values{emit1(b, ir::ops::axis_index, {}, attrs)};
    });
  };
  if (is_one_equation(axes)) return index(axes);
  Array all = index(only(axes.axes[0]));
  for (std::size_t i = 1; i < axes.axes.size(); ++i) all = all * axes.axes[i].size + index(only(axes.axes[i]));
  return all;
}

std::int64_t axis_size(const AxisNames& axes, Loc own) {
  return axes_in_scope(axes, "axis_size", UserLine::or_own(own)).size;
}

Array pscatter(Operand x, const AxisNames& names, const Pscatter& options) {
  const Loc loc = UserLine::or_own(x.loc());
  const UserLine line(loc);
  const AxesInScope axes = axes_in_scope(names, "pscatter", loc);
  const int dim = checked_axis("pscatter", x, options.dim, loc);
  Array y = to_array(x);
  check_divides("pscatter", y, dim, names, axes.size, options.tiled, loc);
  ir::ops::Pscatter attrs{.axes = axes.names(), .size = axes.size, .dim = dim, .tiled = options.tiled};
  if (axes.all_manual())
    return apply1("pscatter", RuleKey().add(attrs.axes[0]), {x}, loc, [&](ir::Builder& b, const ir::Values& v) {
      return ir::Values{emit1(b, ir::ops::pscatter, v, attrs)};
    });
  if (!options.tiled) return take(y, axis_index(names, loc), dim);
  Shape blocks = y.shape();
  blocks.insert(blocks.begin() + dim, axes.size);
  blocks[dim + 1] /= axes.size;
  return take(reshape(y, blocks), axis_index(names, loc), dim);
}

Array pcast(Operand x, const AxisNames& axes, const Pcast& options) {
  const Loc loc = UserLine::or_own(x.loc());
  ir::Axes manual = axes_in_scope(axes, "pcast", loc).manual();
  if (options.to == Along::varying) manual = ir::without(std::move(manual), type_of(x).varying());
  if (manual.empty()) return to_array(x);
  const ir::ops::Pcast attrs{.axes = std::move(manual), .to = options.to};
  return apply1("pcast", RuleKey(), {x}, loc,
                [&](ir::Builder& b, const ir::Values& v) { return ir::Values{emit1(b, ir::ops::pcast, v, attrs)}; });
}

std::vector<Array> detail::gathered_rows(const Operand& x, const AxisNames& axes) {
  const Loc loc = UserLine::or_own(x.loc());
  const UserLine line(loc);
  if (axes_in_scope(axes, "preduce", loc).size == 0)
    throw ShapeError(loc, fmt::format("preduce: {} has no examples to combine", axes_text(axes)));
  const Array all = gathered("preduce", x, axes, {.to = Along::invarying});
  std::vector<Array> rows;
  for (std::int64_t i = 0; i < all.shape()[0]; ++i) rows.push_back(all[i]);
  return rows;
}

}  // namespace sheaf
