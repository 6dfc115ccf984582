// Whole values, and what each device of a mesh holds of them.
#pragma once

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "ir/eval_spmd.h"
#include "ir/sharding.h"

namespace sheaf::tests {

inline std::vector<ir::Sharding> layouts_of(const std::vector<ir::Type>& types, const ir::MeshAtoms& mesh) {
  std::vector<ir::Sharding> layouts;
  for (const ir::Type t : types) layouts.push_back(ir::sharding_of(t, mesh));
  return layouts;
}

/// Per device, its parts of all values.
inline std::vector<ir::Literals> parts_of(const ir::Literals& values, const std::vector<ir::Sharding>& layouts,
                                          const ir::MeshAtoms& mesh) {
  std::vector<ir::Literals> devices(static_cast<std::size_t>(mesh.mesh().size()));
  for (std::size_t i = 0; i < values.size(); ++i) {
    ir::Literals parts = ir::shard(values[i], mesh, layouts[i]);
    for (std::size_t d = 0; d < devices.size(); ++d) devices[d].push_back(std::move(parts[d]));
  }
  return devices;
}

/// The values that the devices hold together.
inline ir::Literals whole_of(const std::vector<ir::Literals>& devices, const std::vector<ir::Type>& types,
                             const std::vector<ir::Sharding>& layouts, const ir::MeshAtoms& mesh) {
  ir::Literals values;
  for (std::size_t j = 0; j < types.size(); ++j) {
    ir::Literals parts;
    for (const ir::Literals& device : devices) parts.push_back(device[j]);
    auto value = ir::unshard(parts, ir::without_sharding(types[j]), mesh, layouts[j]);
    REQUIRE_MESSAGE(value.ok(), std::string(value.status().message()));
    values.push_back(*std::move(value));
  }
  return values;
}

}  // namespace sheaf::tests
