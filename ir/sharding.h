// How a value lies on a mesh, as the sharding passes compute with it. Every axis is split into atoms, its prime factors
// major to minor, so that a part of an axis is a list of atoms like a whole one and all algebra is about lists of small
// numbers. Invariant: an atom occurs once over all dims and the unreduced set of one Sharding.
#pragma once

#include <absl/status/statusor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ir/mesh.h"
#include "ir/type.h"

namespace sheaf::ir {

using Atoms = std::vector<int>;  // positions in MeshAtoms, major to minor

struct Atom {
  int axis = 0;
  std::int64_t before = 1;  // product of the axis's atoms that are major to it
  std::int64_t size = 2;  // prime
};

/// The atoms of a mesh, in the order of its axes; axes of size 1 have none.
class MeshAtoms {
 public:
  explicit MeshAtoms(Mesh mesh);
  Mesh mesh() const { return mesh_; }
  int count() const { return static_cast<int>(atoms_.size()); }
  const Atom& operator[](int i) const { return atoms_[i]; }
  std::int64_t size(const Atoms& atoms) const;  // product
  /// Atoms of "data" or of a part of it, "data:(2)4": the 4 ways within each of 2; none for an axis of size 1. Null:
  /// there is no such axis, or no such part.
  std::optional<Atoms> find(std::string_view name) const;
  /// The same of names that are known to be some; none where there is no such axis.
  Atoms of(std::string_view name) const;
  Atoms of(const Axes& names) const;
  /// Their names, whole axes and runs of atoms joined.
  Axes names(const Atoms& atoms) const;
  /// The value (0 <= . < size) of the coordinate that the atoms span, at device i.
  std::int64_t coordinate(const Atoms& atoms, std::int64_t device) const;
  /// Devices that differ in these atoms only: for each device, the list in the order of the coordinate they span.
  std::vector<std::vector<int>> groups(const Atoms& atoms) const;  // each group once

 private:
  Mesh mesh_;
  std::vector<Atom> atoms_;
};

struct Sharding {
  std::vector<Atoms> dims = {};  // of every dim
  Atoms unreduced = {};  // ascending
  ReduceKind kind = ReduceKind::sum;
  bool operator==(const Sharding&) const = default;
  template <typename H>
  friend H AbslHashValue(H h, const Sharding& s) {
    return H::combine(std::move(h), s.dims, s.unreduced, static_cast<int>(s.kind));
  }

  static Sharding replicated(int rank) { return {.dims = std::vector<Atoms>(rank)}; }
  bool is_replicated() const;  // nothing split, nothing unreduced
  /// All atoms in use.
  Atoms used() const;
};

/// InvalidArgument: the type names an axis that the mesh lacks, or the same one twice.
absl::Status check_layout(Type type, const MeshAtoms& atoms);
/// Of a type with its axes: parts that occur twice or that the mesh lacks are our bug.
Sharding sharding_of(Type type, const MeshAtoms& atoms);
/// The type with these axes; its dims stay the global ones.
Type with_sharding(Type type, const MeshAtoms& atoms, const Sharding& sharding);
Type without_sharding(Type type);  // no axes, nothing unreduced
/// What one device holds: a plain type. Every dim must divide.
Type local_type(Type type, const MeshAtoms& atoms, const Sharding& sharding);
/// Whether every dim is a multiple of the ways it is split.
bool divides(const Shape& dims, const MeshAtoms& atoms, const Sharding& sharding);

/// "[data, _, (model, pod)]{sum@x}": per dim, `_` where whole.
std::string to_string(const Sharding& sharding, const MeshAtoms& atoms);

// Specs in attributes: one word per dim, axes major to minor joined by '+', "_" for none, a '*' behind those of a
// weight, a '?' at the end of an open dim, then ":p" and a priority that is not 0 ("data+pod", "_", "model?", "*?",
// "data?:p1").
struct DimSpec {
  Axes axes = {};
  bool open = false;  // the compiler may split it further
  int priority = 0;  // propagated after all of lower ones
  bool of_weight = false;  // gathered rather than that others are moved
  bool operator==(const DimSpec&) const = default;
};
inline constexpr int kMaxPriority = 255;
using Spec = std::vector<DimSpec>;
std::string to_text(const Spec& spec);  // "data+pod,_,model?"; "" for rank 0
absl::StatusOr<Spec> parse_spec(std::string_view text);

}  // namespace sheaf::ir
