// Counts of what the runtime has done since the process began, so that tests and users can prove what did not happen
// ("no compilation after warm"). Invariant: counters only grow.
#pragma once

#include <atomic>
#include <cstdint>

namespace sheaf::runtime {

inline constexpr int kCollectiveKinds = 6;

/// Of one kind of collective.
struct CollectiveCounters {
  std::atomic<std::int64_t> meetings{0};  // of a group, however many devices it has
  std::atomic<std::int64_t> bytes{0};     // that crossed from one device to another
};

struct Counters {
  std::atomic<std::int64_t> kernels_compiled{0};     // by the compiler
  std::atomic<std::int64_t> kernels_read{0};         // from the disk cache
  std::atomic<std::int64_t> turns_awaited{0};        // for another process to compile what this one was about to
  std::atomic<std::int64_t> kernels_loaded{0};       // machine code made callable: compiled, or read from a cache
  std::atomic<std::int64_t> launches{0};             // steps run
  std::atomic<std::int64_t> interpreted_launches{0}; // of those, by the interpreter
  std::atomic<std::int64_t> overlapped_launches{
      0};  // of those, while the device had begun a collective not yet awaited
  std::atomic<std::int64_t> graphs_instantiated{0};  // sequences of a GPU's launches made one
  std::atomic<std::int64_t> graph_launches{0};       // of those
  std::atomic<std::int64_t> nodes_patched{0};        // launches in them whose buffers changed
  std::atomic<std::int64_t> library_calls{0};        // steps that a library of the device did
  std::atomic<std::int64_t> packed_copies_kept{0};   // of arrays that products read again and again
  std::atomic<std::int64_t> packed_copies_read{0};   // by products, instead of packing once more
  std::atomic<std::int64_t> packed_copies_dropped{0};  // to make room for others
  std::atomic<std::int64_t> executions{0};           // programs run
  std::atomic<std::int64_t> executions_inline{0};    // of those, by the calling thread
  std::atomic<std::int64_t> queue_threads_called{0}; // to tasks that were pushed, by a system call if they slept
  std::atomic<std::int64_t> bytes_allocated{0};      // in blocks handed out, reused or not
  std::atomic<std::int64_t> bytes_through_host{0};   // of GPUs, for steps and moves that the host does in its memory
  CollectiveCounters collectives[kCollectiveKinds];  // by ir::lowering::Collective::Kind
};

/// The process's counters.
Counters& counters();

}  // namespace sheaf::runtime
