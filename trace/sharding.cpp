// Arrays on meshes: putting them there, making them there, and what they can say about where they are.
#include "sheaf/sharding.h"

#include <absl/container/flat_hash_map.h>
#include <fmt/format.h>

#include <algorithm>

#include "ir/ops/attrs.h"
#include "ir/ops/rules.h"
#include "runtime/device.h"
#include "sheaf/jit.h"
#include "sheaf/weights.h"
#include "trace/apply.h"
#include "trace/axes.h"
#include "trace/messages.h"
#include "trace/placement.h"
#include "trace/recorder.h"
#include "trace/shard_map.h"

namespace sheaf {
namespace {

std::string with_path(const std::string& who, const std::string& path) {
  return path.empty() ? who : fmt::format("{}: {}", who, path);
}

Array put_leaf(const std::string& what, const Array& x, const Mesh& mesh, const PartitionSpec& spec, Loc loc) {
  const ArrayNode& node = node_of(x, loc);
  const ir::Sharding layout = checked_layout(what, mesh, spec, node.type.dims(), type_text(node), loc);
  check_has_devices(what, mesh, loc);
  const Placement* to = placement_of(mesh, layout);
  return placed(to, moved(x, node.type, to, loc), node.type, node.is_weak, loc);
}

// Inside a shard_map: a layout along the axes that its function is not written for.
void check_is_free(const std::string& what, const Mesh& mesh, const PartitionSpec& spec, const std::string& subject,
                   Loc loc) {
  check_is_enclosing(what, mesh, loc);
  const ir::Axes manual = manual_axes();
  for (std::size_t d = 0; d < spec.dims.size(); ++d)
    for (const std::string& axis : spec.dims[d].axes)
      if (std::find(manual.begin(), manual.end(), axis) != manual.end())
        throw ShardingError(loc,
                            fmt::format("{}: {} of {}: dim {} is split over \"{}\", and the function here is of one "
                                        "device along it",
                                        what, to_string(spec), subject, d, axis));
}

// x with a constraint of that text in the program.
Array constrained(const Array& x, const Mesh& mesh, std::string spec, Loc loc) {
  note_mesh(mesh, "with_sharding", loc);
  ir::ops::WithSharding attrs{.mesh = ir::to_string(ir_mesh(mesh)), .spec = std::move(spec)};
  RuleKey key;
  key.add(attrs.mesh).add(attrs.spec);
  const auto rule = [&](ir::Builder& b, const ir::Values& v) -> ir::Values {
    return {emit1(b, ir::ops::with_sharding, v, attrs)};
  };
  return apply1("with_sharding", std::move(key), {x}, loc, rule, node_of(x, loc).is_weak);
}

// Dims that the spec leaves open stay split as they are, where their axes are not taken.
PartitionSpec closed(PartitionSpec spec, const Array& x, const Mesh& mesh) {
  const Placement* now = x.node()->placement;
  if (now && now->mesh != mesh) now = nullptr;
  ir::Atoms taken;
  for (const DimAxes& dim : spec.dims)
    for (const int atom : atoms_of(mesh).of(dim.axes)) taken.push_back(atom);
  const auto is_taken = [&](int atom) { return std::find(taken.begin(), taken.end(), atom) != taken.end(); };
  for (std::size_t d = 0; d < spec.dims.size(); ++d) {
    DimAxes& dim = spec.dims[d];
    if (!std::exchange(dim.is_open, false) || !now || !dim.axes.empty()) continue;
    const ir::Atoms& atoms = now->layout.dims[d];
    if (std::none_of(atoms.begin(), atoms.end(), is_taken)) dim.axes = atoms_of(mesh).names(atoms);
  }
  return spec;
}

const ArrayNode& concrete_node(const Array& x, std::string_view wanted, Loc loc) {
  const ArrayNode& node = node_of(x, loc);
  if (node.kind == ArrayNode::Kind::traced) {
    if (!node.trace->is_live) throw_leaked(node, loc);
    throw TypeError(loc, fmt::format("{}: where a traced value lies is decided when the program is compiled: {} made "
                                     "at {} while tracing {}",
                                     wanted, type_text(node), to_string(node.made_at), trace_text(*node.trace)));
  }
  return node;
}

const Placement& placement_or_default(const ArrayNode& node) {
  return node.placement ? *node.placement : *placement_on({}, node.type.rank());
}

}  // namespace

Array constrained(const std::string& what, const Array& x, const Mesh& mesh, const PartitionSpec& spec, Loc loc) {
  const ArrayNode& node = node_of(x, loc);
  check_wish(what, mesh, spec, node.type.dims(), type_text(node), loc);
  if (mesh.rank() == 0) return x;
  check_is_free(what, mesh, spec, type_text(node), loc);
  return constrained(x, mesh, ir::to_text(ir_spec(spec, node.type.rank())), loc);
}

namespace detail {

std::vector<Array> put(const char* who, std::span<const Array* const> leaves, std::span<const std::string> paths,
                       const Mesh& mesh, const Specs& specs, Loc loc) {
  const std::vector<PartitionSpec> by_leaf = leaf_specs(who, specs, paths, "the tree", loc);
  std::vector<Array> out;
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    const std::string what = with_path(who, paths[i]);
    out.push_back(Recorder::current() ? constrained(what, *leaves[i], mesh, by_leaf[i], loc)
                                      : put_leaf(what, *leaves[i], mesh, by_leaf[i], loc));
  }
  return out;
}

std::vector<Array> constrain(std::span<const Array* const> leaves, std::span<const std::string> paths, const Mesh& mesh,
                             const Specs& specs, Loc loc) {
  const std::vector<PartitionSpec> by_leaf = leaf_specs("with_sharding", specs, paths, "the tree", loc);
  std::vector<Array> out;
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    const std::string what = with_path("with_sharding", paths[i]);
    if (Recorder::current()) {
      out.push_back(constrained(what, *leaves[i], mesh, by_leaf[i], loc));
      continue;
    }
    const ArrayNode& node = node_of(*leaves[i], loc);
    check_spec(what, mesh, by_leaf[i], node.type.dims(), type_text(node), loc);
    out.push_back(put_leaf(what, *leaves[i], mesh, closed(by_leaf[i], *leaves[i], mesh), loc));
  }
  return out;
}

