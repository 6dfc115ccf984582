// Fork and exit: the two moments at which threads and static objects usually hang or crash a process.
#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <future>
#include <string>
#include <thread>

#include "runtime/thread_pool.h"
#include "sheaf/device.h"
#include "sheaf/error.h"
#include "tests/message.h"
#include "tests/runtime/programs.h"

namespace sheaf::runtime {
namespace {

/// The exit status of a child that does `body` and returns its result; -1 if it died otherwise.
template <class Body>
int run_in_child(Body&& body) {
  const pid_t child = fork();
  if (child == 0) _exit(body());
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST_CASE("a forked child gets an error from every entry point and does not hang") {
  const ExecutablePtr step = testing::load({.rows = 10, .unit_ps = 1'000'000'000, .key = "fork"},
                                           {.tier = Tier::compiled, .cache = &testing::gated_cache()});
  const BufferPtr a = testing::floats(10, 1), b = testing::floats(10, 3);
  CHECK(testing::only_value(testing::run_one(step, {a, b})) == 13);  // threads exist from now on
  testing::is_gate_open = false;
  const BufferPtr pending = testing::run_one(step, {a, b});
  const int result = run_in_child([&] {
    const std::vector<BufferPtr> inputs = {a, b};
    const std::string says = "this process was forked after Sheaf had started its threads";
    auto is_clear = [&](const absl::Status& status) { return std::string(status.message()).starts_with(says); };
    if (!is_clear(step->run(device(0), inputs).status())) return 1;
    if (!is_clear(pending->wait())) return 2;
    if (!is_clear(device(0).queue().drain())) return 3;
    try {
      synchronize();
      return 4;
    } catch (const RuntimeError& error) {
      if (!tests::with_here(error.what(), {}).starts_with("HERE: " + says)) return 5;
    }
    if (!is_clear(Buffer::failed(device(0), 4, absl::UnknownError("x"), {}).status())) return 7;
    try {
      (void)memory_stats();
      return 8;
    } catch (const RuntimeError& error) {
      if (!tests::with_here(error.what(), {}).starts_with("HERE: " + says)) return 9;
    }
    std::int64_t sum = 0;  // serial, so no thread is needed
    ThreadPool::global().parallel_for(100, 1, [&](std::int64_t begin, std::int64_t end) { sum += end - begin; });
    return sum == 100 ? 0 : 6;
  });
  testing::open_gate();
  CHECK(result == 0);
  CHECK(testing::only_value(pending) == 13);
}

TEST_CASE("a child forked while another thread is in the allocator drops its arrays and ends") {
  std::promise<void> inside, leave;
  Allocator allocator({.source = {.take =
                                      [&, regions = 0](std::int64_t bytes) mutable {
                                        if (regions++ > 0) inside.set_value(), leave.get_future().wait();
                                        return Allocator::host_pages().take(bytes);
                                      },
                                  .give_back = Allocator::host_pages().give_back}});
  auto block = allocator.allocate(100, Loc{});
  REQUIRE(block.ok());
  ThreadPool pool(2);
  pool.parallel_for(2, 1, [](std::int64_t, std::int64_t) {});  // from now on children know that they were forked
  std::thread other([&] { (void)allocator.allocate(std::int64_t{1} << 30, Loc{}); });
  inside.get_future().wait();
  const int status = run_in_child([&] {
    alarm(20);
    allocator.release(*block);
    return 0;
  });
  leave.set_value();
  other.join();
  CHECK(status == 0);
}

/// Holds a buffer until after main.
struct Late {
  BufferPtr buffer;
};

TEST_CASE("static arrays may outlive main, with work still queued") {
  CHECK(run_in_child([] {
    // A fresh process image, because threads of this one do not exist in the child.
          execl("/proc/self/exe", "sheaf_tests", "-tc=[exit] a process ends cleanly", "--no-skip",
                static_cast<char*>(nullptr));
          return 127;
        }) == 0);
}

TEST_CASE("[exit] a process ends cleanly" * doctest::skip()) {
  // Run by the case above in a process of its own; what is tested happens after main.
  static Late late;
  const ExecutablePtr step =
      testing::load({.rows = 1000, .unit_ps = 1'000'000, .key = "exit"}, {.tier = Tier::interpreted});
  late.buffer = testing::floats(1000, 1);
  for (int i = 0; i < 20; ++i) late.buffer = testing::run_one(step, {late.buffer, late.buffer});
  const ExecutablePtr tiny = testing::load({.rows = 1, .key = "exit tiny"}, {.interpreted_runs = 1});
  (void)testing::run_one(tiny, {testing::floats(1, 1), testing::floats(1, 1)});  // compiles in the background
}

}  // namespace
}  // namespace sheaf::runtime
