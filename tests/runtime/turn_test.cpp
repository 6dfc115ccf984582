// Processes that are about to do the same, and those of them that die, hang or may not write.
#include "runtime/turn.h"

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <thread>

#include "runtime/counters.h"
#include "tests/child.h"
#include "tests/folder.h"

using namespace sheaf;
using runtime::Turn;

TEST_CASE("whoever comes second waits until the first has finished, and leaves nothing behind") {
  const tests::Folder folder;
  const std::string path = folder / "aa/entry";
  const std::int64_t before = runtime::counters().turns_awaited;
  auto first = std::make_unique<Turn>(path);
  CHECK_FALSE(first->has_waited());
  bool is_done = false;
  std::thread second([&] {
    const Turn turn(path, std::chrono::hours(1));
    CHECK(turn.has_waited());
    CHECK(is_done);
  });
  while (runtime::counters().turns_awaited == before) std::this_thread::yield();
  is_done = true;
  first.reset();
  second.join();
  CHECK(std::filesystem::is_empty(folder / "aa"));
  CHECK_FALSE(Turn(path).has_waited());
  CHECK_FALSE(Turn(folder / "aa/other").has_waited());
}

TEST_CASE("the turn of a process that was killed is free") {
  const tests::Folder folder;
  const std::string path = folder / "entry";
  int ready[2];
  REQUIRE(pipe(ready) == 0);
  const pid_t child = fork();
  if (child == 0) {
    const Turn turn(path);
    (void)!write(ready[1], "!", 1);
    pause();
    _exit(1);
  }
  char c = 0;
  REQUIRE(read(ready[0], &c, 1) == 1);
  kill(child, SIGKILL);
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK_FALSE(Turn(path).has_waited());
  CHECK(std::filesystem::is_empty(folder / ""));
  close(ready[0]);
  close(ready[1]);
}

TEST_CASE("where there can be no turns nobody waits") {
  const Turn none, first("/proc/nowhere/entry"), second("/proc/nowhere/entry");
  CHECK_FALSE(second.has_waited());
}

TEST_CASE("[turn] a program" * doctest::skip()) {
  const tests::Folder folder;
  const std::string path = folder / "entry";
  const Turn hangs(path);
  CHECK(Turn(path, std::chrono::milliseconds(1)).has_waited());
  CHECK(Turn(path, std::chrono::hours(1)).has_waited());  // and does not wait: it was in vain
}

TEST_CASE("who has waited in vain does not wait again") { CHECK(tests::said_by_child("turn", {}) == ""); }
