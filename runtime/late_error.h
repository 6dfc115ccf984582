// The first error of work that several devices do together after it was asked for without one: whoever notices it says
// so here, and whoever waits for his part of the work looks here once it is over.
#pragma once

#include <mutex>
#include <utility>

#include "absl/status/status.h"

namespace sheaf::runtime {

class LateError {
 public:
  void set(absl::Status error) {
    std::lock_guard lock(mutex_);
    if (first_.ok()) first_ = std::move(error);
  }
  absl::Status get() const {
    std::lock_guard lock(mutex_);
    return first_;
  }

 private:
  mutable std::mutex mutex_;
  absl::Status first_;
};

}  // namespace sheaf::runtime
