// Blocks that were given back are what is taken next, and hold as much as was asked for.
#include "ir/recycled.h"

#include <doctest/doctest.h>

#include <cstring>
#include <thread>
#include <vector>

using namespace sheaf::ir;

namespace {

// On both sides of where one size becomes the next.
constexpr std::size_t kSizes[] = {1,      31, 32, 33, 511, 512, 513, 1024, 1025, (1 << 20) - 1, 1 << 20, (1 << 20) + 1,
                                  3 << 20};

}  // namespace

TEST_CASE("blocks of all sizes hold as much as was asked for, also the second time") {
  for (int round = 0; round < 3; ++round) {
    std::vector<void*> blocks;
    for (const std::size_t bytes : kSizes)
      blocks.push_back(std::memset(take_block(bytes), static_cast<int>(bytes), bytes));
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      const auto* data = static_cast<const unsigned char*>(blocks[i]);
      CHECK(data[0] == static_cast<unsigned char>(kSizes[i]));
      CHECK(data[kSizes[i] - 1] == static_cast<unsigned char>(kSizes[i]));
      give_block(blocks[i], kSizes[i]);
    }
  }
}

#ifndef __SANITIZE_ADDRESS__
TEST_CASE("the block given back last is taken next, for any size that shares its blocks") {
  for (const std::size_t bytes : {40, 500, 600, 100'000, 1'000'000}) {
    void* const block = take_block(bytes);
    give_block(block, bytes);
    void* const again = take_block(bytes + bytes / 50);
    CHECK(again == block);
    give_block(again, bytes + bytes / 50);
  }
}
#endif

TEST_CASE("blocks may be given back by another thread, and after lists of a thread are gone") {
  std::vector<void*> blocks(1000);
  for (void*& block : blocks) block = take_block(64);
  std::thread([&] {
    for (void* block : blocks) give_block(block, 64);
    for (void*& block : blocks) block = take_block(64);
  }).join();
  for (void* block : blocks) give_block(block, 64);
}

TEST_CASE("containers may ask for any alignment") {
  for (const std::size_t alignment : {1, 16, 64, 4096}) {
    void* const block = recycling()->allocate(100, alignment);
    CHECK(reinterpret_cast<std::uintptr_t>(block) % alignment == 0);
    recycling()->deallocate(block, 100, alignment);
  }
}

TEST_CASE("pieces hold what is dropped together, of any size and alignment") {
  for (const std::size_t count : {1, 10, 1000}) {
    Pieces pieces;
    std::vector<std::pair<unsigned char*, std::size_t>> all;
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t bytes = i % 97 == 96 ? 100'000 : 1 + i % 300, alignment = std::size_t{1} << i % 8;
      auto* data = static_cast<unsigned char*>(pieces.allocate(bytes, alignment));
      CHECK(reinterpret_cast<std::uintptr_t>(data) % alignment == 0);
      all.push_back({static_cast<unsigned char*>(std::memset(data, static_cast<int>(i), bytes)), bytes});
    }
    for (std::size_t i = 0; i < count; ++i) {
      CHECK(all[i].first[0] == static_cast<unsigned char>(i));
      CHECK(all[i].first[all[i].second - 1] == static_cast<unsigned char>(i));
    }
  }
}
