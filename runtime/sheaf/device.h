// What a user can ask of the devices of this process: which there are, how much memory is used, and to wait for them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "sheaf/source.h"

namespace sheaf {

/// A device by number; cheap to copy.
struct Device {
  int id = 0;
  bool operator==(const Device&) const = default;
};
std::string to_string(Device device);  // "cpu:0", "cuda:1"

struct MemoryStats {
  std::int64_t bytes_in_use = 0;
  std::int64_t peak_bytes = 0;
  std::int64_t bytes_reserved = 0;  // taken from the system, in use or not
  std::int64_t bytes_limit = 0;     // SHEAF_MEMORY_LIMIT, else the memory and swap there are
};

/// Those of the process's platform, which SHEAF_PLATFORM names: "cpu" unless it is set, with SHEAF_CPU_DEVICES virtual
/// devices, one unless that is set; or "cuda", with the GPUs there are. Arrays that nobody put elsewhere are on the
/// first. RuntimeError where the platform cannot be used, with what was looked for and where.
std::vector<Device> devices(Loc loc = Loc::current());
/// Those of "cpu" or of "cuda", whatever the process's platform is.
std::vector<Device> devices(std::string_view platform, Loc loc = Loc::current());
/// From here on at least `count` CPU devices, to simulate a mesh on one machine; RuntimeError for more than 1024.
void ensure_devices(int count, Loc loc = Loc::current());
/// Virtual CPU devices share the host's memory, and each reports all of it. RuntimeError if there is no such device.
MemoryStats memory_stats(Device device = {}, Loc loc = Loc::current());
/// Blocks until all work dispatched so far is done. Errors stay with the arrays that carry them. Throws RuntimeError in
/// a child forked after the runtime had started its threads.
void synchronize(Loc loc = Loc::current());
void synchronize(Device device, Loc loc = Loc::current());

}  // namespace sheaf
