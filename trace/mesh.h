// Meshes and specs as the passes know them, and the checks that everyone who takes a spec from a user makes.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ir/mesh.h"
#include "ir/sharding.h"
#include "sheaf/mesh.h"

namespace sheaf {

struct Mesh::Data {
  std::vector<MeshAxis> axes;
  std::vector<Device> devices;
  ir::Mesh mesh;
  ir::MeshAtoms atoms;
};

inline ir::Mesh ir_mesh(const Mesh& mesh) { return mesh.data().mesh; }
inline const ir::MeshAtoms& atoms_of(const Mesh& mesh) { return mesh.data().atoms; }

/// Throws ShardingError "device_put: .W: P(..) of f32[8]: why" (`what` and `subject`), unless the spec names axes of
/// the mesh, each once, and has at most one entry per dim.
void check_spec(const std::string& what, const Mesh& mesh, const PartitionSpec& spec, const Shape& shape,
                const std::string& subject, Loc loc);
/// Throws ShardingError unless every dim divides over its axes.
void check_divides(const std::string& what, const Mesh& mesh, const PartitionSpec& spec, const Shape& shape,
                   const std::string& subject, Loc loc);
/// Both, and that no axis is taken in parts: where a program may be told that a value is to lie.
void check_wish(const std::string& what, const Mesh& mesh, const PartitionSpec& spec, const Shape& shape,
                const std::string& subject, Loc loc);
/// Throws ShardingError where a dim is unconstrained.
void check_is_closed(const std::string& what, const PartitionSpec& spec, const std::string& subject, Loc loc);
/// The checks of a spec, that it divides, and that it is closed: a layout that an array can have.
ir::Sharding checked_layout(const std::string& what, const Mesh& mesh, const PartitionSpec& spec, const Shape& shape,
                            const std::string& subject, Loc loc);
/// Throws ShardingError unless the process has the device, of whichever platform.
void check_is_there(const std::string& what, Device device, Loc loc);
/// Also that it has devices.
void check_has_devices(const std::string& what, const Mesh& mesh, Loc loc);

ir::Spec ir_spec(const PartitionSpec& spec, int rank);
PartitionSpec spec_of(const ir::Sharding& layout, const ir::MeshAtoms& atoms);

/// "0,2,4-7".
std::string numbers_text(std::span<const int> devices);
/// "[x=4] of cpu:0-3", where the axes alone would not tell meshes apart.
std::string text_with_devices(const Mesh& mesh);

/// The part that the i-th device of the mesh holds.
std::vector<Slice> slices_of(const Shape& shape, const ir::MeshAtoms& atoms, const ir::Sharding& layout,
                             std::int64_t device);

/// The texts of two meshes, with their devices if it is these that differ: "[x=4] on cpu:0 to cpu:3".
std::pair<std::string, std::string> told_apart(const Mesh& a, const Mesh& b);
/// Whether the same devices are in the same places, whatever the axes are called.
bool are_same_place(const Mesh& a, const Mesh& b);

/// A program names only the axes of its mesh. Its devices are those that the traces of this thread last gave a mesh of
/// these axes, else the first ones. Throws ShardingError where the trace has a mesh of these axes and other devices;
/// `who` is what names the mesh now.
void note_mesh(const Mesh& mesh, const std::string& who, Loc loc);
Mesh noted_mesh(ir::Mesh mesh);

/// The specs of the leaves at `paths`. Throws TypeError where a leaf has no spec, a path no leaf, or a path two specs.
std::vector<PartitionSpec> leaf_specs(const std::string& who, const Specs& specs, std::span<const std::string> paths,
                                      const std::string& what, Loc loc);

}  // namespace sheaf
