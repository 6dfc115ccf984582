// pmap: the mapped axis is split over a mesh of its own size, so that each device's part has one example along it,
// which the function gets without that axis.
#include "sheaf/pmap.h"

#include <fmt/format.h>

#include <algorithm>

#include "ir/ops/rules.h"
#include "passes/emit.h"
#include "trace/mapped_axes.h"
#include "trace/recorder.h"
#include "trace/shard_map.h"

namespace sheaf::detail {
namespace {

Mesh mesh_for(const PmapOptions& options, const std::string& axis, std::int64_t size, Loc loc) {
  const std::int64_t there = options.devices.empty() ? std::ssize(devices(loc)) : std::ssize(options.devices);
  if (size == 0) throw ShardingError(loc, "pmap: there are no examples, and so no devices to run on");
  if (options.devices.empty() ? size > there : size != there)
    throw ShardingError(loc, fmt::format("pmap: {} example{} for {} device{}: each takes one", size,
                                         size == 1 ? "" : "s", there, there == 1 ? "" : "s"));
  return options.devices.empty() ? Mesh({{axis, size}}, loc) : Mesh({{axis, size}}, options.devices, loc);
}

void check_static(const PmapOptions& options, std::span<const std::size_t> counts, Loc loc) {
  for (const int k : options.static_broadcasted) {
    if (k < 0 || k >= std::ssize(counts))
      throw TypeError(loc,
                      fmt::format("pmap: .static_broadcasted has {}, and there are {} arguments", k, counts.size()));
    if (counts[k] > 0)
      throw TypeError(loc, fmt::format("pmap: argument {} is static_broadcasted and has {} array{}, whose values no "
                                       "program can depend on: pass numbers, or give it the axis none",
                                       k, counts[k], counts[k] == 1 ? "" : "s"));
  }
}

std::vector<bool> donated_leaves(const PmapOptions& options, std::span<const std::size_t> counts, std::size_t inputs,
                                 Loc loc) {
  std::vector<bool> donated;
  for (std::size_t k = 0; k < counts.size(); ++k) {
    const bool is_listed =
        std::find(options.donate.begin(), options.donate.end(), static_cast<int>(k)) != options.donate.end();
    donated.insert(donated.end(), counts[k], is_listed);
  }
  for (const int k : options.donate)
    if (k < 0 || k >= std::ssize(counts))
      throw TypeError(loc, fmt::format("pmap: .donate has {}, and there are {} arguments", k, counts.size()));
  donated.resize(inputs, false);
  return donated;
}

PartitionSpec split_at(int dim, const std::string& axis) {
  PartitionSpec spec;
  if (dim < 0) return spec;
  spec.dims.resize(dim + 1);
  spec.dims[dim] = DimAxes(axis);
  return spec;
}

// The function of examples as one of parts, which have the mapped axis with extent 1.
ir::FunctionRef of_parts(const ir::FunctionRef& f, const std::vector<int>& in, const std::vector<int>& out) {
  ir::Builder b(f->name());
  const auto with_one = [](Shape dims, int at) {
    if (at >= 0) dims.insert(dims.begin() + at, 1);
    return dims;
  };
  ir::Values args;
  for (std::size_t i = 0; i < in.size(); ++i) {
    const ir::Value p = f->params()[i];
    args.push_back(ir::ops::reshape_to(b.param(p.type().with_dims(with_one(p.dims(), in[i])), p.name()), p.dims()));
  }
  ir::Values results = passes::inline_into(b, *f, args);
  for (std::size_t j = 0; j < out.size(); ++j)
    results[j] = ir::ops::reshape_to(results[j], with_one(results[j].dims(), out[j]));
  return b.finish(std::move(results));
}

}  // namespace

std::vector<Array> pmap(const FlatCall& call, const PmapOptions& options, Structure& result,
                        std::vector<std::size_t> (*result_counts)(const Structure&)) {
  const Loc loc = UserLine::or_own(call.loc());
  const std::string axis = options.axis_name.empty() ? "devices" : options.axis_name;
  check_static(options, call.leaf_counts(), loc);
  const std::vector<LeafType> types = leaf_types(call);
  std::vector<int> in = leaf_axes("pmap", call, options.in, types, loc);
  if (enclosing_mesh()) throw ShardingError(loc, "pmap: a function that runs on one device cannot be mapped over more");
  const std::int64_t size = mapped_size("pmap", call, {}, types, in, loc);
  Map map{.who = "pmap", .mesh = mesh_for(options, axis, size, loc), .manual = {axis}, .in = {}, .out = {}};
  std::vector<LeafType> example = without_axes(types, in);
  for (std::size_t i = 0; i < in.size(); ++i)
    if (in[i] >= 0) example[i].type = example[i].type.with_varying({axis});
  Traced t = [&] {
    const MapScope scope(map.mesh, map.manual);
    return trace_call(call, {.what = "pmap", .name = "pmap", .loc = loc}, example);
  }();
  in.resize(t.function->params().size(), -1);
  const std::vector<int> out = result_axes("pmap", options.out, t, result_counts(t.structure), loc);
  for (const int at : in) map.in.push_back(split_at(at, axis));
  for (const int at : out) map.out.push_back(split_at(at, axis));
  for (std::size_t j = 0; j < out.size(); ++j)
    if (out[j] < 0 && !t.results[j].type.varying().empty())
      throw ShardingError(loc, fmt::format("pmap: {} differs from device to device, so its out axis cannot be none: "
                                           "return psum(.., \"{}\") or another collective over it",
                                           result_places(t)[j], axis));
  std::vector<ir::Type> whole;
  for (std::size_t i = 0; i < in.size(); ++i)
    whole.push_back(i < types.size() ? types[i].type : t.function->params()[i].type());
  const ir::FunctionRef body = checked_body(map, of_parts(t.function, in, out), result_places(t), loc);
  const std::vector<Array> inputs = inputs_of(call, t);
  result = std::move(t.structure);
  return apply_map(map, body, inputs, whole, donated_leaves(options, call.leaf_counts(), inputs.size(), loc), loc);
}

}  // namespace sheaf::detail
