// A queue keeps order, holds callers back, and says why it cannot work.
#include "runtime/queue.h"

#include <doctest/doctest.h>
#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <latch>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "runtime/counters.h"

namespace sheaf::runtime {
namespace {

/// Returns once a task runs that ends when it may.
void occupy(Queue& queue, std::latch& may_end) {
  const auto is_running = std::make_shared<std::latch>(1);
  REQUIRE(queue
              .push([is_running, &may_end] {
                is_running->count_down();
                may_end.wait();
              })
              .ok());
  is_running->wait();
}

TEST_CASE("tasks run one at a time in the order they came") {
  std::vector<int> order;  // plain: a race is a finding of the thread sanitizer
  Queue queue("test", 4);
  for (int i = 0; i < 100; ++i) REQUIRE(queue.push([&, i] { order.push_back(i); }).ok());
  REQUIRE(queue.drain().ok());
  std::vector<int> expected(100);
  std::iota(expected.begin(), expected.end(), 0);
  CHECK(order == expected);
}

TEST_CASE("a caller that runs ahead is held back at the depth of the queue") {
  Queue queue("test", 2);
  std::latch may_end(1);
  occupy(queue, may_end);
  std::atomic<int> pushed{0};
  std::thread caller([&] {
    for (int i = 0; i < 3; ++i) {
      (void)queue.push([] {});
      ++pushed;
    }
  });
  while (pushed < 2) std::this_thread::yield();
  CHECK(pushed == 2);  // the third has no room before the first task ends
  may_end.count_down();
  caller.join();
  CHECK(pushed == 3);
}

TEST_CASE("who waits runs the tasks that may be, in their turn, and no others") {
  Queue queue("test", 8);
  std::latch may_end(1);
  occupy(queue, may_end);
  std::vector<std::thread::id> by;
  for (int i = 0; i < 2; ++i)
    REQUIRE(queue.push([&] { by.push_back(std::this_thread::get_id()); }, Queue::By::waiter).ok());
  std::atomic<bool> helps_in_task = true;
  REQUIRE(queue
              .push(
                  [&] {
                    by.push_back(std::this_thread::get_id());
                    helps_in_task = queue.help();
                    CHECK(!queue.drain().ok());
                  },
                  Queue::By::waiter)
              .ok());
  REQUIRE(queue.push([&] { by.push_back(std::this_thread::get_id()); }).ok());
  CHECK(!queue.help());  // one runs
  may_end.count_down();
  std::size_t here = 0;
  while (!queue.is_idle()) here += queue.help();
  CHECK(by.size() == 4);
  CHECK(std::size_t(std::ranges::count(by, std::this_thread::get_id())) == here);  // the thread may have been quicker
  CHECK(by.back() != std::this_thread::get_id());
  CHECK(!helps_in_task);
}

/// Returns once the thread has not been called for a task that was run here.
void make_habit(Queue& queue) {
  const std::atomic<std::int64_t>& called = counters().queue_threads_called;
  for (std::int64_t before = -1; called != before;) {
    before = called;
    REQUIRE(queue.push([] {}, Queue::By::waiter).ok());
    while (!queue.is_idle()) (void)queue.help();
  }
}

TEST_CASE("the thread is not called for what who waits runs each time, but runs what is left to it") {
  Queue queue("test", 8);
  std::atomic<int> runs = 0;
  const auto run = [&] { ++runs; };
  make_habit(queue);
  REQUIRE(queue.push(run, Queue::By::waiter).ok());
  while (runs < 1) std::this_thread::yield();
  make_habit(queue);
  REQUIRE(queue.push(run, Queue::By::waiter).ok());
  CHECK(queue.drain().ok());
  CHECK(runs == 2);
  make_habit(queue);
  const std::int64_t before = counters().queue_threads_called;
  REQUIRE(queue.push(run).ok());
  CHECK(counters().queue_threads_called == before + 1);
  while (runs < 3) std::this_thread::yield();
}

TEST_CASE("a queue is stopped once the task is over that somebody who waits runs") {
  Queue queue("test", 8);
  std::atomic<bool> is_over = false;
  std::thread stopper;
  bool has_run_here = false;
  const auto task = [&, self = std::this_thread::get_id()] {
    if (std::this_thread::get_id() != self) return;
    has_run_here = true;
    stopper = std::thread([&] {
      queue.stop();
      CHECK(is_over);
    });
    while (queue.push([] {}).ok()) std::this_thread::yield();
    is_over = true;
  };
  while (!has_run_here) {  // the thread may be quicker
    REQUIRE(queue.push(task, Queue::By::waiter).ok());
    (void)queue.help();
  }
  stopper.join();
}

TEST_CASE("a stopped queue drops what waits and takes nothing more") {
  Queue queue("test", 8);
  std::latch is_running(1), may_end(1);
  std::atomic<int> done{0};
  REQUIRE(queue
              .push([&] {
                is_running.count_down();
                may_end.wait();
                ++done;
              })
              .ok());
  is_running.wait();
  REQUIRE(queue.push([&] { ++done; }).ok());
  std::thread stopper([&] { queue.stop(); });
  absl::Status status;
  while ((status = queue.push([] {})).ok()) std::this_thread::yield();
  CHECK(status.message() == "the queue test has been stopped");
  may_end.count_down();
  stopper.join();
  CHECK(done == 1);
}

TEST_CASE("a queue whose thread cannot be started is an error, and leaves the caller's signals as they were") {
  pthread_attr_t before, huge;
  REQUIRE(pthread_getattr_default_np(&before) == 0);
  REQUIRE(pthread_getattr_default_np(&huge) == 0);
  REQUIRE(pthread_attr_setstacksize(&huge, std::size_t{1} << 50) == 0);
  REQUIRE(pthread_setattr_default_np(&huge) == 0);
  Queue queue("test", 1);
  const absl::Status status = queue.push([] {});
  REQUIRE(pthread_setattr_default_np(&before) == 0);
  CHECK(status.message() == "the thread of the queue test cannot be started: Resource temporarily unavailable");
  sigset_t blocked;
  REQUIRE(pthread_sigmask(SIG_SETMASK, nullptr, &blocked) == 0);
  CHECK(sigismember(&blocked, SIGINT) == 0);
  REQUIRE(queue.push([] {}).ok());  // there is memory again
  CHECK(queue.drain().ok());
}

}  // namespace
}  // namespace sheaf::runtime
