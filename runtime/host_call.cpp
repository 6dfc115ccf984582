// One variable of each thread.
#include "runtime/host_call.h"

#include <utility>

#include "fmt/format.h"

namespace sheaf::runtime {
namespace {

thread_local constinit const std::string* innermost = nullptr;

}  // namespace

HostCall::HostCall(const std::string& name) : outer_(std::exchange(innermost, &name)) {}
HostCall::~HostCall() { innermost = outer_; }

absl::Status check_not_in_host_call() {
  if (!innermost) return absl::OkStatus();
  return absl::FailedPreconditionError(fmt::format(
      "the device waits for the host function {}, which may neither run programs nor wait for arrays", *innermost));
}

}  // namespace sheaf::runtime
