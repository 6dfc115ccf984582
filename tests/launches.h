// How many kernels a call asks its devices for.
#pragma once

#include <cstdint>

#include "runtime/counters.h"
#include "sheaf/sheaf.h"

namespace sheaf::tests {

std::int64_t launches_of(const auto& call) {
  synchronize();
  const std::int64_t before = runtime::counters().launches;
  call();
  synchronize();
  return runtime::counters().launches - before;
}

}  // namespace sheaf::tests
