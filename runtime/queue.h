// A thread that runs tasks one at a time in the order they came, unless somebody waits for them who may as well run
// them. Where the last tasks went that way, the thread is not called for the next, but looks by itself now and then
// whether one has been left to it. Invariant: the thread starts with the first task, and at most `depth` tasks wait, so
// a caller that runs ahead is held back instead of filling memory.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <thread>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"

namespace sheaf::runtime {

class Queue {
 public:
  using Task = absl::AnyInvocable<void()>;  // must not throw
  /// Who may run a task: the queue's thread alone, or a thread that waits for it as well.
  enum class By : std::uint8_t { thread, waiter };

  Queue(std::string name, int depth);
  ~Queue();  // finishes what was pushed
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

  /// Blocks while `depth` tasks wait, unless called from a task of the queue. FailedPrecondition in a forked child,
  /// Unavailable after `stop`, ResourceExhausted where the system has no thread for the queue.
  absl::Status push(Task task, By by = By::thread);
  /// Runs the next task here, where none runs and the next may be run by who waits. False if not, and in a task of any
  /// queue: tasks of one may wait for another.
  bool help();
  /// Blocks until all tasks pushed before this call are done.
  absl::Status drain();
  /// Blocks until one more task is done. False where none waits or runs, and on the thread of any queue: tasks of one
  /// may wait for another.
  bool wait_for_one();
  /// Nothing waits or runs.
  bool is_idle();
  /// Finishes the task that runs, drops the others and ends the thread. Called once, and not from a task.
  void stop();

 private:
  absl::Status start();
  void work();
  bool await_work(std::unique_lock<std::mutex>& lock);
  void call_thread();
  void run_next(std::unique_lock<std::mutex>& lock);
  bool is_run_here() const { return runner_ == std::this_thread::get_id(); }

  const std::string name_;
  const int depth_;
  std::mutex mutex_;
  std::condition_variable called_, done_;
  struct Waiting {
    Task task;
    By by;
  };
  std::deque<Waiting> tasks_;
  std::thread::id runner_;  // of the task that runs; of no thread where none does
  std::uint64_t pushed_count_ = 0, done_count_ = 0;
  int helped_in_a_row_ = 0;  // tasks that who waited has run, since the thread last ran one or gave up looking
  bool is_called_ = false;  // the thread is to run the next task
  bool is_looking_ = false;  // it will come by itself
  bool is_stopping_ = false;
  std::thread thread_;
};

}  // namespace sheaf::runtime
