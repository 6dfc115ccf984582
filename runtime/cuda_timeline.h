// When a GPU did what, on the host's clock. Events that keep time are put around work in its streams; what they say is
// read once they are over, and is counted from a moment that both clocks know.
#pragma once

#include <cstdint>
#include <deque>
#include <mutex>
#include <vector>

#include "ir/profile.h"
#include "runtime/driver/cuda.h"

namespace sheaf::runtime {

class CudaContext;

class CudaTimeline {
 public:
  explicit CudaTimeline(CudaContext& gpu) : gpu_(gpu) {}

  /// A place in a stream's work; no event where the driver has none for it.
  struct Mark {
    cuda::CUevent event = nullptr;
    std::uint64_t origin = 0;  // what it will be counted from
  };
  /// The moment when the stream gets here.
  Mark mark(cuda::CUstream stream);
  /// Between two moments, which this takes back.
  void add(const ir::ProfileSpan& span, const Mark& begun, const Mark& ended);
  void drop(const Mark& mark);
  /// Waits for all that was added, and puts it into the log.
  void settle();

 private:
  /// A moment that both clocks know.
  struct Origin {
    cuda::CUevent event = nullptr;
    std::int64_t ns = 0;
    int marks = 0;  // that are counted from it
  };
  struct Pending {
    ir::ProfileSpan span;
    Mark begun, ended;
  };

  cuda::CUevent take_event_locked();
  void give_back_locked(const Mark& mark);
  Origin& origin_locked(std::uint64_t number) { return origins_[number - first_origin_]; }
  bool renew_origin_locked();
  bool read_locked(Pending& pending);
  void settle_locked(std::size_t most_left);

  CudaContext& gpu_;
  std::mutex mutex_;  // guards what follows
  std::vector<cuda::CUevent> free_;
  std::deque<Pending> pending_;
  std::deque<Origin> origins_;  // the last is that of new marks
  std::uint64_t first_origin_ = 0;
  cuda::CUstream clock_ = nullptr;  // where nothing else is ever asked for
};

}  // namespace sheaf::runtime
