// Axes given per argument and per result become one per leaf, checked against the leaves' shapes.
#include "trace/mapped_axes.h"

#include <fmt/format.h>

#include "trace/by_path.h"

namespace sheaf {
namespace {

// The axis of each of these leaves.
std::vector<std::optional<int>> positions(const std::string& who, const Axis& axis, std::span<const std::string> paths,
                                          const std::string& what, Loc loc) {
  if (!axis.is_by_path) return std::vector(paths.size(), axis.position);
  std::vector<std::string> listed;
  for (const auto& [path, at] : axis.by_path) listed.push_back(path);
  std::vector<std::optional<int>> out;
  for (const int i : choose_paths(listed, paths, {.who = who, .what = what, .one = "an axis", .several = "axes"}, loc))
    out.push_back(axis.by_path[i].second.position);
  return out;
}

}  // namespace

std::vector<int> leaf_axes(const std::string& who, const detail::FlatCall& call, const std::vector<Axis>& in,
                           std::span<const LeafType> types, Loc loc) {
  const std::vector<detail::Argument> arguments = call.arguments();
  if (!in.empty() && in.size() != arguments.size())
    throw TypeError(loc, fmt::format("{}: {} axes in .in for {} arguments", who, in.size(), arguments.size()));
  const std::vector<std::string> places = leaf_places(call);
  std::vector<int> axes;
  for (std::size_t k = 0; k < arguments.size(); ++k) {
    const Axis wanted_of_all = in.empty() ? Axis(0) : in[k];
    for (const std::optional<int> wanted :
         positions(who, wanted_of_all, arguments[k].paths, fmt::format("argument {}", k), loc)) {
      const std::size_t leaf = axes.size();
      const int rank = types[leaf].type.rank();
      if (wanted && (*wanted >= rank || *wanted < -rank))
        throw ShapeError(loc, fmt::format("{}: {} is {} and has no axis {} to map", who, places[leaf],
                                          ir::to_string(types[leaf].type), *wanted));
      axes.push_back(!wanted ? -1 : *wanted < 0 ? *wanted + rank : *wanted);
    }
  }
  return axes;
}

std::int64_t mapped_size(const std::string& who, const detail::FlatCall& call, std::optional<std::int64_t> given,
                         std::span<const LeafType> types, std::span<const int> axes, Loc loc) {
  std::optional<std::int64_t> size = given;
  bool differ = false;
  for (std::size_t i = 0; i < axes.size(); ++i) {
    if (axes[i] < 0) continue;
    const std::int64_t n = types[i].type.dims()[axes[i]];
    differ |= size && *size != n;
    size = size.value_or(n);
  }
  if (differ) {
    std::string text = who + ": the mapped axes must have the same size";
    if (given) text += fmt::format(", {} as .size says", *given);
    const std::vector<std::string> places = leaf_places(call);
    for (std::size_t i = 0; i < axes.size(); ++i)
      if (axes[i] >= 0)
        text += fmt::format("\n  {}: {}, axis {}, size {}", places[i], ir::to_string(types[i].type), axes[i],
                            types[i].type.dims()[axes[i]]);
    throw ShapeError(loc, text);
  }
  if (!size) throw TypeError(loc, who + ": no argument is mapped; give .size");
  if (*size < 0 || *size >= kMaxElements)
    throw ShapeError(loc, fmt::format("{}: .size must lie in [0, {}], not {}", who, kMaxElements - 1, *size));
  return *size;
}

std::vector<LeafType> without_axes(std::vector<LeafType> types, std::span<const int> axes) {
  for (std::size_t i = 0; i < axes.size(); ++i) {
    if (axes[i] < 0) continue;
    Shape dims = types[i].type.dims();
    dims.erase(dims.begin() + axes[i]);
    types[i].type = types[i].type.with_dims(std::move(dims));
  }
  return types;
}

std::vector<int> result_axes(const std::string& who, const std::vector<Axis>& out, const Traced& t,
                             const std::vector<std::size_t>& counts, Loc loc) {
  const bool one_for_all = out.size() <= 1;
  if (!one_for_all && out.size() != counts.size())
    throw TypeError(loc, fmt::format("{}: {} axes in .out for {} results", who, out.size(), counts.size()));
  std::vector<int> axes;
  for (std::size_t k = 0; k < (one_for_all ? 1 : counts.size()); ++k) {
    const Axis axis = out.empty() ? Axis(0) : out[k];
    std::vector<std::string> paths = t.structure.paths;
    if (!one_for_all) {
      const auto begin = paths.begin() + static_cast<std::ptrdiff_t>(axes.size());
      paths = std::vector(begin, begin + static_cast<std::ptrdiff_t>(counts[k]));
      for (std::string& path : paths) path.erase(0, fmt::formatted_size("[{}]", k));
    }
    const std::string what = one_for_all ? "the result" : fmt::format("result {}", k);
    for (const std::optional<int> wanted : positions(who, axis, paths, what, loc)) {
      const int rank = t.results[axes.size()].type.rank() + 1;
      if (wanted && (*wanted >= rank || *wanted < -rank))
        throw ShapeError(loc,
                         fmt::format("{}: out axis {} is out of range for a result of rank {}", who, *wanted, rank));
      axes.push_back(!wanted ? -1 : *wanted < 0 ? *wanted + rank : *wanted);
    }
  }
  return axes;
}

}  // namespace sheaf
