// One array on many devices. An Array has one global shape wherever its parts are; what runs on it runs where they are:
//   x = device_put(x, mesh, P("data"));  Array y = jit(f)(x);   y.sharding();  y.addressable_shards();
// Arrays that nobody has put anywhere go where the others are; arrays on two meshes in one call are a ShardingError.
#pragma once

#include <functional>

#include "sheaf/mesh.h"
#include "sheaf/tree.h"

namespace sheaf {

/// A device's part of an array.
struct Shard {
  Device device;
  std::vector<Slice> index;  // of the whole
  int replica_id = 0;  // among the devices that hold the same part
  Array data;  // on that device
};

namespace detail {

/// The leaves, put where the specs say; `who` and `paths` are for messages.
std::vector<Array> put(const char* who, std::span<const Array* const> leaves, std::span<const std::string> paths,
                       const Mesh& mesh, const Specs& specs, Loc loc);
std::vector<Array> constrain(std::span<const Array* const> leaves, std::span<const std::string> paths, const Mesh& mesh,
                             const Specs& specs, Loc loc);
std::vector<Array> put_on(std::span<const Array* const> leaves, Device device, Loc loc);
Specs zero_specs(std::span<const Array* const> leaves, std::span<const std::string> paths, const Mesh& mesh,
                 const std::string& axis, const Specs& base, Loc loc);
std::int64_t bytes_per_device(std::span<const Array* const> leaves);

}  // namespace detail

/// The tree with its leaves on the mesh as the specs say, from wherever they are. Each device reads what it lacks and
/// nothing else; what it has is shared, not copied. In a traced function it is with_sharding. Throws ShardingError
/// naming the leaf, the dim, the axis and the sizes.
template <class T>
T device_put(const T& tree, const Mesh& mesh, const Specs& specs, Loc loc = Loc::current()) {
  detail::Flat flat;
  detail::walk(tree, flat);
  return tree_with_leaves(tree,
                          detail::put("device_put", flat.leaves.span(), detail::paths_of(tree), mesh, specs, loc));
}
template <class T>
T device_put(const T& tree, const NamedSharding& to, Loc loc = Loc::current()) {
  return device_put(tree, to.mesh, Specs(to.spec), loc);
}
/// Whole, on one device.
template <class T>
T device_put(const T& tree, Device to, Loc loc = Loc::current()) {
  detail::Flat flat;
  detail::walk(tree, flat);
  return tree_with_leaves(tree, detail::put_on(flat.leaves.span(), to, loc));
}

/// The tree, whose leaves lie on the mesh as the specs say: for the compiler, which may choose only where a spec is
/// `unconstrained`. The cotangent lies in the same way. Outside traced functions it is device_put, and an unconstrained
/// dim stays as it is.
template <class T>
T with_sharding(const T& tree, const Mesh& mesh, const Specs& specs, Loc loc = Loc::current()) {
  detail::Flat flat;
  detail::walk(tree, flat);
  return tree_with_leaves(tree, detail::constrain(flat.leaves.span(), detail::paths_of(tree), mesh, specs, loc));
}

/// An array of which `part` gives each part that a device of this process holds: called once for each, with its slices
/// of the whole. Throws ShapeError or TypeError where a part has another shape or dtype than the rest.
Array make_array_from_callback(const Shape& shape, const NamedSharding& sharding,
                               const std::function<Array(const std::vector<Slice>&)>& part, Loc loc = Loc::current());
/// An array of which this process has `local`: the whole, as long as there is one process.
Array make_array_from_process_local_data(const NamedSharding& sharding, const Array& local,
                                         std::optional<Shape> global_shape = {}, Loc loc = Loc::current());
/// An array of these parts, one for each device of this process in any order; nothing is copied.
Array make_array_from_single_device_arrays(const Shape& shape, const NamedSharding& sharding,
                                           const std::vector<Array>& parts, Loc loc = Loc::current());

/// Only a type, and where it lies: programs are planned for it, on meshes without devices too.
Array abstract(const Shape& shape, DType dtype, const NamedSharding& sharding, Loc loc = Loc::current());

/// Specs that split every leaf over one more axis, so that no device holds the whole tree (ZeRO, FSDP): the largest dim
/// that divides, the first of them, besides what `base` splits already; a leaf without one stays as in `base`.
template <class T>
Specs zero_specs(const T& tree, const Mesh& mesh, const std::string& axis, const Specs& base = P(),
                 Loc loc = Loc::current()) {
  detail::Flat flat;
  detail::walk(tree, flat);
  return detail::zero_specs(flat.leaves.span(), detail::paths_of(tree), mesh, axis, base, loc);
}
/// The tree put as zero_specs says.
template <class T>
T zero_shard(const T& tree, const Mesh& mesh, const std::string& axis, const Specs& base = P(),
             Loc loc = Loc::current()) {
  return device_put(tree, mesh, zero_specs(tree, mesh, axis, base, loc), loc);
}
/// What the device that holds most of the tree's leaves holds of them.
template <class T>
std::int64_t bytes_per_device(const T& tree) {
  detail::Flat flat;
  detail::walk(tree, flat);
  return detail::bytes_per_device(flat.leaves.span());
}

/// Which devices hold which part, as a grid of text: rows and columns are the last two dims, and each part of the dims
/// before them has a grid of its own. Numbers are devices; equal parts have one cell.
std::string visualize_sharding(const Shape& shape, const NamedSharding& sharding, Loc loc = Loc::current());
std::string visualize_sharding(const Array& x, Loc loc = Loc::current());
/// The same as a picture: the text of an SVG file.
std::string sharding_svg(const Shape& shape, const NamedSharding& sharding, Loc loc = Loc::current());
std::string sharding_svg(const Array& x, Loc loc = Loc::current());

/// x itself, and `report` is told how it lies: in a traced function once for each layout that a program with it is
/// compiled for, else at once. Use what it returns. `report` must not run anything.
Array inspect_sharding(const Array& x, std::function<void(const NamedSharding&)> report, Loc loc = Loc::current());

}  // namespace sheaf
