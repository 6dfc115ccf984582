// pthread_atfork's child handler is the only code that runs in the child before the user's; it sets one flag.
#include "runtime/fork.h"

#include <pthread.h>

#include <atomic>
#include <mutex>

namespace sheaf::runtime {
namespace {

std::atomic<bool> is_forked{false};

}  // namespace

void note_thread_started() {
  static std::once_flag once;
  std::call_once(once,
                 [] { pthread_atfork(nullptr, nullptr, [] { is_forked.store(true, std::memory_order_relaxed); }); });
}

absl::Status check_not_forked() {
  if (!is_forked.load(std::memory_order_relaxed)) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "this process was forked after Sheaf had started its threads, and they do not exist in the child; "
      "fork before the first use of Sheaf, or start the child with exec");
}

}  // namespace sheaf::runtime
