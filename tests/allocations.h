// What the code under test asks of the heap, counted: a measure of work that is the same on every machine.
#pragma once

#include <cstdint>

namespace sheaf::tests {

struct Allocations {
  std::int64_t count = 0;
  std::int64_t bytes = 0;
};

/// Of this thread so far; nothing where a sanitizer has the heap.
Allocations allocations();

}  // namespace sheaf::tests
