// The public view of devices: how many, how much memory, and waiting for them.
#include "sheaf/device.h"

#include <doctest/doctest.h>

#include <string>

#include "sheaf/error.h"
#include "tests/message.h"
#include "tests/runtime/programs.h"

namespace sheaf::runtime {
namespace {

using tests::message_here;

TEST_CASE("there is one device until more are asked for, and their number never falls") {
  REQUIRE(!sheaf::devices().empty());
  sheaf::ensure_devices(4);
  const auto count = sheaf::devices().size();
  CHECK(count >= 4);
  sheaf::ensure_devices(2);
  CHECK(sheaf::devices().size() == count);
  CHECK(sheaf::devices()[3] == sheaf::Device{3});
  CHECK(sheaf::to_string(sheaf::Device{3}) == "cpu:3");
}

TEST_CASE("memory statistics follow the arrays that live") {
  const MemoryStats before = memory_stats();
  {
    const BufferPtr x = testing::floats(10'000, 1);
    const MemoryStats with = memory_stats();
    CHECK(with.bytes_in_use >= before.bytes_in_use + 4'000'000);
    CHECK(with.peak_bytes >= with.bytes_in_use);
    CHECK(with.bytes_reserved >= with.bytes_in_use);
  }
  CHECK(memory_stats().bytes_in_use == before.bytes_in_use);
}

TEST_CASE("devices that are not there, and too many of them, are refused") {
  CHECK(message_here([] { sheaf::ensure_devices(1025); }) ==
        "HERE: ensure_devices: 1025 devices; at most 1024 can be simulated");
  const std::string there = ", only cpu:0 to cpu:" + std::to_string(sheaf::devices().size() - 1);
  CHECK(message_here([] { (void)memory_stats(sheaf::Device{1000}); }) == "HERE: there is no device cpu:1000" + there);
  CHECK(message_here([] { synchronize(sheaf::Device{-1}); }) == "HERE: there is no device cpu:-1" + there);
}

TEST_CASE("memory has a limit even where none is asked for, so that asking for too much is an error") {
  CHECK(memory_stats().bytes_limit > 0);
}

TEST_CASE("synchronize waits for what was dispatched and leaves errors with their arrays") {
  const ExecutablePtr slow = testing::load({.unit_ps = 1'000'000'000, .key = "slow"}, {.tier = Tier::interpreted});
  const ExecutablePtr bad =
      testing::load({.unit_ps = 1'000'000'000, .offset = 1, .key = "bad"}, {.tier = Tier::interpreted});
  const BufferPtr a = testing::floats(10, 1), b = testing::floats(10, 3);
  const BufferPtr out = testing::run_one(slow, {a, b}), failed = testing::run_one(bad, {a, b});
  synchronize();
  CHECK(!out->is_pending());
  CHECK(!failed->is_pending());
  CHECK(testing::only_value(out) == 13);
  CHECK(!failed->wait().ok());
}

}  // namespace
}  // namespace sheaf::runtime
