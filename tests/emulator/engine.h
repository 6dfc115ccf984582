// Runs CUDA kernel text on this machine's CPU: every thread of a block is a fiber of one OS thread, and every access is
// checked against what a GPU would allow. A run is deterministic: the same text, buffers and policy give the same
// memory, counters and fault.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tests/emulator/abi.h"

namespace sheaf::emulator {

struct Dim {
  unsigned x = 1, y = 1, z = 1;
};

struct Launch {
  Dim grid = {}, block = {};
  std::int64_t dynamic_shared_bytes = 0;
};

enum class Order { forward, reverse, random };  // of a block's threads between two barriers, and of blocks

struct Policy {
  Order order = Order::forward;
  bool late_copies = true;  // asynchronous copies happen when waited for, not when issued
  bool is_checked = true;  // else only barriers and warps are; all allocations then count as touched everywhere
  bool counts_accesses = false;  // fills in the counters of sectors and wavefronts
  std::uint64_t seed = 0;
};

/// Flags of a byte of an allocation: something wrote it since it was allocated; this run read it, wrote it.
struct Mark {
  static constexpr std::uint8_t kInitialised = 1, kRead = 2, kWritten = 4;
};

/// Memory that a kernel may touch. The run adds to the marks; the owner clears them.
struct Allocation {
  std::byte* data = nullptr;
  std::int64_t bytes = 0;
  std::string name;  // in faults
  std::uint8_t* marks = nullptr;  // of Mark, one per byte; null: everything is initialised, and nobody asks
  std::int64_t touched_begin = 0, touched_end = 0;  // the run sets them: all it touched lies between
};

/// Sectors are 32 bytes of global memory; "ideal" is what the distinct bytes of each request would fill.
struct Counters {
  std::int64_t sectors_read = 0, ideal_sectors_read = 0;
  std::int64_t sectors_written = 0, ideal_sectors_written = 0;
  std::int64_t shared_wavefronts = 0, ideal_shared_wavefronts = 0;
  std::int64_t threads = 0, barriers = 0;
};

struct SharedArray {
  const sf_host::SharedArray* declaration = nullptr;
  std::string name;
  std::int64_t bytes = 0;
};

class Module;

struct Kernel {
  std::string name;
  std::vector<int> param_bytes = {};  // in order; params[i] of a launch points to so many
  std::int64_t static_shared_bytes = 0;
  int max_threads = 1024;  // of __launch_bounds__
  std::vector<SharedArray> shared = {};
  void (*call)(void* const* params) = nullptr;
  const Module* module = nullptr;
};

/// One compiled text. Kernels live as long as their module.
class Module {
 public:
  Module(void* library, std::string object) : library_(library), object_(std::move(object)) {}
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;
  ~Module();

  const std::vector<Kernel>& kernels() const { return kernels_; }
  /// The line of the text that the instruction before `site` came from; 0 if unknown.
  int line_of(const void* site) const;

 private:
  friend absl::StatusOr<std::shared_ptr<Module>> load(std::string_view text);
  void* library_;
  std::string object_;
  std::vector<Kernel> kernels_;
  mutable std::mutex mutex_;
  mutable std::map<std::uintptr_t, int> lines_;  // by offset: asking costs a process, and only faults ask
};

/// InvalidArgument with the host compiler's words if it refuses the text.
absl::StatusOr<std::shared_ptr<Module>> load(std::string_view text);

/// Null if there is none of that name.
const Kernel* find(const Module& module, std::string_view entry);

/// Executes all blocks, one after the other. The error is the first fault, "kind: what, where": see fault_kind. The
/// geometry is taken as it is; limits are the driver's to enforce.
absl::StatusOr<Counters> run(const Kernel& kernel, const Launch& launch, void* const* params,
                             std::span<Allocation> allocations, const Policy& policy = {});

/// race, bounds, uninitialised, misaligned, divergence, deadlock, livelock, mbarrier or trap.
std::string_view fault_kind(const absl::Status& fault);

}  // namespace sheaf::emulator
