// One mutex, two conditions: `pushed_` wakes the worker, `done_` wakes those who wait for room or for the end.
#include "runtime/queue.h"

#include <pthread.h>
#include <signal.h>

#include <utility>

#include "runtime/fork.h"

namespace sheaf::runtime {

Queue::Queue(std::string name, int depth) : name_(std::move(name)), depth_(depth) {}

Queue::~Queue() {
  if (!check_not_forked().ok()) {
    if (thread_.joinable()) thread_.detach();  // it does not exist in this process
    return;
  }
  (void)drain();
  stop();
}

absl::Status Queue::push(Task task) {
  if (absl::Status status = check_not_forked(); !status.ok()) return status;
  std::unique_lock lock(mutex_);
  if (thread_.get_id() != std::this_thread::get_id())
    done_.wait(lock, [&] { return is_stopping_ || std::ssize(tasks_) < depth_; });
  if (is_stopping_) return absl::UnavailableError("the queue " + name_ + " has been stopped");
  if (!thread_.joinable()) start();
  tasks_.push_back(std::move(task));
  ++pushed_count_;
  pushed_.notify_one();
  return absl::OkStatus();
}

void Queue::start() {
  note_thread_started();
  // Signals are for the user's threads.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] { work(); });
  pthread_setname_np(thread_.native_handle(), name_.substr(0, 15).c_str());
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

absl::Status Queue::drain() {
  if (absl::Status status = check_not_forked(); !status.ok()) return status;
  std::unique_lock lock(mutex_);
  const std::uint64_t last = pushed_count_;
  done_.wait(lock, [&] { return done_count_ >= last; });
  return absl::OkStatus();
}

void Queue::stop() {
  if (!check_not_forked().ok()) return;
  std::deque<Task> dropped;
  {
    std::lock_guard lock(mutex_);
    is_stopping_ = true;
    dropped.swap(tasks_);
    done_count_ += dropped.size();
    pushed_.notify_all();
    done_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

bool Queue::is_idle() const {
  std::lock_guard lock(mutex_);
  return done_count_ == pushed_count_;
}

void Queue::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    pushed_.wait(lock, [&] { return is_stopping_ || !tasks_.empty(); });
    if (tasks_.empty()) return;
    Task task = std::move(tasks_.front());
    tasks_.pop_front();
    lock.unlock();
    task();
    task = nullptr;  // its captures die outside the lock
    lock.lock();
    ++done_count_;
    done_.notify_all();
  }
}

}  // namespace sheaf::runtime
