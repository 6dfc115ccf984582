// xmap: one vmap per named axis, inside a map over the mesh where axes are spread. An axis that is spread is split
// twice, over devices and then over the examples of each, and its name stands for both.
#include "sheaf/xmap.h"

#include <fmt/format.h>

#include <algorithm>

#include "passes/transforms.h"
#include "trace/axes.h"
#include "trace/mapped_axes.h"
#include "trace/mesh.h"
#include "trace/recorder.h"
#include "trace/shard_map.h"

namespace sheaf::detail {
namespace {

struct LogicalAxis {
  std::string name;
  std::int64_t size = 0;
  std::vector<std::string> resources = {};
  std::int64_t local = 0;  // examples of one device
  std::string mapped_name() const { return resources.empty() ? name : name + NamedAxis::kOwn; }
};

// The named axis of each dim of a leaf, "" for the function's own.
using DimNames = std::vector<std::string>;

std::string text(const XmapDims& dims) {
  std::string s;
  for (const XmapDim& d : dims.dims)
    s += (s.empty() ? "" : ", ") + (d.is_ellipsis ? "ellipsis" : d.name.empty() ? "none" : "\"" + d.name + "\"");
  return "{" + s + "}";
}

// `rank`: of the leaf, or, for results, of what the function returns.
DimNames names_of(const XmapDims& dims, int rank, bool rank_has_names, const std::string& what, Loc loc) {
  int named = 0, own = 0, ellipses = 0;
  for (const XmapDim& d : dims.dims) ++(d.is_ellipsis ? ellipses : d.name.empty() ? own : named);
  const int own_rank = rank_has_names ? rank - named : rank;
  if (ellipses > 1) throw TypeError(loc, fmt::format("xmap: the dims {} of {} have two ellipses", text(dims), what));
  if (own_rank < own || (ellipses == 0 && own_rank != own))
    throw ShapeError(loc, fmt::format("xmap: the dims {} of {} do not fit its rank {}", text(dims), what, rank));
  DimNames names;
  for (const XmapDim& d : dims.dims) {
    if (d.is_ellipsis) names.insert(names.end(), own_rank - own, "");
    else names.push_back(d.name);
    if (!d.name.empty() && std::count(names.begin(), names.end(), d.name) > 1)
      throw TypeError(loc, fmt::format("xmap: the dims {} of {} have \"{}\" twice", text(dims), what, d.name));
  }
  return names;
}

class Xmap {
 public:
  Xmap(const FlatCall& call, const XmapOptions& options, Loc loc)
      : call_(call), options_(options), loc_(loc), types_(leaf_types(call)) {
    read_arguments();
    for (const auto& [name, size] : options.axis_sizes) see(name, size, ".axis_sizes");
    for (const auto& [name, axes] : options.axis_resources) spread(name, axes.names);
    for (LogicalAxis& axis : axes_) {
      check_is_no_mesh_axis(axis.name, "xmap", loc);
      if (axis.resources.empty()) axis.local = axis.size;
    }
  }

  std::vector<Array> run(Structure& result, ResultCounts result_counts) {
    Traced t = traced();
    in_.resize(t.function->params().size());
    for (std::size_t i = 0; i < in_.size(); ++i)
      if (in_[i].empty()) in_[i].resize(t.function->params()[i].type().rank());
    read_results(t, result_counts(t.structure));
    const ir::FunctionRef f = mapped(t);
    const std::vector<Array> inputs = inputs_of(call_, t);
    const std::vector<std::string> places = result_places(t);
    std::vector<ir::Type> whole = t.function->param_types();
    for (std::size_t i = 0; i < types_.size(); ++i) whole[i] = types_[i].type;
    result = std::move(t.structure);
    Map map{.who = "xmap", .mesh = options_.mesh, .manual = manual(), .in = {}, .out = {}};
    if (map.manual.empty()) return apply_function(f, inputs, loc_);
    for (const DimNames& names : in_) map.in.push_back(spec_of_dims(names));
    for (const DimNames& names : out_) map.out.push_back(spec_of_dims(names));
    return apply_map(map, checked_body(map, f, places, loc_), inputs, whole, {}, loc_);
  }

