// What shard_map, pmap and xmap share: a program of parts, and the equation that runs it on every device of a mesh.
// Invariant: each result differs along the axes of the mesh that its spec names, and no others.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "sheaf/mesh.h"
#include "trace/axes.h"
#include "trace/trace_call.h"

namespace sheaf {

/// While a function of parts is traced.
class MapScope {
 public:
  MapScope(const Mesh& mesh, const std::vector<std::string>& manual);
  ~MapScope();
  MapScope(const MapScope&) = delete;
  MapScope& operator=(const MapScope&) = delete;

 private:
  AxisScope axes_;
};

/// The mesh of the enclosing maps, or none.
Mesh enclosing_mesh();

/// Throws ShardingError unless the mesh is that of the maps around, if there are any.
void check_is_enclosing(const std::string& who, const Mesh& mesh, Loc loc);

struct Map {
  std::string who;
  Mesh mesh;
  std::vector<std::string> manual;  // axes
  std::vector<PartitionSpec> in, out;  // per parameter and result of the body
  bool unchecked = false;
};

/// The type of one device's part.
LeafType part_of(const Map& map, LeafType whole, const PartitionSpec& spec);

/// The body, each result differing along what its spec names. Throws ShardingError where one differs along more;
/// `places` says what each is, "result 0 .loss".
ir::FunctionRef checked_body(const Map& map, const ir::FunctionRef& body, std::span<const std::string> places, Loc loc);

/// The equation on these inputs, whose types are given: in the current trace, or at once, with inputs put where the map
/// wants them. Inputs with `donated` may be given up.
std::vector<Array> apply_map(const Map& map, const ir::FunctionRef& body, std::span<const Array> inputs,
                             std::span<const ir::Type> types, const std::vector<bool>& donated, Loc loc);

/// "result 0 .loss" of each result leaf.
std::vector<std::string> result_places(const Traced& t);

}  // namespace sheaf
