// What there is for GPUs on this machine: the driver and its devices, and every library that Sheaf would open, each
// with its version or why it cannot be used.
#pragma once

#include <string>

namespace sheaf {

struct GpuReport {
  std::string text;  // a line per library and device, the reasons indented under theirs
  bool is_usable = false;  // a device, and a compiler for it
};

GpuReport report_gpus();

}  // namespace sheaf
