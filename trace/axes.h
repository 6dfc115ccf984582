// The named axes of the vmaps being traced on this thread, innermost last.
#pragma once

#include <cstdint>
#include <string>

#include "sheaf/source.h"

namespace sheaf {

class AxisScope {
 public:
  /// An empty name opens nothing.
  AxisScope(std::string name, std::int64_t size);
  ~AxisScope();
  AxisScope(const AxisScope&) = delete;
  AxisScope& operator=(const AxisScope&) = delete;

 private:
  bool is_open_;
};

/// The size of the axis, or TypeError: `who` goes over an axis that no enclosing vmap has.
std::int64_t size_of_axis(const std::string& axis, std::string_view who, Loc loc);

}  // namespace sheaf
