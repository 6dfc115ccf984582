// Ticket scheduling: a job is a counter on its caller's stack, listed in the pool while it has chunks left. Invariant:
// a helper joins a job under the pool's lock and leaves it under the same lock, so a job never dies with a helper in
// it.
#include "runtime/thread_pool.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "fmt/format.h"
#include "ir/log.h"
#include "runtime/fork.h"
#include "runtime/signals.h"
#include "runtime/spin.h"

namespace sheaf::runtime {
namespace {

constexpr std::int64_t kChunkPs = 4'000'000;
constexpr std::int64_t kChunksPerThread = 8;

thread_local bool is_inside_body = false;

struct Job {
  ThreadPool::Body body;
  std::int64_t extent, grain, chunks;
  std::atomic<std::int64_t> next{0};
  int helpers = 0;           // guarded by Workers::mutex
  std::exception_ptr error;  // the same

  bool has_tickets() const { return next.load(std::memory_order_relaxed) < chunks; }
};

}  // namespace

struct ThreadPool::Workers {
  std::once_flag once;
  std::mutex mutex;
  std::vector<Job*> jobs;                // guarded by mutex
  std::atomic<std::uint32_t> posted{0};  // grows with every job
  std::atomic<std::uint32_t> left{0};    // grows when the last helper leaves a job
  std::atomic<bool> is_stopping{false};
  std::vector<std::thread> threads;

  void start(int count);
  void loop();
  void work_on(Job& job);
  Job* join_a_job();
  void leave(Job& job);
  void withdraw(Job& job);
};

void ThreadPool::Workers::start(int count) {
  note_thread_started();
  const BlockSignals block;
  for (int i = 0; i < count; ++i) {
    try {
      threads.emplace_back([this] { loop(); });
      pthread_setname_np(threads.back().native_handle(), "sheaf-pool");
    } catch (const std::system_error& error) {
      ir::warn(fmt::format("could start only {} of {} pool threads: {}", i, count, error.what()));
      break;
    }
  }
}

void ThreadPool::Workers::loop() {
  is_inside_body = true;
  std::uint32_t seen = 0;
  while (!is_stopping.load(std::memory_order_acquire)) {
    seen = wait_while_equal(posted, seen);
    while (Job* job = join_a_job()) {
      work_on(*job);
      leave(*job);
    }
  }
}

void ThreadPool::Workers::work_on(Job& job) {
  for (;;) {
    const std::int64_t ticket = job.next.fetch_add(1, std::memory_order_relaxed);
    if (ticket >= job.chunks) return;
    const std::int64_t begin = ticket * job.grain;
    try {
      job.body(begin, std::min(begin + job.grain, job.extent));
    } catch (...) {
      job.next.store(job.chunks, std::memory_order_relaxed);
      std::lock_guard lock(mutex);
      if (!job.error) job.error = std::current_exception();
    }
  }
}

Job* ThreadPool::Workers::join_a_job() {
  std::lock_guard lock(mutex);
  for (Job* job : jobs) {
    if (!job->has_tickets()) continue;
    ++job->helpers;
    return job;
  }
  return nullptr;
}

void ThreadPool::Workers::leave(Job& job) {
  std::lock_guard lock(mutex);
  if (--job.helpers > 0) return;
  left.fetch_add(1, std::memory_order_release);
  left.notify_all();
}

void ThreadPool::Workers::withdraw(Job& job) {
  std::unique_lock lock(mutex);
  jobs.erase(std::find(jobs.begin(), jobs.end(), &job));
  while (job.helpers > 0) {
    const std::uint32_t seen = left.load(std::memory_order_acquire);
    lock.unlock();
    wait_while_equal(left, seen);
    lock.lock();
  }
}

ThreadPool::ThreadPool(int threads) : threads_(std::max(threads, 1)), workers_(std::make_unique<Workers>()) {}

ThreadPool::~ThreadPool() {
  workers_->is_stopping.store(true, std::memory_order_release);
  workers_->posted.fetch_add(1, std::memory_order_release);
  workers_->posted.notify_all();
  for (std::thread& thread : workers_->threads) thread.join();
}

void ThreadPool::parallel_for(std::int64_t extent, std::int64_t grain, Body body) {
  if (extent <= 0) return;
  grain = std::max<std::int64_t>(grain, 1);
  if (grain >= extent || threads_ == 1 || is_inside_body || !check_not_forked().ok()) {
    body(0, extent);
    return;
  }
  std::call_once(workers_->once, [&] { workers_->start(threads_ - 1); });
  Job job{.body = body, .extent = extent, .grain = grain, .chunks = (extent - 1) / grain + 1, .error = {}};
  {
    std::lock_guard lock(workers_->mutex);
    workers_->jobs.push_back(&job);
  }
  workers_->posted.fetch_add(1, std::memory_order_release);
  workers_->posted.notify_all();
  is_inside_body = true;
  workers_->work_on(job);
  is_inside_body = false;
  workers_->withdraw(job);
  if (job.error) std::rethrow_exception(job.error);
}

std::int64_t ThreadPool::grain(std::int64_t extent, std::int64_t unit_ps) const {
  const double total_ps = static_cast<double>(extent) * static_cast<double>(std::max<std::int64_t>(unit_ps, 1));
  if (threads_ == 1 || extent <= 1 || total_ps < static_cast<double>(kSerialPs))
    return std::max<std::int64_t>(extent, 1);
  const auto wanted = static_cast<std::int64_t>(
      std::min(total_ps / static_cast<double>(kChunkPs), static_cast<double>(kChunksPerThread * threads_)));
  const std::int64_t chunks = std::min(std::max<std::int64_t>(wanted, 1), extent);
  return (extent - 1) / chunks + 1;
}

namespace {

/// The CPUs that a container's quota allows, or 0 where there is none.
int cgroup_cpus() {
  std::FILE* file = std::fopen("/sys/fs/cgroup/cpu.max", "re");
  if (!file) return 0;
  long long quota_us = 0, period_us = 0;
  const int fields = std::fscanf(file, "%lld %lld", &quota_us, &period_us);  // "max 100000" gives 0
  std::fclose(file);
  if (fields != 2 || quota_us <= 0 || period_us <= 0) return 0;
  return static_cast<int>(std::max<long long>((quota_us + period_us - 1) / period_us, 1));
}

int usable_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  const int allowed = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
  const int quota = cgroup_cpus();
  return std::max(quota > 0 ? std::min(allowed, quota) : allowed, 1);
}

int configured_threads() {
  const char* text = std::getenv("SHEAF_NUM_THREADS");
  if (!text || !*text) return usable_cpus();
  char* end = nullptr;
  const long value = std::strtol(text, &end, 10);
  if (*end == '\0' && value >= 1 && value <= 1024) return static_cast<int>(value);
  ir::warn(fmt::format("SHEAF_NUM_THREADS={} is not a number from 1 to 1024; using {}", text, usable_cpus()));
  return usable_cpus();
}

}  // namespace

ThreadPool& ThreadPool::global() {
  static ThreadPool* const pool = new ThreadPool(configured_threads());
  return *pool;
}

}  // namespace sheaf::runtime