 private:
  LogicalAxis* find(const std::string& name) {
    for (LogicalAxis& axis : axes_)
      if (axis.name == name) return &axis;
    return nullptr;
  }
  const LogicalAxis* find(const std::string& name) const { return const_cast<Xmap*>(this)->find(name); }

  void see(const std::string& name, std::int64_t size, const std::string& where) {
    LogicalAxis* axis = find(name);
    if (!axis) {
      axes_.push_back({.name = name, .size = size});
      seen_at_.push_back(where);
      return;
    }
    if (axis->size != size)
      throw ShapeError(loc_, fmt::format("xmap: axis \"{}\" has size {} in {} and {} in {}", name, axis->size,
                                         seen_at_[axis - axes_.data()], size, where));
  }

  void read_arguments() {
    const std::vector<std::size_t> counts(call_.leaf_counts().begin(), call_.leaf_counts().end());
    if (options_.in.size() != counts.size())
      throw TypeError(loc_,
                      fmt::format("xmap: {} lists of dims in .in for {} arguments", options_.in.size(), counts.size()));
    const std::vector<std::string> places = leaf_places(call_);
    for (std::size_t k = 0; k < counts.size(); ++k)
      for (std::size_t i = 0; i < counts[k]; ++i) {
        const ir::Type type = types_[in_.size()].type;
        const std::string& place = places[in_.size()];
        in_.push_back(names_of(options_.in[k], type.rank(), true, place, loc_));
        for (int d = 0; d < type.rank(); ++d)
          if (!in_.back()[d].empty()) see(in_.back()[d], type.dims()[d], place);
      }
  }

  void spread(const std::string& name, const std::vector<std::string>& resources) {
    LogicalAxis* axis = find(name);
    if (!axis)
      throw TypeError(loc_,
                      fmt::format("xmap: .axis_resources has \"{}\", which no argument and no .axis_sizes has", name));
    if (!options_.mesh) throw ShardingError(loc_, "xmap: .axis_resources needs a mesh: .mesh");
    std::int64_t ways = 1;
    for (const std::string& r : resources) {
      if (const ir::Axes taken = manual_axes(); std::find(taken.begin(), taken.end(), r) != taken.end())
        throw ShardingError(loc_, fmt::format("xmap: the mesh axis \"{}\" is taken by the map around it", r));
      ways *= options_.mesh.size(r, loc_);
      for (const LogicalAxis& other : axes_)
        if (std::find(other.resources.begin(), other.resources.end(), r) != other.resources.end())
          throw ShardingError(
              loc_, fmt::format("xmap: the mesh axis \"{}\" is given to \"{}\" and to \"{}\"", r, other.name, name));
    }
    if (axis->size % ways != 0)
      throw ShardingError(
          loc_, fmt::format("xmap: axis \"{}\" of size {} does not divide over {} devices", name, axis->size, ways));
    axis->resources = resources;
    axis->local = axis->size / ways;
  }

  std::vector<std::string> manual() const {
    std::vector<std::string> all;
    for (const LogicalAxis& axis : axes_) all.insert(all.end(), axis.resources.begin(), axis.resources.end());
    return all;
  }

