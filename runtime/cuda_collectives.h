// Collectives between GPUs, by NCCL: the host puts one into the streams of all members at once, and nobody waits for it
// but the streams. Each device has one stream for them, and all streams get them in the same order, so that they cannot
// wait for each other crosswise. What goes wrong later, a guard notices, who gives up the members' communicators.
#pragma once

#include <chrono>
#include <memory>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "runtime/late_error.h"
#include "runtime/rendezvous.h"

namespace sheaf::runtime {

class Device;

class CudaCollectives {
 public:
  /// Those of these devices. Null where they are no GPUs, and where there is no NCCL, which is told once: then the
  /// host's memory serves.
  static CudaCollectives* between(std::span<Device* const> devices);

  /// One collective of the members that these parts are of, after what their events mark; sets the events that mark its
  /// end in each member's stream. `late` is told what becomes of it, where that is not what was asked for: it lasts
  /// `timeout` (0: for ever) from the moment that the first member's turn has come, or fails with who is missing.
  virtual absl::Status begin(std::span<const Rendezvous::Part> parts, std::chrono::milliseconds timeout,
                             const std::shared_ptr<LateError>& late) = 0;
  /// Something has failed: the guard looks at once.
  virtual void look() = 0;
  /// The process ends; all that was begun is done.
  static void finish();

 protected:
  ~CudaCollectives() = default;

 private:
  virtual void stop_looking() = 0;
};

}  // namespace sheaf::runtime
