// Who holds a device's memory: the user's lines that made what lives there, now and when most was in use.
//   for (const MemoryUse& use : live_memory()) ...       512 MiB in 2 arrays made at train.cpp:31
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sheaf/device.h"

namespace sheaf {

/// What one line has made: arrays, and what a program that it calls holds while it runs.
struct MemoryUse {
  Loc made_at = {};  // none: all blocks of at most 64 KiB together, and what the library holds for itself
  std::int64_t bytes = 0;
  std::int64_t blocks = 0;
  bool operator==(const MemoryUse&) const = default;
};

/// In use now, most bytes first. RuntimeError if there is no such device. Virtual CPU devices share the host's memory,
/// and each reports all of it.
std::vector<MemoryUse> live_memory(Device device = {}, Loc loc = Loc::current());
/// The same at the moment when most was in use, to within 2 percent of memory_stats().peak_bytes.
std::vector<MemoryUse> peak_memory(Device device = {}, Loc loc = Loc::current());
/// One line each: "512.0 MiB in 2 blocks made at train.cpp:31".
std::string to_string(const std::vector<MemoryUse>& uses);

}  // namespace sheaf
