// The pool runs every index once whoever calls it from wherever, and passes exceptions on.
#include "runtime/thread_pool.h"

#include <doctest/doctest.h>
#include <pthread.h>

#include <atomic>
#include <numeric>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "ir/log.h"

namespace sheaf::runtime {
namespace {

void check_each_once(ThreadPool& pool, std::int64_t extent, std::int64_t grain) {
  std::vector<int> hits(extent, 0);  // plain ints: a race is a finding of the thread sanitizer
  pool.parallel_for(extent, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) ++hits[i];
  });
  CHECK(std::accumulate(hits.begin(), hits.end(), 0) == extent);
  for (const int hit : hits) REQUIRE(hit == 1);
}

TEST_CASE("a parallel loop runs every index exactly once") {
  for (const int threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    for (const std::int64_t extent : {0, 1, 2, 7, 64, 1000}) {
      for (const std::int64_t grain : {0, 1, 3, 64, 5000}) check_each_once(pool, extent, grain);
    }
  }
}

TEST_CASE("many threads use one pool at once") {
  ThreadPool pool(4);
  std::vector<std::thread> callers;
  std::atomic<std::int64_t> total{0};
  for (int t = 0; t < 8; ++t) {
    callers.emplace_back([&] {
      for (int round = 0; round < 200; ++round) {
        std::atomic<std::int64_t> sum{0};
        pool.parallel_for(50, 1, [&](std::int64_t begin, std::int64_t end) { sum += end - begin; });
        total += sum;
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  CHECK(total == 8 * 200 * 50);
}

TEST_CASE("a parallel loop inside a body runs serially") {
  ThreadPool pool(4);
  std::atomic<std::int64_t> total{0};
  pool.parallel_for(16, 1, [&](std::int64_t, std::int64_t) {
    const std::thread::id self = std::this_thread::get_id();
    pool.parallel_for(10, 1, [&](std::int64_t begin, std::int64_t end) {
      if (std::this_thread::get_id() == self) total += end - begin;
    });
  });
  CHECK(total == 160);
}

TEST_CASE("the first exception of a body reaches the caller and the pool works on") {
  ThreadPool pool(4);
  for (int round = 0; round < 20; ++round) {
    CHECK_THROWS_WITH_AS(pool.parallel_for(100, 1,
                                           [](std::int64_t begin, std::int64_t) {
                                             if (begin == 30) throw std::runtime_error("thirty");
                                           }),
                         "thirty", std::runtime_error);
    check_each_once(pool, 100, 1);
  }
}

TEST_CASE("a pool that cannot start its threads says so once and runs on with fewer") {
  std::vector<std::string> lines;
  ir::LogSink before_sink = ir::set_log_sink([&](std::string_view line) { lines.emplace_back(line); });
  pthread_attr_t before, huge;
  REQUIRE(pthread_getattr_default_np(&before) == 0);
  REQUIRE(pthread_getattr_default_np(&huge) == 0);
  REQUIRE(pthread_attr_setstacksize(&huge, std::size_t{1} << 50) == 0);
  REQUIRE(pthread_setattr_default_np(&huge) == 0);
  ThreadPool pool(3);
  check_each_once(pool, 100, 1);
  REQUIRE(pthread_setattr_default_np(&before) == 0);
  ir::set_log_sink(before_sink);
  check_each_once(pool, 100, 1);
  REQUIRE(lines.size() == 1);
  CHECK(lines[0] == "sheaf warning: could start only 0 of 2 pool threads: Resource temporarily unavailable");
}

TEST_CASE("small loops stay on the caller's thread and large ones get chunks of 4 us") {
  ThreadPool pool(4);
  CHECK(pool.grain(100, 10'000) == 100);           // 1 us in all
  CHECK(pool.grain(100, 1'000'000) == 4);          // 100 us: 25 chunks
  CHECK(pool.grain(1'000'000, 1'000'000) == 31250);  // 1 s: 8 chunks for each of 4 threads
  CHECK(pool.grain(3, INT64_MAX) == 1);
  CHECK(pool.grain(0, 1000) == 1);
  CHECK(ThreadPool(1).grain(1'000'000, 1'000'000) == 1'000'000);
}

}  // namespace
}  // namespace sheaf::runtime
