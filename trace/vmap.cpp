// vmap of flat calls: the function is traced on one example and batched as a program.
#include "sheaf/vmap.h"

#include <fmt/format.h>

#include <algorithm>

#include "passes/transforms.h"
#include "trace/axes.h"
#include "trace/by_path.h"
#include "trace/messages.h"
#include "trace/recorder.h"
#include "trace/trace_call.h"

namespace sheaf::detail {
namespace {

// The axis of each of these leaves.
std::vector<std::optional<int>> positions(const Axis& axis, std::span<const std::string> paths, const std::string& what,
                                          Loc loc) {
  if (!axis.is_by_path) return std::vector(paths.size(), axis.position);
  std::vector<std::string> listed;
  for (const auto& [path, at] : axis.by_path) listed.push_back(path);
  std::vector<std::optional<int>> out;
  for (const int i :
       choose_paths(listed, paths, {.who = "vmap", .what = what, .one = "an axis", .several = "axes"}, loc))
    out.push_back(axis.by_path[i].second.position);
  return out;
}

// One mapped axis per leaf, -1 for none.
std::vector<int> leaf_axes(const FlatCall& call, const VmapOptions& options, std::span<const LeafType> types, Loc loc) {
  const std::vector<Argument> arguments = call.arguments();
  if (!options.in.empty() && options.in.size() != arguments.size())
    throw TypeError(loc, fmt::format("vmap: {} axes in .in for {} arguments", options.in.size(), arguments.size()));
  const std::vector<std::string> places = leaf_places(call);
  std::vector<int> axes;
  for (std::size_t k = 0; k < arguments.size(); ++k) {
    const Axis wanted_of_all = options.in.empty() ? Axis(0) : options.in[k];
    for (const std::optional<int> wanted :
         positions(wanted_of_all, arguments[k].paths, fmt::format("argument {}", k), loc)) {
      const std::size_t leaf = axes.size();
      const int rank = types[leaf].type.rank();
      if (wanted && (*wanted >= rank || *wanted < -rank))
        throw ShapeError(loc, fmt::format("vmap: {} is {} and has no axis {} to map", places[leaf],
                                          ir::to_string(types[leaf].type), *wanted));
      axes.push_back(!wanted ? -1 : *wanted < 0 ? *wanted + rank : *wanted);
    }
  }
  return axes;
}

std::int64_t mapped_size(const FlatCall& call, const VmapOptions& options, std::span<const LeafType> types,
                         std::span<const int> axes, Loc loc) {
  std::optional<std::int64_t> size = options.size;
  bool differ = false;
  for (std::size_t i = 0; i < axes.size(); ++i) {
    if (axes[i] < 0) continue;
    const std::int64_t n = types[i].type.dims()[axes[i]];
    differ |= size && *size != n;
    size = size.value_or(n);
  }
  if (differ) {
    std::string text = "vmap: the mapped axes must have the same size";
    if (options.size) text += fmt::format(", {} as .size says", *options.size);
    const std::vector<std::string> places = leaf_places(call);
    for (std::size_t i = 0; i < axes.size(); ++i)
      if (axes[i] >= 0)
        text += fmt::format("\n  {}: {}, axis {}, size {}", places[i], ir::to_string(types[i].type), axes[i],
                            types[i].type.dims()[axes[i]]);
    throw ShapeError(loc, text);
  }
  if (!size) throw TypeError(loc, "vmap: no argument is mapped; give .size");
  if (*size < 0 || *size >= kMaxElements)
    throw ShapeError(loc, fmt::format("vmap: .size must lie in [0, {}], not {}", kMaxElements - 1, *size));
  return *size;
}

// One out axis per result leaf, -1 for none.
std::vector<int> result_axes(const VmapOptions& options, const Traced& t, const std::vector<std::size_t>& counts,
                             Loc loc) {
  const bool one_for_all = options.out.size() <= 1;
  if (!one_for_all && options.out.size() != counts.size())
    throw TypeError(loc, fmt::format("vmap: {} axes in .out for {} results", options.out.size(), counts.size()));
  std::vector<int> axes;
  for (std::size_t k = 0; k < (one_for_all ? 1 : counts.size()); ++k) {
    const Axis axis = options.out.empty() ? Axis(0) : options.out[k];
    std::vector<std::string> paths = t.structure.paths;
    if (!one_for_all) {
      const auto begin = paths.begin() + static_cast<std::ptrdiff_t>(axes.size());
      paths = std::vector(begin, begin + static_cast<std::ptrdiff_t>(counts[k]));
      for (std::string& path : paths) path.erase(0, fmt::formatted_size("[{}]", k));
    }
    const std::string what = one_for_all ? "the result" : fmt::format("result {}", k);
    for (const std::optional<int> wanted : positions(axis, paths, what, loc)) {
      const int rank = t.results[axes.size()].type.rank() + 1;
      if (wanted && (*wanted >= rank || *wanted < -rank))
        throw ShapeError(loc, fmt::format("vmap: out axis {} is out of range for a result of rank {}", *wanted, rank));
      axes.push_back(!wanted ? -1 : *wanted < 0 ? *wanted + rank : *wanted);
    }
  }
  return axes;
}

void check_unmapped(const Traced& t, const std::vector<int>& in, const std::vector<int>& out,
                    const passes::MappedAxis& axis, Loc loc) {
  if (std::find(out.begin(), out.end(), -1) == out.end()) return;
  const passes::Batch b = passes::batch(t.function, in, axis);
  for (std::size_t j = 0; j < out.size(); ++j)
    if (out[j] < 0 && b.out_dims[j] >= 0)
      throw ShapeError(loc,
                       fmt::format("vmap: result {}{} depends on a mapped argument, so its out axis cannot be none", j,
                                   t.structure.paths[j]));
}

}  // namespace

std::vector<Array> vmap(const FlatCall& call, const VmapOptions& options, Structure& result,
                        std::vector<std::size_t> (*result_counts)(const Structure&)) {
  const Loc loc = UserLine::or_own(call.loc());
  const std::vector<LeafType> types = leaf_types(call);
  std::vector<int> in = leaf_axes(call, options, types, loc);
  const std::int64_t size = mapped_size(call, options, types, in, loc);
  std::vector<LeafType> example = types;
  for (std::size_t i = 0; i < in.size(); ++i) {
    if (in[i] < 0) continue;
    Shape dims = types[i].type.dims();
    dims.erase(dims.begin() + in[i]);
    example[i].type = types[i].type.with_dims(std::move(dims));
  }
  Traced t = [&] {
    const AxisScope scope(options.axis_name, size);
    return trace_call(call, {.what = "vmap", .name = "vmap", .loc = loc}, example);
  }();
  const passes::MappedAxis axis(size, options.axis_name);
  in.resize(t.function->params().size(), -1);
  const std::vector<int> out = result_axes(options, t, result_counts(t.structure), loc);
  check_unmapped(t, in, out, axis, loc);
  const ir::FunctionRef f = passes::vmap(t.function, in, out, axis);
  result = std::move(t.structure);
  return apply_function(f, inputs_of(call, t), loc);
}

}  // namespace sheaf::detail
