// Shapes as users write them: a list of extents, outermost first. Rank 0 is a scalar; extents may be 0, and any 0 makes
// the array empty however large the others are.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace sheaf {

using Shape = std::vector<std::int64_t>;

/// No array has as many elements: the bytes of several such would still be counted in 63 bits.
inline constexpr std::int64_t kMaxElements = std::int64_t{1} << 55;
/// Product of the extents; 1 for rank 0, kMaxElements where it is larger.
std::int64_t num_elements(const Shape& shape);
/// "[64, 784]".
std::string to_string(const Shape& shape);

}  // namespace sheaf
