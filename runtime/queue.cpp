// One mutex, two conditions: `called_` wakes the worker, `done_` wakes those who wait for room or for the end.
#include "runtime/queue.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <system_error>
#include <utility>

#include "runtime/counters.h"
#include "runtime/fork.h"
#include "runtime/signals.h"

namespace sheaf::runtime {
namespace {

// To wake a thread takes 5 to 10 us of who calls it, as much as small work does.
constexpr int kHabit = 2;  // tasks in a row that who waited has run
constexpr std::chrono::microseconds kFirstLook(100), kLongestLook(1000);

thread_local bool is_of_a_queue = false;  // what this thread runs

}  // namespace

Queue::Queue(std::string name, int depth) : name_(std::move(name)), depth_(depth) {}

Queue::~Queue() {
  if (!check_not_forked().ok()) {
    if (thread_.joinable()) thread_.detach();  // it does not exist in this process
    return;
  }
  (void)drain();
  stop();
}

absl::Status Queue::push(Task task, By by) {
  if (absl::Status status = check_not_forked(); !status.ok()) return status;
  std::unique_lock lock(mutex_);
  const auto has_room = [&] { return is_stopping_ || std::ssize(tasks_) < depth_; };
  if (!is_run_here() && !has_room()) {
    call_thread();
    done_.wait(lock, has_room);
  }
  if (is_stopping_) return absl::UnavailableError("the queue " + name_ + " has been stopped");
  if (!thread_.joinable()) {
    if (absl::Status status = start(); !status.ok()) return status;
  }
  tasks_.push_back({std::move(task), by});
  ++pushed_count_;
  if (by == By::waiter && is_looking_ && tasks_.size() == 1) return absl::OkStatus();
  counters().queue_threads_called.fetch_add(1, std::memory_order_relaxed);
  call_thread();
  return absl::OkStatus();
}

absl::Status Queue::start() {
  note_thread_started();
  const BlockSignals block;
  try {
    thread_ = std::thread([this] { work(); });
  } catch (const std::system_error& error) {
    return absl::ResourceExhaustedError("the thread of the queue " + name_ + " cannot be started: " + error.what());
  }
  pthread_setname_np(thread_.native_handle(), name_.substr(0, 15).c_str());
  return absl::OkStatus();
}

absl::Status Queue::drain() {
  if (absl::Status status = check_not_forked(); !status.ok()) return status;
  std::unique_lock lock(mutex_);
  if (is_run_here()) return absl::FailedPreconditionError("a task of the queue " + name_ + " waits for the queue");
  const std::uint64_t last = pushed_count_;
  call_thread();
  done_.wait(lock, [&] { return done_count_ >= last; });
  return absl::OkStatus();
}

bool Queue::wait_for_one() {
  if (is_of_a_queue || !check_not_forked().ok()) return false;
  std::unique_lock lock(mutex_);
  const std::uint64_t done = done_count_;
  if (done == pushed_count_) return false;
  call_thread();
  done_.wait(lock, [&] { return done_count_ > done; });
  return true;
}

bool Queue::help() {
  if (is_of_a_queue || !check_not_forked().ok()) return false;
  std::unique_lock lock(mutex_);
  if (runner_ != std::thread::id() || tasks_.empty() || tasks_.front().by != By::waiter) return false;
  is_of_a_queue = true;
  run_next(lock);
  is_of_a_queue = false;
  ++helped_in_a_row_;
  if (is_stopping_ || !tasks_.empty()) call_thread();  // it may have come meanwhile, and gone to sleep
  return true;
}

bool Queue::is_idle() {
  std::lock_guard lock(mutex_);
  return done_count_ == pushed_count_;
}

void Queue::stop() {
  if (!check_not_forked().ok()) return;
  std::deque<Waiting> dropped;
  {
    std::lock_guard lock(mutex_);
    is_stopping_ = true;
    dropped.swap(tasks_);
    done_count_ += dropped.size();
    call_thread();
    done_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

void Queue::work() {
  is_of_a_queue = true;
  std::unique_lock lock(mutex_);
  while (await_work(lock)) {
    helped_in_a_row_ = 0;
    run_next(lock);
  }
}

/// Asleep until it is called. In habit of not being it looks by itself, until a task has been left from one look to the
/// next, or none has come, or one takes who waits for it so long that a call before the next is nothing beside it.
/// False: it is to end.
bool Queue::await_work(std::unique_lock<std::mutex>& lock) {
  const auto is_free = [&] { return runner_ == std::thread::id(); };
  auto look = kFirstLook;
  while (!is_free() || !(is_stopping_ || (is_called_ && !tasks_.empty()))) {
    if (tasks_.empty()) is_called_ = false;
    const std::uint64_t before = pushed_count_;
    is_looking_ = helped_in_a_row_ >= kHabit;
    if (!is_looking_) {
      called_.wait(lock);
      continue;
    }
    called_.wait_for(lock, look);
    const bool may_end_soon = !is_free() && look < kLongestLook;
    look = std::min(2 * look, kLongestLook);
    if (pushed_count_ != before || may_end_soon) continue;
    is_called_ = !tasks_.empty();
    helped_in_a_row_ = 0;
  }
  is_looking_ = false;
  return !tasks_.empty();
}

void Queue::call_thread() {
  is_called_ = true;
  called_.notify_one();
}

void Queue::run_next(std::unique_lock<std::mutex>& lock) {
  Task task = std::move(tasks_.front().task);
  tasks_.pop_front();
  runner_ = std::this_thread::get_id();
  lock.unlock();
  task();
  task = nullptr;  // its captures die outside the lock
  lock.lock();
  runner_ = {};
  ++done_count_;
  done_.notify_all();
}

}  // namespace sheaf::runtime
