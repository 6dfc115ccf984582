// One run of a program on all devices of its mesh: what the devices share while it lasts. Invariant: it becomes ready
// or failed as a whole. A device that fails sends all others home from the collectives they come to, so nobody waits
// for it, and the error names it.
#pragma once

#include <absl/status/status.h>

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "codegen/program.h"
#include "runtime/buffer.h"
#include "runtime/rendezvous.h"

namespace sheaf::runtime {

class CudaCollectives;
class LateError;

class SpmdRun {
 public:
  SpmdRun(const codegen::Program& program, std::span<Device* const> devices, std::chrono::milliseconds timeout,
          std::shared_ptr<Completion> completion);

  /// The devices meet in their streams; else by what they bring to the host's memory.
  bool meets_in_streams() const { return gpus_ != nullptr; }
  /// What became of the meetings in streams.
  std::shared_ptr<const LateError> late_error() const { return late_; }
  /// Begins the collective with the part of the device at `position` of the mesh, and waits for it if it says so. One
  /// that it began over the same groups is done before. Between GPUs it is the device's stream that waits.
  absl::Status collective(int position, Rendezvous::Part part);
  /// Waits for the collective over these groups that the device has begun, if there is one.
  absl::Status await(int position, int groups);
  /// Whether the device has begun a collective that it has not waited for.
  bool has_begun(int position) const { return begun_[position] > 0; }
  /// Ends all meetings: nothing that a device brought is read any more once this returns.
  void send_home();
  /// The device at `position` has failed: it ends all meetings, and its work comes after those that it has begun.
  void leave(int position);
  /// How the part of one device ended. `inherited`: the error is that of an input, and is passed on as it is. `flight`:
  /// the device has been asked for all of it, and does it.
  struct End {
    absl::Status status = {};
    bool inherited = false;
    FlightPtr flight = nullptr;
  };
  /// The device at `position` has done its part, been asked for it, or failed in it. The last one finishes the
  /// completion; where the run has failed and somebody does not come to an end within the timeout, the others, who wait
  /// here so long, finish it.
  void end(int position, End end);
  /// The device at `position` will not begin.
  void refuse(int position, absl::Status status);

 private:
  struct Place {
    Rendezvous* rendezvous = nullptr;
    int member = 0;
    bool has_begun = false;  // what it has not waited for; the device's own to read and write
    EventPtr done = nullptr;  // in streams: its end
  };

  /// Remembers the first error of a meeting, and sends everyone home.
  absl::Status fail_together(absl::Status error);
  absl::Status outcome() const;
  absl::Status work(std::span<const Rendezvous::Part> parts) const;
  /// What the device has done in its streams, if it has met others there without success.
  void find_late_error(absl::Status& own);
  void finish(std::unique_lock<std::mutex> lock);

  const std::vector<Device*> devices_;
  CudaCollectives* const gpus_;
  const std::shared_ptr<LateError> late_;
  const std::chrono::milliseconds timeout_;
  const std::shared_ptr<Completion> completion_;
  std::vector<std::unique_ptr<Rendezvous>> rendezvous_;
  std::vector<std::vector<Place>> places_;  // [groups of the program][position]
  std::vector<int> begun_;  // [position]: the number of its places that have begun; the device's own

  std::mutex mutex_;  // guards what follows
  std::condition_variable ended_;
  std::vector<End> own_;  // of each device
  absl::Status together_;  // the error of a meeting, which is nobody's own
  int running_;
  bool is_finished_ = false;
};

/// SHEAF_COLLECTIVE_TIMEOUT seconds, 60 unless it is set; 0 waits for ever.
std::chrono::milliseconds collective_timeout();

}  // namespace sheaf::runtime
