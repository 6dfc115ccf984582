// Shapes as users write them: a list of extents, outermost first. Rank 0 is a scalar; extents may be 0.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace sheaf {

using Shape = std::vector<std::int64_t>;

/// Product of the extents; 1 for rank 0.
std::int64_t num_elements(const Shape& shape);
/// "[64, 784]".
std::string to_string(const Shape& shape);

}  // namespace sheaf
