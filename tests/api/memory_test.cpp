// Who holds memory, told by the user's lines.
#include "sheaf/memory.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "ir/text.h"
#include "sheaf/sheaf.h"
#include "tests/message.h"

using namespace sheaf;

namespace {

std::vector<MemoryUse> of_line(const std::vector<MemoryUse>& uses, int line) {
  std::vector<MemoryUse> own;
  std::ranges::copy_if(uses, std::back_inserter(own), [line](const MemoryUse& use) {
    return use.made_at.line == line && to_string(use.made_at).starts_with("memory_test");
  });
  return own;
}

constexpr std::int64_t kMiB = 1 << 20;

}  // namespace

TEST_CASE("arrays that live are told by the lines that made them, and those that are gone are not") {
  constexpr int line = __LINE__ + 2;
  std::vector<Array> all;
  for (int i = 0; i < 3; ++i) all.push_back(ones({kMiB}).wait());
  std::vector<MemoryUse> own = of_line(live_memory(), line);
  REQUIRE(own.size() == 1);
  CHECK(own[0].bytes == 12 * kMiB);
  CHECK(own[0].blocks == 3);
  CHECK(tests::with_here(to_string(own), {}) == "12.0 MiB in 3 blocks made at HERE\n");
  all.pop_back();
  CHECK(of_line(live_memory(), line)[0].blocks == 2);
  all.clear();
  CHECK(of_line(live_memory(), line).empty());
}

TEST_CASE("small arrays are told together") {
  const auto small = [] {
    const std::vector<MemoryUse> uses = live_memory();
    const auto found = std::ranges::find(uses, Loc{}, &MemoryUse::made_at);
    return found == uses.end() ? MemoryUse{} : *found;
  };
  const MemoryUse before = small();
  const Array x = ones({16}), y = ones({16});
  CHECK(small().bytes == before.bytes + 128);
  CHECK(small().blocks == before.blocks + 2);
}

TEST_CASE("what lived when most memory was in use is told after it is gone") {
  constexpr int line = __LINE__ + 2;
  const std::int64_t most = memory_stats().peak_bytes;
  { const Array large = zeros({most / 4 + 16 * kMiB}).wait(); }
  const std::vector<MemoryUse> peak = peak_memory();
  const std::vector<MemoryUse> own = of_line(peak, line);
  REQUIRE(own.size() == 1);
  CHECK(own[0].bytes >= most + 64 * kMiB);
  std::int64_t all = 0;
  for (const MemoryUse& use : peak) all += use.bytes;
  CHECK(static_cast<double>(all) >= 0.98 * static_cast<double>(memory_stats().peak_bytes));
}

TEST_CASE("of small arrays too: the peak is told after they are gone") {
  const std::int64_t most = memory_stats().peak_bytes;
  {
    std::vector<Array> all;
    while (memory_stats().peak_bytes < most + 4 * kMiB) all.push_back(zeros({16 << 10}).wait());  // 64 KiB each
  }
  std::int64_t told = 0;
  for (const MemoryUse& use : peak_memory()) told += use.bytes;
  CHECK(static_cast<double>(told) >= 0.98 * static_cast<double>(memory_stats().peak_bytes));
}

TEST_CASE("memory of a device that is not there is refused on the user's line") {
  CHECK(tests::message_here([] {
          (void)live_memory(Device{1000});
        }).starts_with("HERE: there is no device cpu:1000, only "));
  CHECK(tests::message_here([] {
          (void)peak_memory(Device{1000});
        }).starts_with("HERE: there is no device cpu:1000, only "));
}

TEST_CASE("the text of a compiled program begins with what became of donated buffers, and can be read back") {
  const auto f = jit([](Array x, Array y) { return x + y; }, {.donate = {0, 1}});
  const std::string text = f.trace(abstract({64}), abstract({64})).lower().compile().text();
  CHECK(
      text.starts_with("// the result lies in the buffer of argument 0\n"
                       "// the buffer of argument 1 is not taken: every result of 256 bytes lies in another "
                       "argument's buffer\n"));
  CHECK(ir::parse(text).ok());
}
