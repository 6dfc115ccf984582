// Arrays as text. A concrete array prints its values, the middle of large ones left out; a traced one prints its type
// and the line that made it, since it has no values.
#pragma once

#include "sheaf/array.h"

namespace sheaf {

struct PrintOptions {
  int precision = 4;               // significant digits after the point
  std::int64_t threshold = 1000;   // more elements than this, and the middle is left out ...
  std::int64_t edge = 3;           // ... but for so many at each end of each dim
};

std::string to_string(const Array& x, const PrintOptions& options = {});
std::ostream& operator<<(std::ostream& out, const Array& x);

}  // namespace sheaf
