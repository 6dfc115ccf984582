// One pool of threads for all parallel loops of the process: chunks are handed out by ticket, the caller takes tickets
// too, and helpers that never show up are not waited for. Invariant: which thread runs a chunk never affects a value,
// because chunks are disjoint and their borders do not depend on who takes them.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/functional/function_ref.h"

namespace sheaf::runtime {

class ThreadPool {
 public:
  /// Runs [begin, end) of a loop.
  using Body = absl::FunctionRef<void(std::int64_t begin, std::int64_t end)>;

  /// `threads` counts the caller: a pool of one starts no thread. Threads start with the first parallel loop.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  /// The process's pool: SHEAF_NUM_THREADS threads, else one per CPU this process may use. Never destroyed.
  static ThreadPool& global();

  int threads() const { return threads_; }

  /// Runs `body` over [0, extent) in chunks of `grain` (the last may be shorter) and returns when all are done. A call
  /// from inside a body, and one in a forked child, runs serially. The first exception a body throws is rethrown here,
  /// after the chunks that had begun are done; the others are skipped.
  void parallel_for(std::int64_t extent, std::int64_t grain, Body body);

  /// The grain for `extent` units of `unit_ps` picoseconds: chunks of at least 4 us, at most 8 per thread; `extent`
  /// (one chunk) where the whole is below 8 us and a hand-over would cost more than it saves.
  std::int64_t grain(std::int64_t extent, std::int64_t unit_ps) const;

 private:
  struct Workers;
  int threads_;
  std::unique_ptr<Workers> workers_;
};

/// Work below this many picoseconds is done by the thread that has it.
inline constexpr std::int64_t kSerialPs = 8'000'000;

}  // namespace sheaf::runtime
