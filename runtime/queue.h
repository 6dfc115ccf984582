// A thread that runs tasks one at a time in the order they came. Invariant: the thread starts with the first task, and
// at most `depth` tasks wait, so a caller that runs ahead is held back instead of filling memory.
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

  Queue(std::string name, int depth);
  ~Queue();  // finishes what was pushed
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

  /// Blocks while `depth` tasks wait, unless called from the queue's own thread. FailedPrecondition in a forked child,
  /// Unavailable after `stop`, ResourceExhausted where the system has no thread for the queue.
  absl::Status push(Task task);
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

  const std::string name_;
  const int depth_;
  std::mutex mutex_;
  std::condition_variable pushed_, done_;
  std::deque<Task> tasks_;
  std::uint64_t pushed_count_ = 0, done_count_ = 0;
  bool is_stopping_ = false;
  std::thread thread_;
};

}  // namespace sheaf::runtime
