// One count and one condition.
#include "runtime/compiler_gate.h"

#include <unistd.h>

#include "runtime/fork.h"

namespace sheaf::runtime {
namespace {

thread_local int visits = 0;

struct MainThread {
  ~MainThread() {
    if (gettid() == getpid()) CompilerGate::global().close();
  }
};

}  // namespace

CompilerGate& CompilerGate::global() {
  static CompilerGate* const gate = new CompilerGate;
  return *gate;
}

bool CompilerGate::enter() {
  std::lock_guard lock(mutex_);
  if (is_closed_) return false;
  ++inside_;
  ++visits;
  return true;
}

void CompilerGate::leave() {
  std::lock_guard lock(mutex_);
  --inside_;
  --visits;
  left_.notify_all();
}

void CompilerGate::close() {
  if (!check_not_forked().ok()) return;  // who was inside does not exist in this process
  std::unique_lock lock(mutex_);
  is_closed_ = true;
  left_.wait(lock, [&] { return inside_ == visits; });
}

void close_compiler_with_main_thread() {
  static thread_local MainThread thread;
  (void)thread;
}

}  // namespace sheaf::runtime