std::vector<Array> marked_as_weights(std::span<const Array* const> leaves, const Mesh& mesh, Loc loc) {
  std::vector<Array> out;
  for (const Array* x : leaves) {
    const ArrayNode& node = node_of(*x, loc);
    const ir::Spec spec(node.type.rank(), {.axes = {}, .open = true, .of_weight = true});
    const bool is_marked = Recorder::current() && mesh.rank() > 0 && !spec.empty();
    out.push_back(is_marked ? constrained(*x, mesh, ir::to_text(spec), loc) : *x);
  }
  return out;
}

std::vector<Array> put_on(std::span<const Array* const> leaves, Device device, Loc loc) {
  if (Recorder::current())
    throw TypeError(loc, fmt::format("device_put: a traced function runs where its arguments are: put them on {} "
                                     "before the call",
                                     to_string(device)));
  check_is_there("device_put", device, loc);
  std::vector<Array> out;
  for (const Array* x : leaves) {
    const ArrayNode& node = node_of(*x, loc);
    const Placement* to = placement_on(device, node.type.rank());
    out.push_back(placed(to, moved(*x, node.type, to, loc), node.type, node.is_weak, loc));
  }
  return out;
}

Specs zero_specs(std::span<const Array* const> leaves, std::span<const std::string> paths, const Mesh& mesh,
                 const std::string& axis, const Specs& base, Loc loc) {
  std::vector<PartitionSpec> by_leaf = leaf_specs("zero_specs", base, paths, "the tree", loc);
  if (!mesh || ir_mesh(mesh).find(axis) < 0)
    throw ShardingError(
        loc, fmt::format("zero_specs: {} has no axis \"{}\"", mesh ? "the mesh " + to_string(mesh) : "no mesh", axis));
  const std::int64_t ways = mesh.size(axis, loc);
  Specs all;
  all.is_by_path = true;
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    const ArrayNode& node = node_of(*leaves[i], loc);
    const Shape& shape = node.type.dims();
    PartitionSpec& spec = by_leaf[i];
    const ir::Sharding layout =
        checked_layout(with_path("zero_specs", paths[i]), mesh, spec, shape, type_text(node), loc);
    bool is_split = false;
    for (const DimAxes& dim : spec.dims)
      is_split |= std::find(dim.axes.begin(), dim.axes.end(), axis) != dim.axes.end();
    const Shape local = ir::local_type(node.type, atoms_of(mesh), layout).dims();
    int best = -1;
    for (int d = 0; d < std::ssize(local); ++d)
      if (local[d] % ways == 0 && local[d] > (best < 0 ? 0 : local[best])) best = d;
    if (best >= 0 && !is_split) {
      spec.dims.resize(std::max(spec.dims.size(), static_cast<std::size_t>(best) + 1));
      spec.dims[best].axes.push_back(axis);
    }
    all.by_path.emplace_back(paths[i], spec);
  }
  return all;
}

