// Threads do not survive fork, so a runtime that has started some is dead in the child; these two functions make that a
// clear error instead of a hang.
#pragma once

#include "absl/status/status.h"

namespace sheaf::runtime {

/// To be called before a thread is started.
void note_thread_started();
/// FailedPrecondition in a child forked after the first thread was started.
absl::Status check_not_forked();

}  // namespace sheaf::runtime