  // The function, written for what the named axes leave.
  Traced traced() const {
    std::vector<LeafType> leaves = types_;
    for (std::size_t i = 0; i < leaves.size(); ++i) {
      Shape dims;
      ir::Axes varying = leaves[i].type.varying();
      for (std::size_t d = 0; d < in_[i].size(); ++d) {
        if (in_[i][d].empty()) dims.push_back(leaves[i].type.dims()[d]);
        else varying = ir::joined(varying, find(in_[i][d])->resources);
      }
      leaves[i].type = leaves[i].type.with_dims(std::move(dims)).with_varying(varying);
    }
    std::vector<NamedAxis> names;
    for (const LogicalAxis& axis : axes_) {
      std::vector<std::string> parts = axis.resources;
      parts.push_back(axis.mapped_name());
      names.push_back({axis.mapped_name(), axis.local});
      if (!axis.resources.empty()) names.push_back({axis.name, axis.size, NamedAxis::Kind::logical, std::move(parts)});
    }
    const std::vector<std::string> spread_axes = manual();
    std::optional<MapScope> map;
    if (!spread_axes.empty()) map.emplace(options_.mesh, spread_axes);
    const AxisScope scope(std::move(names));
    return trace_call(call_, {.what = "xmap", .name = "xmap", .loc = loc_}, leaves);
  }

  void read_results(const Traced& t, const std::vector<std::size_t>& counts) {
    const bool one_for_all = options_.out.size() == 1;
    if (!one_for_all && options_.out.size() != counts.size())
      throw TypeError(loc_,
                      fmt::format("xmap: {} lists of dims in .out for {} results", options_.out.size(), counts.size()));
    const std::vector<std::string> places = result_places(t);
    for (std::size_t k = 0; k < options_.out.size(); ++k)
      for (std::size_t i = 0; i < (one_for_all ? t.results.size() : counts[k]); ++i) {
        const std::string& place = places[out_.size()];
        out_.push_back(names_of(options_.out[k], t.results[out_.size()].type.rank(), false, place, loc_));
        for (const std::string& name : out_.back())
          if (!name.empty() && !find(name))
            throw TypeError(loc_, fmt::format("xmap: {} has the axis \"{}\", which no argument and no .axis_sizes has",
                                              place, name));
      }
  }

  // Where axis `a` is among the dims that are there once axes 0 to a are; -1: the leaf lacks it.
  int position(const DimNames& names, std::size_t a) const {
    int at = 0;
    for (const std::string& name : names) {
      if (name == axes_[a].name) return at;
      const LogicalAxis* axis = name.empty() ? nullptr : find(name);
      if (!axis || axis - axes_.data() < static_cast<std::ptrdiff_t>(a)) ++at;
    }
    return -1;
  }

  // One vmap after the other.
  ir::FunctionRef mapped(const Traced& t) const {
    ir::FunctionRef f = t.function;
    for (std::size_t a = 0; a < axes_.size(); ++a) {
      std::vector<int> in, out;
      for (const DimNames& names : in_) in.push_back(position(names, a));
      for (const DimNames& names : out_) out.push_back(position(names, a));
      const passes::MappedAxis axis(axes_[a].local, axes_[a].mapped_name());
      const passes::Batch batch = passes::batch(f, in, axis);
      for (std::size_t j = 0; j < out.size(); ++j)
        if (out[j] < 0 && batch.out_dims[j] >= 0)
          throw ShapeError(loc_,
                           fmt::format("xmap: {} differs along \"{}\", which its dims in .out do not name: return "
                                       "psum(.., \"{}\") or another collective over it, or name it",
                                       result_places(t)[j], axes_[a].name, axes_[a].name));
      f = passes::vmap(f, in, out, axis);
    }
    return f;
  }

  PartitionSpec spec_of_dims(const DimNames& names) const {
    PartitionSpec spec;
    for (const std::string& name : names)
      spec.dims.emplace_back(name.empty() ? std::vector<std::string>{} : find(name)->resources);
    return spec;
  }

  const FlatCall& call_;
  const XmapOptions& options_;
  Loc loc_;
  std::vector<LeafType> types_;
  std::vector<LogicalAxis> axes_;
  std::vector<std::string> seen_at_;  // of each axis
  std::vector<DimNames> in_, out_;
};

}  // namespace

std::vector<Array> xmap(const FlatCall& call, const XmapOptions& options, Structure& result,
                        std::vector<std::size_t> (*result_counts)(const Structure&)) {
  return Xmap(call, options, UserLine::or_own(call.loc())).run(result, result_counts);
}

}  // namespace sheaf::detail
