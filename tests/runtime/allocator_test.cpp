// Blocks do not overlap, come back, merge, and run out with a message that helps.
#include "runtime/allocator.h"

#include <doctest/doctest.h>

#include <bit>
#include <cstring>
#include <map>
#include <random>
#include <thread>
#include <vector>

namespace sheaf::runtime {
namespace {

constexpr std::int64_t kMiB = 1 << 20;
const Loc kHere{"allocator_test.cpp", 1};

Block take(Allocator& allocator, std::int64_t bytes, Loc loc = kHere) {
  auto block = allocator.allocate(bytes, loc);
  REQUIRE_MESSAGE(block.ok(), std::string(block.status().message()));
  return *block;
}

TEST_CASE("blocks are aligned, disjoint and at least as large as asked") {
  Allocator allocator({.limit_bytes = 0, .region_bytes = 8 * kMiB});
  std::mt19937_64 random(7);
  std::map<std::byte*, Block> live;
  for (int i = 0; i < 4000; ++i) {
    if (live.size() > 100 || (!live.empty() && random() % 3 == 0)) {
      auto it = std::next(live.begin(), static_cast<std::ptrdiff_t>(random() % live.size()));
      allocator.release(it->second);
      live.erase(it);
      continue;
    }
    const auto bytes = static_cast<std::int64_t>(random() % (std::uint64_t{1} << (random() % 22)));
    const Block block = take(allocator, bytes);
    CHECK(block.bytes >= bytes);
    CHECK(std::bit_cast<std::uintptr_t>(block.data) % 64 == 0);
    auto [it, is_new] = live.emplace(block.data, block);
    REQUIRE(is_new);
    if (it != live.begin()) {
      const Block& before = std::prev(it)->second;
      REQUIRE(before.data + before.bytes <= block.data);
    }
    if (std::next(it) != live.end()) REQUIRE(block.data + block.bytes <= std::next(it)->first);
    std::memset(block.data, 1, static_cast<std::size_t>(block.bytes));
  }
  for (const auto& [data, block] : live) allocator.release(block);
  CHECK(allocator.stats().bytes_in_use == 0);
  CHECK(allocator.stats().blocks == 0);
}

TEST_CASE("a repeated pattern of requests touches no fresh memory") {
  Allocator allocator({});
  auto round = [&] {
    std::vector<Block> blocks;
    for (const std::int64_t bytes : {0L, 1L, 100L, 4096L, 70'000L, 3 * kMiB, 70'000L, 20 * kMiB})
      blocks.push_back(take(allocator, bytes));
    for (const Block block : blocks) allocator.release(block);
  };
  round();
  const AllocatorStats first = allocator.stats();
  for (int i = 0; i < 50; ++i) round();
  const AllocatorStats last = allocator.stats();
  CHECK(last.fresh_bytes == first.fresh_bytes);
  CHECK(last.regions == first.regions);
  CHECK(last.peak_bytes == first.peak_bytes);
}

TEST_CASE("released neighbours merge into one hole") {
  Allocator allocator({.limit_bytes = 8 * kMiB, .region_bytes = 8 * kMiB});
  std::vector<Block> blocks;
  for (int i = 0; i < 8; ++i) blocks.push_back(take(allocator, kMiB));
  CHECK(allocator.stats().largest_free == 0);
  for (const int i : {1, 3, 5, 7, 0, 6, 2, 4}) allocator.release(blocks[i]);
  CHECK(allocator.stats().largest_free == 8 * kMiB);
  allocator.release(take(allocator, 8 * kMiB));
}

TEST_CASE("free regions go back to the system where a request could not be answered otherwise") {
  Allocator allocator({.limit_bytes = 16 * kMiB, .region_bytes = 2 * kMiB});
  const Block kept = take(allocator, kMiB);
  allocator.release(take(allocator, 10 * kMiB));
  CHECK(allocator.stats().regions == 2);
  allocator.release(take(allocator, 13 * kMiB));
  CHECK(allocator.stats().regions == 2);
  CHECK(allocator.stats().bytes_reserved == 16 * kMiB);
  CHECK_FALSE(allocator.allocate(15 * kMiB, kHere).ok());  // the first region is in use
  allocator.release(kept);
  allocator.release(take(allocator, 15 * kMiB));
  CHECK(allocator.stats().regions == 1);
}

TEST_CASE("running out of memory names what was asked, what is in use and who holds it") {
  Allocator allocator({.limit_bytes = 8 * kMiB, .region_bytes = 8 * kMiB});
  std::vector<Block> blocks;
  for (int i = 0; i < 8; ++i) blocks.push_back(take(allocator, kMiB, {"mlp.cpp", i < 5 ? 3 : 4}));
  allocator.release(blocks[0]);
  allocator.release(blocks[2]);
  const absl::Status status = allocator.allocate(2 * kMiB, {"mlp.cpp", 9}).status();
  CHECK(status.code() == absl::StatusCode::kResourceExhausted);
  CHECK(std::string(status.message()) ==
        "out of memory: 2.0 MiB asked at mlp.cpp:9; 6.0 MiB in use in 6 blocks, 8.0 MiB reserved of a limit of "
        "8.0 MiB, largest hole 1.0 MiB (2.0 MiB are free but in pieces)\n"
        "  1.0 MiB made at mlp.cpp:3\n  1.0 MiB made at mlp.cpp:3\n  1.0 MiB made at mlp.cpp:3\n"
        "  1.0 MiB made at mlp.cpp:4\n  1.0 MiB made at mlp.cpp:4\n  1.0 MiB made at mlp.cpp:4");
  CHECK(!allocator.allocate(-1, kHere).ok());
  CHECK(!allocator.allocate(INT64_MAX, kHere).ok());
  take(allocator, kMiB);  // what fits still can be had
}

TEST_CASE("threads share an allocator") {
  Allocator allocator({});
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 500; ++i) {
        const Block block = *allocator.allocate(64 << (i % 14), kHere);
        std::memset(block.data, t, static_cast<std::size_t>(block.bytes));
        const bool is_mine = block.data[0] == std::byte(t) && block.data[block.bytes - 1] == std::byte(t);
        if (!is_mine) std::abort();
        allocator.release(block);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(allocator.stats().bytes_in_use == 0);
}

TEST_CASE("sizes are read with units") {
  CHECK(*parse_bytes("123", 0) == 123);
  CHECK(*parse_bytes("2K", 0) == 2048);
  CHECK(*parse_bytes("1.5M", 0) == 3 * kMiB / 2);
  CHECK(*parse_bytes("4G", 0) == 4096 * kMiB);
  CHECK(*parse_bytes("25%", 8000) == 2000);
  for (const char* bad : {"", "x", "0", "-5", "12Q", "nan", "1e300", "M"}) CHECK(!parse_bytes(bad, 100).ok());
  CHECK(parse_bytes("12Q", 100).status().message() ==
        "'12Q' is not a size: a number of bytes, or one with K, M, G or %");
}

}  // namespace
}  // namespace sheaf::runtime