std::int64_t bytes_per_device(std::span<const Array* const> leaves) {
  absl::flat_hash_map<int, std::int64_t> held;
  std::int64_t most = 0;
  for (const Array* x : leaves) {
    const ArrayNode& node = concrete_node(*x, "bytes_per_device", x->made_at());
    const Placement& p = placement_or_default(node);
    const std::int64_t bytes = p.local(node.type).bytes();
    if (p.mesh.is_abstract()) most = std::max(most, held[-1] += bytes);  // the same on all
    for (const Device d : p.mesh.devices()) most = std::max(most, held[d.id] += bytes);
  }
  return most;
}

}  // namespace detail

// ---- making ----

Array make_array_from_callback(const Shape& shape, const NamedSharding& sharding,
                               const std::function<Array(const std::vector<Slice>&)>& part, Loc loc) {
  const std::string who = "make_array_from_callback";
  check_shape(who, shape, loc);
  const ir::Sharding layout = checked_layout(who, sharding.mesh, sharding.spec, shape, to_string(shape), loc);
  check_has_devices(who, sharding.mesh, loc);
  const Placement* to = placement_of(sharding.mesh, layout);
  absl::flat_hash_map<std::vector<std::int64_t>, Array> known;  // by where the part begins
  std::vector<runtime::BufferPtr> shards;
  ir::Type local;
  bool is_weak = true;
  for (std::int64_t i = 0; i < std::ssize(to->devices); ++i) {
    Array& x = known[to->block(shape, i).start];
    if (!x.has_value()) {
      x = part(slices_of(shape, to->atoms(), layout, i));
      const ArrayNode& node = node_with_value(x, "elements to read", loc);
      const ir::Type wanted(local ? local.dtype() : node.type.dtype(),
                            ir::local_type(ir::Type(node.type.dtype(), shape), to->atoms(), layout).dims());
      if (node.type.dims() != wanted.dims())
        throw ShapeError(loc, fmt::format("{}: the part of {} has to be {}, not {}", who,
                                          to_string(to->mesh.devices()[i]), ir::to_string(wanted), type_text(node)));
      if (node.type != wanted)
        throw TypeError(loc, fmt::format("{}: the part of {} has to be {} as those before, not {}", who,
                                         to_string(to->mesh.devices()[i]), ir::to_string(wanted), type_text(node)));
      local = wanted;
      is_weak &= node.is_weak;
    }
    shards.push_back(moved(x, local, placement_on(to->mesh.devices()[i], local.rank()), loc)[0]);
  }
  return placed(to, std::move(shards), local.with_dims(shape), is_weak, loc);
}

Array make_array_from_process_local_data(const NamedSharding& sharding, const Array& local,
                                         std::optional<Shape> global_shape, Loc loc) {
  const ArrayNode& node = node_of(local, loc);
  if (global_shape && *global_shape != node.type.dims())
    throw ShapeError(loc, fmt::format("make_array_from_process_local_data: this process has all of {}, not {}",
                                      to_string(*global_shape), type_text(node)));
  return put_leaf("make_array_from_process_local_data", local, sharding.mesh, sharding.spec, loc);
}

