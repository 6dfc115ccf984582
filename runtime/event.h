// A place in the work that a device was asked for: when the event is over, so is all that was asked before it, or it
// has failed. A CPU does what it is asked at once and needs none: its events are null.
#pragma once

#include <memory>

#include "absl/status/status.h"

namespace sheaf::runtime {

class Event {
 public:
  virtual ~Event() = default;
  /// Does not wait.
  virtual bool is_over() const = 0;
  /// Blocks until it is over; the error of the work.
  virtual absl::Status wait() const = 0;
};
using EventPtr = std::shared_ptr<const Event>;

}  // namespace sheaf::runtime
