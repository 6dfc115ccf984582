// What SHEAF_FAKE_CUDA_* ask of the fake driver; read when the library is opened and at each reset.
#pragma once

#include <cstdint>
#include <string>

namespace sheaf::fake_cuda {

struct Options {
  /// Which stream goes on when several can: the one that a caller waits for and, where it needs them, those that it
  /// waits for; any; or any other first. Each is allowed to a real driver.
  enum class Order { waited_first, random, waited_last };

  int devices = 1;  // SHEAF_FAKE_CUDA_DEVICES
  int major = 9, minor = 0;  // SHEAF_FAKE_CUDA_ARCH: "sm_90", "sm_120"
  std::int64_t memory_bytes = 1LL << 30;  // SHEAF_FAKE_CUDA_MEMORY: of each device
  int version = 13000;  // SHEAF_FAKE_CUDA_VERSION
  unsigned init_result = 0;  // SHEAF_FAKE_CUDA_INIT: what cuInit returns
  std::string lacks;  // SHEAF_FAKE_CUDA_LACKS: an entry point that cuGetProcAddress does not know
  Order order = Order::waited_first;  // SHEAF_FAKE_CUDA_ORDER: waited_first, random, waited_last
  std::uint64_t seed = 1;  // SHEAF_FAKE_CUDA_SEED
  int patience_ms = 10'000;  // SHEAF_FAKE_CUDA_PATIENCE_MS: how long what nothing can end is waited for
  bool checks_kernels = true;  // SHEAF_FAKE_CUDA_CHECK: 0 for speed
  bool counts_accesses = false;  // SHEAF_FAKE_CUDA_COUNT: 1 for the counters of sectors and wavefronts
  std::string report;  // SHEAF_FAKE_CUDA_REPORT: the file that faults are added to; "": stderr
  bool lists_leaks = false;  // SHEAF_FAKE_CUDA_LEAKS: 1 to list them when the process ends
};

Options read_options();

}  // namespace sheaf::fake_cuda
