// shard_map: the function is traced on types of parts, and becomes the region of one equation. Arrays it captures are
// whole on every device.
#include "trace/shard_map.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "ir/ops/attrs.h"
#include "passes/emit.h"
#include "sheaf/shard_map.h"
#include "sheaf/sharding.h"
#include "trace/mapped_axes.h"
#include "trace/mesh.h"
#include "trace/recorder.h"
#include "trace/region_op.h"
#include "trace/runnable.h"

namespace sheaf {
namespace {

std::vector<Mesh>& open_meshes() {
  thread_local std::vector<Mesh> open;
  return open;
}

std::vector<NamedAxis> as_manual(const Mesh& mesh, const std::vector<std::string>& names) {
  std::vector<NamedAxis> axes;
  for (const std::string& name : names) axes.push_back({name, mesh.size(name), NamedAxis::Kind::manual});
  return axes;
}

bool has(const std::vector<std::string>& axes, const std::string& axis) {
  return std::find(axes.begin(), axes.end(), axis) != axes.end();
}

std::string quoted(const std::vector<std::string>& axes) { return fmt::format("\"{}\"", fmt::join(axes, "\", \"")); }

ir::Axes sorted_axes(const PartitionSpec& spec) {
  ir::Axes axes;
  for (const DimAxes& dim : spec.dims) axes.insert(axes.end(), dim.axes.begin(), dim.axes.end());
  std::sort(axes.begin(), axes.end());
  return axes;
}

// "shard_map: P("model") of argument 0 .W, f32[4]: why".
[[noreturn]] void fail(const Map& map, const PartitionSpec& spec, const std::string& subject, const std::string& why,
                       Loc loc) {
  throw ShardingError(loc, fmt::format("{}: {} of {}: {}", map.who, to_string(spec), subject, why));
}

void check_is_manual(const Map& map, const PartitionSpec& spec, const std::string& subject, Loc loc) {
  for (std::size_t d = 0; d < spec.dims.size(); ++d)
    for (const std::string& axis : spec.dims[d].axes)
      if (!has(map.manual, axis))
        fail(map, spec, subject,
             fmt::format("dim {} is split over \"{}\", and the function is written for {} only", d, axis,
                         quoted(map.manual)),
             loc);
}

std::vector<std::string> spec_texts(const std::vector<PartitionSpec>& specs, const std::vector<ir::Type>& types) {
  std::vector<std::string> texts;
  for (std::size_t i = 0; i < specs.size(); ++i) texts.push_back(ir::to_text(ir_spec(specs[i], types[i].rank())));
  return texts;
}

// Arrays that are on no other mesh, where the map wants them.
std::vector<Array> put(const Map& map, const ir::Function& body, std::span<const Array> inputs, Loc loc) {
  check_has_devices(map.who, map.mesh, loc);
  std::vector<const Array*> pointers;
  for (const Array& x : inputs) pointers.push_back(&x);
  mesh_of_inputs(map.who, map.mesh, pointers, [&](std::size_t i) { return input_name(body, i); }, loc);
  std::vector<Array> there;
  for (std::size_t i = 0; i < inputs.size(); ++i)
    there.push_back(device_put(inputs[i], NamedSharding{map.mesh, map.in[i]}, loc));
  return there;
}

}  // namespace

MapScope::MapScope(const Mesh& mesh, const std::vector<std::string>& manual) : axes_(as_manual(mesh, manual)) {
  open_meshes().push_back(mesh);
}
MapScope::~MapScope() { open_meshes().pop_back(); }

Mesh enclosing_mesh() { return open_meshes().empty() ? Mesh() : open_meshes().back(); }

void check_is_enclosing(const std::string& who, const Mesh& mesh, Loc loc) {
  const Mesh outer = enclosing_mesh();
  if (!outer || outer == mesh) return;
  const auto [own, around] = told_apart(mesh, outer);
  throw ShardingError(loc, fmt::format("{}: the mesh {} is not that of the shard_map around it, {}", who, own, around));
}

LeafType part_of(const Map& map, LeafType whole, const PartitionSpec& spec) {
  Shape dims = whole.type.dims();
  for (std::size_t d = 0; d < spec.dims.size(); ++d)
    for (const std::string& axis : spec.dims[d].axes) dims[d] /= map.mesh.size(axis);
  const ir::Axes varying = ir::joined(whole.type.varying(), sorted_axes(spec));
  return {whole.type.with_dims(std::move(dims)).with_varying(varying), whole.is_weak};
}

ir::FunctionRef checked_body(const Map& map, const ir::FunctionRef& f, std::span<const std::string> places, Loc loc) {
  ir::Builder b(f->name());
  ir::Values results = passes::inline_into(b, *f, passes::clone_params(b, *f, passes::Mask(f->params().size(), true)));
  for (std::size_t j = 0; j < results.size(); ++j) {
    const ir::Axes named = sorted_axes(map.out[j]);
    for (const std::string& axis : results[j].type().manual().unreduced)
      if (has(map.manual, axis))
        throw ShardingError(loc,
                            fmt::format("{}: {} is {} and yet to be summed along \"{}\": return psum(.., \"{}\") or "
                                        "psum_scatter(.., \"{}\")",
                                        map.who, places[j], ir::to_string(results[j].type()), axis, axis, axis));
    for (const std::string& axis : results[j].type().varying())
      if (!map.unchecked && has(map.manual, axis) && !has(named, axis))
        throw ShardingError(
            loc, fmt::format("{}: {} is {} and differs along \"{}\", which its spec {} does not name: return psum(.., "
                             "\"{}\") or another collective over it, or name the axis in the spec",
                             map.who, places[j], ir::to_string(results[j].type()), axis, to_string(map.out[j]), axis));
    results[j] = ir::varied(results[j], named);
  }
  return b.finish(std::move(results));
}

std::vector<Array> apply_map(const Map& map, const ir::FunctionRef& body, std::span<const Array> inputs,
                             std::span<const ir::Type> types, const std::vector<bool>& donated, Loc loc) {
  note_mesh(map.mesh, map.who, loc);
  ir::ops::ShardMap attrs{.mesh = ir::to_string(ir_mesh(map.mesh)),
                          .in = spec_texts(map.in, body->param_types()),
                          .out = spec_texts(map.out, body->result_types()),
                          .manual = map.manual,
                          .unchecked = map.unchecked};
  const std::vector<Array> there =
      Recorder::current() ? std::vector(inputs.begin(), inputs.end()) : put(map, *body, inputs, loc);
  const auto equation = [&](ir::Builder& b, const ir::Values& in) {
    return b.emit_all(&ir::ops::shard_map, in, std::make_shared<const ir::ops::ShardMap>(std::move(attrs)), {body});
  };
  return apply_program(map.who, there, types, {}, loc, equation, donated);
}

std::vector<std::string> result_places(const Traced& t) {
  std::vector<std::string> places;
  const std::vector<std::string>& paths = t.structure.paths;
  for (const std::string& path : paths) places.push_back(path.empty() ? "the result" : "result " + path);
  return places;
}

namespace detail {
namespace {

// The axes the function is written for.
std::vector<std::string> manual_of(const ShardMapOptions& options, Loc loc) {
  if (!options.mesh) throw ShardingError(loc, "shard_map: give it a mesh: .mesh");
  check_is_enclosing("shard_map", options.mesh, loc);
  const ir::Axes taken = manual_axes();
  std::vector<std::string> manual;
  for (const std::string& axis : options.axis_names) {
    options.mesh.size(axis, loc);
    if (has(taken, axis))
      throw ShardingError(
          loc, fmt::format("shard_map: .axis_names has \"{}\", which the shard_map around it has already", axis));
    if (has(manual, axis)) throw ShardingError(loc, fmt::format("shard_map: .axis_names has \"{}\" twice", axis));
    manual.push_back(axis);
  }
  if (options.axis_names.empty())
    for (const MeshAxis& axis : options.mesh.axes())
      if (!has(taken, axis.name)) manual.push_back(axis.name);
  return manual;
}

// Of each leaf of each argument.
std::vector<PartitionSpec> argument_specs(const Map& map, const FlatCall& call, const std::vector<Specs>& in,
                                          std::span<const LeafType> types, Loc loc) {
  const std::vector<Argument> arguments = call.arguments();
  if (in.size() != arguments.size())
    throw TypeError(loc, fmt::format("shard_map: {} spec{} in .in for {} argument{}", in.size(),
                                     in.size() == 1 ? "" : "s", arguments.size(), arguments.size() == 1 ? "" : "s"));
  const std::vector<std::string> places = leaf_places(call);
  std::vector<PartitionSpec> specs;
  for (std::size_t k = 0; k < arguments.size(); ++k)
    for (PartitionSpec& spec : leaf_specs("shard_map", in[k], arguments[k].paths, fmt::format("argument {}", k), loc)) {
      const ir::Type type = types[specs.size()].type;
      const std::string subject = fmt::format("{}, {}", places[specs.size()], ir::to_string(type));
      checked_layout("shard_map", map.mesh, spec, type.dims(), subject, loc);
      check_is_manual(map, spec, subject, loc);
      specs.push_back(std::move(spec));
    }
  return specs;
}

// Of each leaf of the result.
std::vector<PartitionSpec> result_specs(const Map& map, const std::vector<Specs>& out, const Traced& t,
                                        const std::vector<std::size_t>& counts, Loc loc) {
  const bool one_for_all = out.size() == 1;
  if (!one_for_all && out.size() != counts.size())
    throw TypeError(loc, fmt::format("shard_map: {} specs in .out for {} result{}", out.size(), counts.size(),
                                     counts.size() == 1 ? "" : "s"));
  const std::vector<std::string> places = result_places(t);
  std::vector<PartitionSpec> specs;
  for (std::size_t k = 0; k < out.size(); ++k) {
    std::vector<std::string> paths = t.structure.paths;
    if (!one_for_all) {
      const auto begin = paths.begin() + static_cast<std::ptrdiff_t>(specs.size());
      paths = std::vector(begin, begin + static_cast<std::ptrdiff_t>(counts[k]));
      for (std::string& path : paths) path.erase(0, fmt::formatted_size("[{}]", k));
    }
    const std::string what = one_for_all ? "the result" : fmt::format("result {}", k);
    for (PartitionSpec& spec : leaf_specs("shard_map", out[k], paths, what, loc)) {
      const ir::Type type = t.results[specs.size()].type;
      const std::string subject = fmt::format("{}, {}", places[specs.size()], ir::to_string(type));
      check_spec("shard_map", map.mesh, spec, type.dims(), subject, loc);
      check_is_closed("shard_map", spec, subject, loc);
      check_is_manual(map, spec, subject, loc);
      specs.push_back(std::move(spec));
    }
  }
  return specs;
}

}  // namespace

std::vector<Array> shard_map(const FlatCall& call, const ShardMapOptions& options, Structure& result,
                             std::vector<std::size_t> (*result_counts)(const Structure&)) {
  const Loc loc = UserLine::or_own(call.loc());
  Map map{.who = "shard_map",
          .mesh = options.mesh,
          .manual = manual_of(options, loc),
          .in = {},
          .out = {},
          .unchecked = options.unchecked};
  const std::vector<LeafType> types = leaf_types(call);
  map.in = argument_specs(map, call, options.in, types, loc);
  std::vector<LeafType> parts;
  for (std::size_t i = 0; i < types.size(); ++i) parts.push_back(part_of(map, types[i], map.in[i]));
  Traced t = [&] {
    const MapScope scope(map.mesh, map.manual);
    return trace_call(call, {.what = "shard_map", .name = "shard_map", .loc = loc}, parts);
  }();
  map.out = result_specs(map, options.out, t, result_counts(t.structure), loc);
  map.in.resize(t.function->params().size());
  std::vector<ir::Type> whole;
  for (std::size_t i = 0; i < map.in.size(); ++i)
    whole.push_back(i < types.size() ? types[i].type : t.function->params()[i].type());
  const ir::FunctionRef body = checked_body(map, t.function, result_places(t), loc);
  const std::vector<Array> inputs = inputs_of(call, t);
  result = std::move(t.structure);
  return apply_map(map, body, inputs, whole, {}, loc);
}

}  // namespace detail
}  // namespace sheaf
