// A mesh: named axes over which a program is spread, major to minor. It has no devices; those are the runtime's, and a
// program is planned for a mesh of any size on any machine. Meshes are interned, so equality is pointer equality.
#pragma once

#include <absl/status/statusor.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sheaf::ir {

struct MeshAxis {
  std::string name;
  std::int64_t size = 1;
  bool operator==(const MeshAxis&) const = default;
};

class Mesh {
 public:
  Mesh() = default;  // no mesh
  /// InvalidArgument: an axis without a name, two of one name, a size below 1, or more than 2^31 devices.
  static absl::StatusOr<Mesh> make(std::vector<MeshAxis> axes);
  /// From "data=4, model=2".
  static absl::StatusOr<Mesh> parse(std::string_view text);

  const std::vector<MeshAxis>& axes() const { return *axes_; }
  int rank() const { return static_cast<int>(axes_->size()); }
  /// Number of devices. Device i has the i-th coordinate in row-major order.
  std::int64_t size() const;
  /// Position of the axis; -1: there is none of that name.
  int find(std::string_view name) const;

  explicit operator bool() const { return axes_ != nullptr; }
  bool operator==(const Mesh&) const = default;
  template <typename H>
  friend H AbslHashValue(H h, Mesh m) {
    return H::combine(std::move(h), m.axes_);
  }

 private:
  const std::vector<MeshAxis>* axes_ = nullptr;
};

/// "data=4, model=2".
std::string to_string(Mesh mesh);

}  // namespace sheaf::ir