Array make_array_from_single_device_arrays(const Shape& shape, const NamedSharding& sharding,
                                           const std::vector<Array>& parts, Loc loc) {
  const std::string who = "make_array_from_single_device_arrays";
  check_shape(who, shape, loc);
  const ir::Sharding layout = checked_layout(who, sharding.mesh, sharding.spec, shape, to_string(shape), loc);
  check_has_devices(who, sharding.mesh, loc);
  const Placement* to = placement_of(sharding.mesh, layout);
  if (parts.size() != to->devices.size())
    throw ShapeError(loc, fmt::format("{}: {} takes {} parts, and there are {}", who, to_string(sharding),
                                      to->devices.size(), parts.size()));
  const DType dtype = node_of(parts[0], loc).type.dtype();
  const ir::Type whole(dtype, shape), local = to->local(whole);
  std::vector<int> part_of(to->devices.size(), -1);
  std::vector<runtime::BufferPtr> shards(to->devices.size());
  for (int k = 0; k < std::ssize(parts); ++k) {
    const ArrayNode& node = node_with_value(parts[k], "parts", loc);
    const Placement& p = placement_or_default(node);
    const std::string wrong =
        fmt::format("{}: part {} has to be {}, not {}", who, k, ir::to_string(local), type_text(node));
    if (node.type.dims() != local.dims()) throw ShapeError(loc, wrong);
    if (node.type != local) throw TypeError(loc, wrong);
    const auto at = std::find(to->devices.begin(), to->devices.end(), p.devices.at(0)) - to->devices.begin();
    if (p.devices.size() != 1 || at == std::ssize(to->devices))
      throw ShardingError(loc, fmt::format("{}: part {} is on {}, and the mesh is {}", who, k, place_text(p),
                                           text_with_devices(sharding.mesh)));
    if (const int before = std::exchange(part_of[at], k); before >= 0)
      throw ShardingError(loc, fmt::format("{}: part {} and part {} are both on {}", who, before, k, place_text(p)));
    shards[at] = node.placement ? node.shards[0] : buffer_of(parts[k], local, loc);
  }
  return placed(to, std::move(shards), whole, false, loc);
}

Array abstract(const Shape& shape, DType dtype, const NamedSharding& sharding, Loc loc) {
  const Array plain = abstract(shape, dtype, loc);
  const ir::Sharding layout =
      checked_layout("abstract", sharding.mesh, sharding.spec, shape, ir::to_string(plain.node()->type), loc);
  auto node = ir::make_recycled<ArrayNode>();
  node->kind = ArrayNode::Kind::abstract;
  node->type = plain.node()->type;
  node->made_at = loc;
  node->placement = placement_of(sharding.mesh, layout);
  return Array(std::move(node));
}

// ---- asking ----

NamedSharding Array::sharding(Loc loc) const {
  const Placement& p = placement_or_default(concrete_node(*this, "sharding", loc));
  return {p.mesh, spec_of(p.layout, p.atoms())};
}

std::vector<Shard> Array::addressable_shards(Loc loc) const {
  concrete_node(*this, "addressable_shards", loc);
  const ArrayNode& node = node_with_value(*this, "parts", loc);
  const Placement& p = placement_or_default(node);
  absl::flat_hash_map<std::vector<std::int64_t>, int> replicas;
  std::vector<Shard> shards;
  for (std::int64_t i = 0; i < std::ssize(p.devices); ++i) {
    const Device device = p.mesh.devices()[i];
    const ir::Type local = p.local(node.type);
    runtime::BufferPtr buffer = node.placement ? node.shards[i] : buffer_of(*this, local, loc);
    shards.push_back(
        {.device = device,
         .index = slices_of(node.type.dims(), p.atoms(), p.layout, i),
         .replica_id = replicas[p.block(node.type.dims(), i).start]++,
         .data = placed(placement_on(device, local.rank()), {std::move(buffer)}, local, node.is_weak, node.made_at)});
  }
  return shards;
}

bool Array::is_fully_replicated(Loc loc) const {
  return placement_or_default(concrete_node(*this, "is_fully_replicated", loc)).layout.is_replicated();
}

bool Array::is_fully_addressable(Loc loc) const { return sharding(loc).is_fully_addressable(); }

}  // namespace sheaf
