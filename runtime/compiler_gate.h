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

  /// Inside for as long as it lives; not if the process is ending.
  class Visit {
   public:
    explicit Visit(CompilerGate& gate) : gate_(gate), is_inside_(gate.enter()) {}
    ~Visit() {
      if (is_inside_) gate_.leave();
    }
    Visit(const Visit&) = delete;
    Visit& operator=(const Visit&) = delete;
    explicit operator bool() const { return is_inside_; }

   private:
    CompilerGate& gate_;
    const bool is_inside_;
  };

  /// Waits for those who are inside, but for the calling thread, and refuses all who come later.
  void close();

 private:
  bool enter();
  void leave();

  std::mutex mutex_;
  std::condition_variable left_;
  int inside_ = 0;
  bool is_closed_ = false;
};

/// Has this thread, if it is the main one, close the gate as it ends: that is before exit destroys anything. A main
/// thread that leaves by pthread_exit closes it too, and what other threads then ask to be compiled is refused.
void close_compiler_with_main_thread();

}  // namespace sheaf::runtime
