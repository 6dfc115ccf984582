// Where arrays lie: a mesh of devices with named axes, and for each dim of an array the axes it is split over.
//   Mesh mesh({{"data", 4}, {"model", 2}});   P("data", none)   NamedSharding{mesh, P("data", {"model", "pod"})}
// A program is the same for every layout: only where its arguments lie says on how many devices it runs, and how.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "sheaf/array.h"
#include "sheaf/device.h"

namespace sheaf {

struct MeshAxis {
  std::string name;  // letters, digits and _
  std::int64_t size = 1;
  bool operator==(const MeshAxis&) const = default;
};

/// Devices along named axes, major to minor; cheap to copy, and equal if the axes and the devices are.
class Mesh {
 public:
  Mesh() = default;  // no mesh
  /// Over the first of devices(). Throws ShardingError where there are too few, or for a name that is none or is twice.
  Mesh(std::vector<MeshAxis> axes, Loc loc = Loc::current());  // NOLINT: `.mesh = {{"data", 4}}` reads well
  /// Over these, in row-major order. Throws ShardingError also where one is listed twice or there is no such device.
  Mesh(std::vector<MeshAxis> axes, std::vector<Device> devices, Loc loc = Loc::current());
  Mesh(std::vector<MeshAxis> axes, std::initializer_list<Device> devices, Loc loc = Loc::current())
      : Mesh(std::move(axes), std::vector<Device>(devices), loc) {}
  /// Without devices, of any size: programs can be planned for it on any machine, and not run.
  static Mesh abstract(std::vector<MeshAxis> axes, Loc loc = Loc::current());

  explicit operator bool() const { return data_ != nullptr; }
  const std::vector<MeshAxis>& axes() const;
  int rank() const { return static_cast<int>(axes().size()); }
  std::int64_t size() const;  // number of devices
  /// Of the axis. Throws ShardingError where there is none of that name.
  std::int64_t size(std::string_view axis, Loc loc = Loc::current()) const;
  bool is_abstract() const { return devices().empty(); }
  const std::vector<Device>& devices() const;  // row-major; empty: abstract
  std::vector<Device> addressable_devices() const;  // those of this process
  bool operator==(const Mesh& other) const;

  // For the library.
  struct Data;
  const Data& data() const { return *data_; }
  friend auto tree_fields(const Mesh& m) { return std::tie(m.axes(), m.devices()); }

 private:
  std::shared_ptr<const Data> data_;
};
std::string to_string(const Mesh& mesh);  // "[data=4, model=2]"

/// Of this process among those that share the arrays: 0 of 1, as long as one process has all devices.
int process_index();
int process_count();
/// The process that a device belongs to.
int process_index(Device device);

/// In a spec: the compiler may choose how the dim is split. Only with_sharding takes it.
struct Unconstrained {};
inline constexpr Unconstrained unconstrained;

/// How one dim is split: not at all, over one axis, over several (the first is the most major), or as the compiler
/// likes.
struct DimAxes {
  DimAxes() = default;
  DimAxes(None) {}  // NOLINT
  DimAxes(Unconstrained) : is_open(true) {}  // NOLINT
  DimAxes(const char* axis) : axes{axis} {}  // NOLINT
  DimAxes(std::nullptr_t) = delete;  // a dim that is not split is `none`
  DimAxes(std::string axis) : axes{std::move(axis)} {}  // NOLINT
  DimAxes(std::initializer_list<std::string> names) : axes(names) {}
  DimAxes(std::vector<std::string> names) : axes(std::move(names)) {}  // NOLINT

  std::vector<std::string> axes = {};
  bool is_open = false;
  bool operator==(const DimAxes&) const = default;
  friend auto tree_fields(const DimAxes& d) { return std::tie(d.axes, d.is_open); }
};

/// One entry per dim; dims without one are not split. Written with P.
struct PartitionSpec {
  std::vector<DimAxes> dims = {};
  bool operator==(const PartitionSpec&) const = default;
};
std::string to_string(const PartitionSpec& spec);  // P("data", none, {"model", "pod"})

/// A function, not a class, so that P({"data", "model"}) is one dim and not a copy of P("data", "model").
inline PartitionSpec P() { return {}; }
inline PartitionSpec P(DimAxes a) { return {{std::move(a)}}; }
inline PartitionSpec P(DimAxes a, DimAxes b) { return {{std::move(a), std::move(b)}}; }
inline PartitionSpec P(DimAxes a, DimAxes b, DimAxes c) { return {{std::move(a), std::move(b), std::move(c)}}; }
inline PartitionSpec P(DimAxes a, DimAxes b, DimAxes c, DimAxes d) {
  return {{std::move(a), std::move(b), std::move(c), std::move(d)}};
}
inline PartitionSpec P(DimAxes a, DimAxes b, DimAxes c, DimAxes d, DimAxes e) {
  return {{std::move(a), std::move(b), std::move(c), std::move(d), std::move(e)}};
}
inline PartitionSpec P(DimAxes a, DimAxes b, DimAxes c, DimAxes d, DimAxes e, DimAxes f) {
  return {{std::move(a), std::move(b), std::move(c), std::move(d), std::move(e), std::move(f)}};
}

/// The specs of a tree's leaves: one for all, or a list by path, `specs({{".W", P(none, "model")}, {"", P()}})`, where
/// a path stands for all leaves below it, and the longest counts.
struct Specs {
  Specs() = default;
  Specs(PartitionSpec spec) : all(std::move(spec)) {}  // NOLINT
  PartitionSpec all = {};
  bool is_by_path = false;  // then `by_path` counts, not `all`
  std::vector<std::pair<std::string, PartitionSpec>> by_path = {};
};
std::string to_string(const Specs& specs);
inline Specs specs(std::vector<std::pair<std::string, PartitionSpec>> by_path) {
  Specs s;
  s.is_by_path = true;
  s.by_path = std::move(by_path);
  return s;
}

/// A device and the part of an array it holds: a range per dim.
struct DeviceSlices {
  Device device;
  std::vector<Slice> index;
};

/// A mesh and how an array lies on it.
struct NamedSharding {
  Mesh mesh = {};
  PartitionSpec spec = {};

  /// Of what one device holds. Throws ShardingError where the spec does not fit the shape.
  Shape shard_shape(const Shape& shape, Loc loc = Loc::current()) const;
  /// In the order of the mesh's devices.
  std::vector<DeviceSlices> devices_indices(const Shape& shape, Loc loc = Loc::current()) const;
  std::vector<DeviceSlices> addressable_devices_indices(const Shape& shape, Loc loc = Loc::current()) const;
  /// Every device holds the whole.
  bool is_fully_replicated() const;
  bool is_fully_addressable() const;
  /// Whether every array that both fit lies in the same way on the same devices, whatever the axes are called.
  bool operator==(const NamedSharding& other) const;
};
std::string to_string(const NamedSharding& sharding);  // P("data") on [data=4, model=2]

}  // namespace sheaf
