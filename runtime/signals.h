// Threads of the library are started with all signals blocked, so that the user's handlers run on the user's threads.
#pragma once

#include <signal.h>

namespace sheaf::runtime {

/// Blocks all signals of this thread, and so of the threads it starts, until it is destroyed.
class BlockSignals {
 public:
  BlockSignals() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~BlockSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  BlockSignals(const BlockSignals&) = delete;
  BlockSignals& operator=(const BlockSignals&) = delete;

 private:
  sigset_t before_;
};

}  // namespace sheaf::runtime
