// Keeps every thread out of the compiler while the process ends. Exit destroys what the compiler uses, in the reverse
// order of making, and the compiler makes its statics as it first needs them; so the gate is closed before that: when
// the main thread ends, or by an exit handler younger than those statics. Invariant: once `close` returns, no other
// thread is inside.
#pragma once

#include <condition_variable>
#include <mutex>

namespace sheaf::runtime {

class CompilerGate {
 public:
  /// The process's gate. Never destroyed.
  static CompilerGate& global();

  /// False if the process is ending. Otherwise `leave` follows, on the same thread.
  bool enter();
  void leave();
  /// Waits for those who are inside, but for the calling thread, and refuses all who come later.
  void close();

 private:
  std::mutex mutex_;
  std::condition_variable left_;
  int inside_ = 0;
  bool is_closed_ = false;
};

/// Has this thread, if it is the main one, close the gate as it ends: that is before exit destroys anything.
void close_compiler_with_main_thread();

}  // namespace sheaf::runtime
