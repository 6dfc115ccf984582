// What the fake driver tells tests beyond the real one's entry points: faults, leaks, counters, a fresh start. Tests
// find these by dlsym in the library that they opened as the driver.
#pragma once

#include <cstdint>

namespace sheaf::fake_cuda {

/// Since the start, or the last reset.
struct Counters {
  std::int64_t faults, kernels, graph_launches, patched_nodes, allocations, host_calls;
  std::int64_t bytes_to_device, bytes_to_host, bytes_on_device;
  std::int64_t sectors_read, sectors_written, ideal_sectors_read, ideal_sectors_written;
  std::int64_t shared_wavefronts, ideal_shared_wavefronts;
};

}  // namespace sheaf::fake_cuda

extern "C" {
/// The text of the last misuse or kernel fault; "" before the first. Valid until the next.
const char* sheafFakeCudaLastFault();
/// One line for each thing that was made and not given back. Valid until the next call.
const char* sheafFakeCudaLeaks();
void sheafFakeCudaCounters(sheaf::fake_cuda::Counters* counters);
/// As after the process began: everything is forgotten, and SHEAF_FAKE_CUDA_* are read again. No call may be under way.
void sheafFakeCudaReset();
}
