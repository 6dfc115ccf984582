// One maker per key, errors for all who waited and for no one later; kernels compile once and switch tiers in silence.
#include "runtime/cache.h"

#include <doctest/doctest.h>

#include <atomic>
#include <latch>
#include <stdexcept>
#include <thread>

#include "ir/log.h"
#include "runtime/counters.h"
#include "tests/runtime/programs.h"

namespace sheaf::runtime {
namespace {

TEST_CASE("eight threads that want one value get the one that was made") {
  SingleFlightMap<int, int> map;
  std::atomic<int> made{0};
  std::latch start(8);
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&] {
      start.arrive_and_wait();
      for (int key = 0; key < 20; ++key) {
        const auto value = map.get_or_make(key, [&]() -> absl::StatusOr<int> {
          ++made;
          return key * 10;
        });
        if (!value.ok() || *value != key * 10) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(made == 20);
  CHECK(wrong == 0);
}

TEST_CASE("an error goes to those who waited and is tried again by the next") {
  SingleFlightMap<std::string, int> map;
  std::atomic<int> made{0};
  std::latch is_making(1), may_fail(1);
  auto fail = [&]() -> absl::StatusOr<int> {
    ++made;
    is_making.count_down();
    may_fail.wait();
    return absl::UnavailableError("no compiler");
  };
  absl::Status first;
  std::thread maker([&] { first = map.get_or_make("k", fail).status(); });
  is_making.wait();
  absl::Status second;
  std::atomic<bool> asked{false};
  std::thread waiter([&] {
    asked = true;
    second =
        map.get_or_make("k", [&]() -> absl::StatusOr<int> { return absl::UnavailableError("no compiler"); }).status();
  });
  while (!asked) std::this_thread::yield();
  may_fail.count_down();
  maker.join();
  waiter.join();
  CHECK(made == 1);
  CHECK(first.message() == "no compiler");
  CHECK(second.message() == "no compiler");
  CHECK(*map.get_or_make("k", []() -> absl::StatusOr<int> { return 5; }) == 5);
}

TEST_CASE("asking for a value while making it is an error, and so is an exception of the maker for the others") {
  SingleFlightMap<int, int> map;
  const auto nested = map.get_or_make(1, [&] { return map.get_or_make(1, []() -> absl::StatusOr<int> { return 1; }); });
  CHECK(nested.status().message() == "a value was asked for while it was being made");
  CHECK_THROWS_AS((void)map.get_or_make(1, []() -> absl::StatusOr<int> { throw std::runtime_error("bug"); }),
                  std::runtime_error);
  CHECK(*map.get_or_make(1, []() -> absl::StatusOr<int> { return 2; }) == 2);
}

TEST_CASE("a kernel that two programs share is compiled once") {
  std::atomic<int> compiled{0};
  KernelCache cache([&](const codegen::KernelCode&) {
    ++compiled;
    return CompiledKernel{.phases = {testing::gated_affine}, .owner = nullptr};
  });
  const codegen::Program a = testing::affine_program({.key = "same"}), b = testing::affine_program({.key = "same"});
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&, t] { CHECK(cache.compile(cache.get(t % 2 ? a.kernels : b.kernels)).ok()); });
  for (std::thread& thread : threads) thread.join();
  CHECK(compiled == 1);
  CHECK(cache.get(a.kernels) == cache.get(b.kernels));
}

TEST_CASE("a compiler's error is returned by load, and the next load tries again") {
  std::atomic<bool> is_broken{true};
  KernelCache cache([&](const codegen::KernelCode& code) -> absl::StatusOr<CompiledKernel> {
    if (is_broken) return absl::UnavailableError(code.name + ": no plug-in");
    return CompiledKernel{.phases = {testing::gated_affine}, .owner = nullptr};
  });
  const LoadOptions options{.tier = Tier::compiled, .cache = &cache};
  CHECK(Executable::load(testing::affine_program({}), options).status().message() == "affine: no plug-in");
  is_broken = false;
  CHECK(Executable::load(testing::affine_program({}), options).ok());
}

TEST_CASE("a tiny program is interpreted at first and compiled in the background after some runs") {
  const LoadOptions options{.interpreted_runs = 4, .cache = &testing::gated_cache()};
  const ExecutablePtr executable = testing::load({.rows = 2, .key = "two tiers"}, options);
  const BufferPtr a = testing::floats(2, 1), b = testing::floats(2, 3);
  const std::int64_t before = counters().interpreted_launches;
  for (int i = 0; i < 2; ++i) CHECK(testing::only_value(testing::run_one(executable, {a, b})) == 13);
  CHECK(counters().interpreted_launches - before == 4);  // two runs of two steps
  testing::gated_cache().wait_for_background();
  for (int i = 0; i < 2; ++i) CHECK(testing::only_value(testing::run_one(executable, {a, b})) == 13);
  CHECK(counters().interpreted_launches - before == 4);
}

TEST_CASE("a kernel that the background cannot compile stays interpreted, with one warning") {
  KernelCache cache([](const codegen::KernelCode&) { return absl::UnavailableError("no plug-in"); });
  std::vector<std::string> lines;
  ir::LogSink before = ir::set_log_sink([&](std::string_view line) { lines.emplace_back(line); });
  const ExecutablePtr executable = testing::load({.rows = 2}, {.interpreted_runs = 1, .cache = &cache});
  const BufferPtr a = testing::floats(2, 1), b = testing::floats(2, 3);
  for (int i = 0; i < 4; ++i) CHECK(testing::only_value(testing::run_one(executable, {a, b})) == 13);
  cache.wait_for_background();
  ir::set_log_sink(before);
  CHECK(lines == std::vector<std::string>{"sheaf warning: affine stays interpreted: no plug-in"});
}

}  // namespace
}  // namespace sheaf::runtime
