// Arrays as text, and what they are made of and lie on. A concrete array prints its values, the middle of large ones
// left out; a traced one prints its type and the line that made it, since it has no values.
#pragma once

#include "sheaf/array.h"
#include "sheaf/device.h"

namespace sheaf {

class Mesh;  // sheaf/mesh.h
struct PartitionSpec;

struct PrintOptions {
  int precision = 4;               // significant digits after the point
  std::int64_t threshold = 1000;   // more elements than this, and the middle is left out ...
  std::int64_t edge = 3;           // ... but for so many at each end of each dim
};

std::string to_string(const Array& x, const PrintOptions& options = {});
std::ostream& operator<<(std::ostream& out, const Array& x);

// As to_string and name have it. A Shape is a std::vector, which streams leave to you: to_string(x.shape()).
std::ostream& operator<<(std::ostream& out, DType t);
std::ostream& operator<<(std::ostream& out, Loc loc);
std::ostream& operator<<(std::ostream& out, Device device);
std::ostream& operator<<(std::ostream& out, const Mesh& mesh);
std::ostream& operator<<(std::ostream& out, const PartitionSpec& spec);
std::ostream& operator<<(std::ostream& out, const NamedSharding& sharding);

}  // namespace sheaf
