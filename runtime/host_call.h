// A function of the host that a program calls is waited for by the device, so it cannot ask the device for anything:
// here is known which one a thread is in.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace sheaf::runtime {

class HostCall {
 public:
  explicit HostCall(const std::string& name);
  ~HostCall();
  HostCall(const HostCall&) = delete;
  HostCall& operator=(const HostCall&) = delete;

 private:
  const std::string* outer_;
};

/// FailedPrecondition on a thread that is in one.
absl::Status check_not_in_host_call();

}  // namespace sheaf::runtime
