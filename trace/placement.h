// Where the parts of a concrete array are: one buffer per device of a mesh. Invariant: placements are interned and kept
// for ever, so that two arrays lie alike if the addresses are equal, and a hot call compares nothing else.
#pragma once

#include <span>
#include <vector>

#include "ir/sharding.h"
#include "runtime/assemble.h"
#include "sheaf/mesh.h"
#include "trace/array_node.h"
#include "trace/mesh.h"

namespace sheaf {

struct Placement {
  Mesh mesh;  // of rank 0: one device that the array was put on
  ir::Sharding layout;
  std::vector<runtime::Device*> devices = {};

  const ir::MeshAtoms& atoms() const { return atoms_of(mesh); }
  ir::Type local(ir::Type whole) const { return ir::local_type(whole, atoms(), layout); }
  /// What the i-th device holds.
  runtime::Region block(const Shape& shape, std::int64_t device) const;
  bool is_on_mesh() const { return mesh.rank() > 0; }
};

const Placement* placement_of(const Mesh& mesh, const ir::Sharding& layout);
/// Whole, on one device.
const Placement* placement_on(Device device, int rank);
/// Whole on every device.
const Placement* replicated_on(const Mesh& mesh, int rank);

/// "[data=4, model=2]", or of one device "cpu:3"; with its devices if those are all that it differs in from `beside`.
std::string place_text(const Placement& placement, const Mesh& beside = {});

/// with_sharding in a trace; `what` is for messages.
Array constrained(const std::string& what, const Array& x, const Mesh& mesh, const PartitionSpec& spec, Loc loc);

/// An array of these parts; those of other processes are null.
Array placed(const Placement* placement, std::vector<runtime::BufferPtr> shards, ir::Type type, bool is_weak,
             Loc made_at);

/// The array's parts as they would be under another placement. What a device has already is shared, not copied; of the
/// rest it reads what it lacks and nothing else. Numbers are written out in `type`'s dtype.
std::vector<runtime::BufferPtr> moved(const Array& x, ir::Type type, const Placement* to, Loc use);

/// All of it in one buffer, on whichever device has it, else on the first.
runtime::BufferPtr gathered(const ArrayNode& node, Loc use);

}  // namespace sheaf
