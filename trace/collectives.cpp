// Collectives as equations, and the named axes they may go over.
#include "sheaf/collectives.h"

#include <fmt/format.h>

#include "ir/ops/attrs.h"
#include "ir/ops/rules.h"
#include "trace/apply.h"
#include "trace/axes.h"
#include "trace/messages.h"
#include "trace/recorder.h"

namespace sheaf {
namespace {

struct NamedAxis {
  std::string name;
  std::int64_t size;
};

std::vector<NamedAxis>& axes() {
  thread_local std::vector<NamedAxis> open;
  return open;
}

template <class A>
Array collective(std::string_view who, const ir::OpDef& op, Operand x, A attrs) {
  const Loc loc = UserLine::or_own(x.loc());
  return apply1(who, RuleKey().add(attrs.axes[0]), {x}, loc,
                [&](ir::Builder& b, const ir::Values& v) -> ir::Values { return {emit1(b, op, {v[0]}, attrs)}; });
}

Array reduced(std::string_view who, Operand x, const std::string& axis, ir::ReduceKind kind) {
  const Loc loc = UserLine::or_own(x.loc());
  if (size_of_axis(axis, who, loc) == 0 && kind != ir::ReduceKind::sum)
    throw ShapeError(
        loc, fmt::format("{}: axis \"{}\" has no examples, of which none is the largest or smallest", who, axis));
  return collective(who, ir::ops::all_reduce, x, ir::ops::AllReduce{.axes = {axis}, .kind = kind});
}

}  // namespace

AxisScope::AxisScope(std::string name, std::int64_t size) : is_open_(!name.empty()) {
  if (is_open_) axes().push_back({std::move(name), size});
}
AxisScope::~AxisScope() {
  if (is_open_) axes().pop_back();
}

std::int64_t size_of_axis(const std::string& axis, std::string_view who, Loc loc) {
  std::string known;
  for (std::size_t i = axes().size(); i-- > 0;) {
    if (axes()[i].name == axis) return axes()[i].size;
    known += fmt::format("{}\"{}\"", known.empty() ? "" : ", ", axes()[i].name);
  }
  throw TypeError(loc, fmt::format("{}: no enclosing vmap has an axis \"{}\"; {}", who, axis,
                                   known.empty() ? "give one .axis_name" : "there is " + known));
}

Array psum(Operand x, const std::string& axis) { return reduced("psum", x, axis, ir::ReduceKind::sum); }
Array pmax(Operand x, const std::string& axis) { return reduced("pmax", x, axis, ir::ReduceKind::max); }
Array pmin(Operand x, const std::string& axis) { return reduced("pmin", x, axis, ir::ReduceKind::min); }

Array pmean(Operand x, const std::string& axis) {
  const Loc loc = UserLine::or_own(x.loc());
  const std::int64_t size = size_of_axis(axis, "pmean", loc);
  const UserLine line(loc);
  return psum(x, axis) / static_cast<double>(size);
}

Array all_gather(Operand x, const std::string& axis, int dim) {
  const Loc loc = UserLine::or_own(x.loc());
  const std::int64_t size = size_of_axis(axis, "all_gather", loc);
  const int rank = x.rank() + 1;
  if (dim < -rank || dim >= rank)
    throw ShapeError(loc, fmt::format("all_gather: dim {} is out of range for a result of rank {}", dim, rank));
  return collective("all_gather", ir::ops::all_gather, x,
                    ir::ops::AllGather{.axes = {axis}, .size = size, .dim = dim < 0 ? dim + rank : dim});
}

Array ppermute(Operand x, const std::string& axis, const std::vector<std::pair<std::int64_t, std::int64_t>>& pairs) {
  const Loc loc = UserLine::or_own(x.loc());
  const std::int64_t size = size_of_axis(axis, "ppermute", loc);
  ir::ops::Ppermute attrs{.axes = {axis}};
  for (const auto& [from, to] : pairs) {
    if (from < 0 || from >= size || to < 0 || to >= size)
      throw ShapeError(loc, fmt::format("ppermute: the pair ({}, {}) is out of range for axis \"{}\" of size {}", from,
                                        to, axis, size));
    if (std::find(attrs.targets.begin(), attrs.targets.end(), to) != attrs.targets.end())
      throw ShapeError(loc, fmt::format("ppermute: example {} gets two values", to));
    attrs.sources.push_back(from);
    attrs.targets.push_back(to);
  }
  return collective("ppermute", ir::ops::ppermute, x, std::move(attrs));
}

Array all_to_all(Operand x, const std::string& axis, int split, int concat) {
  const Loc loc = UserLine::or_own(x.loc());
  const std::int64_t size = size_of_axis(axis, "all_to_all", loc);
  split = checked_axis("all_to_all", x, split, loc);
  concat = checked_axis("all_to_all", x, concat, loc);
  const Array array = to_array(x);
  if (array.shape()[split] != size) {
    const Named named{"operand", &array};
    throw ShapeError(loc, fmt::format("all_to_all: dim {} must have the size of axis \"{}\", {}{}", split, axis, size,
                                      describe({&named, 1})));
  }
  return collective("all_to_all", ir::ops::all_to_all, x,
                    ir::ops::AllToAll{.axes = {axis}, .size = size, .split = split, .concat = concat});
}

Array axis_index(const std::string& axis, Loc own) {
  const Loc loc = UserLine::or_own(own);
  size_of_axis(axis, "axis_index", loc);
  return apply1("axis_index", RuleKey().add(axis), {}, loc, [&](ir::Builder& b, const ir::Values&) -> ir::Values {
    return {emit1(b, ir::ops::axis_index, {}, ir::ops::AxisIndex{.axes = {axis}})};
  });
}

std::int64_t axis_size(const std::string& axis, Loc own) {
  return size_of_axis(axis, "axis_size", UserLine::or_own(own));
}

}  // namespace sheaf
