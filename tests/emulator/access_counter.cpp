// Requests are regrouped when the block ends, since the lanes of a warp run one after the other.
#include "tests/emulator/access_counter.h"

#include <algorithm>
#include <array>

namespace sheaf::emulator {
namespace {

constexpr std::uint64_t kSectorBytes = 32, kBankBytes = 4, kBanks = 32;

std::int64_t count_distinct(std::vector<std::uint64_t>& values) {
  std::sort(values.begin(), values.end());
  return std::unique(values.begin(), values.end()) - values.begin();
}

template <class T>
T& at_or_grow(std::vector<T>& v, std::size_t i) {
  if (v.size() <= i) v.resize(i + 1);
  return v[i];
}

}  // namespace

void AccessCounter::begin_block(int threads) {
  executions_.assign(static_cast<std::size_t>(threads), {});
  requests_.assign(static_cast<std::size_t>(threads + 31) / 32, {});
}

void AccessCounter::note(const Access& a) {
  // One instruction may read one memory and write the other.
  const std::size_t key = a.site * std::size_t{2} + (a.is_shared ? 1 : 0);
  const std::uint32_t k = at_or_grow(executions_[static_cast<std::size_t>(a.thread)], key)++;
  Request& r = at_or_grow(at_or_grow(requests_[static_cast<std::size_t>(a.thread / 32)], key), k);
  r.bytes = a.bytes;
  r.is_shared = a.is_shared;
  r.is_store = a.is_store;
  r.addresses[r.count] = a.address;
  r.lanes[r.count++] = static_cast<std::uint8_t>(a.thread % 32);
}

void AccessCounter::end_block(Counters& counters) {
  for (const auto& warp : requests_) {
    for (const auto& site : warp) {
      for (const Request& r : site) r.is_shared ? add_shared(r, counters) : add_global(r, counters);
    }
  }
}

void AccessCounter::add_global(const Request& r, Counters& counters) {
  std::vector<std::uint64_t> sectors, bytes;
  for (int i = 0; i < r.count; ++i) {
    const std::uint64_t end = r.addresses[i] + static_cast<std::uint64_t>(r.bytes);
    for (std::uint64_t s = r.addresses[i] / kSectorBytes; s <= (end - 1) / kSectorBytes; ++s) sectors.push_back(s);
    for (std::uint64_t b = r.addresses[i]; b < end; ++b) bytes.push_back(b);
  }
  const std::int64_t moved = count_distinct(sectors);
  const std::int64_t ideal = (count_distinct(bytes) + kSectorBytes - 1) / kSectorBytes;
  (r.is_store ? counters.sectors_written : counters.sectors_read) += moved;
  (r.is_store ? counters.ideal_sectors_written : counters.ideal_sectors_read) += ideal;
}

void AccessCounter::add_shared(const Request& r, Counters& counters) {
  // Wide accesses go in parts of the warp that fill the banks once: halves of it at 8 bytes, quarters at 16.
  const int lanes = static_cast<int>(32 * 4 / std::max<std::int64_t>(4, r.bytes));
  for (int first = 0; first < 32; first += lanes) {
    std::array<std::vector<std::uint64_t>, kBanks> words;
    for (int i = 0; i < r.count; ++i) {
      if (r.lanes[i] < first || r.lanes[i] >= first + lanes) continue;
      const std::uint64_t end = r.addresses[i] + static_cast<std::uint64_t>(r.bytes);
      for (std::uint64_t w = r.addresses[i] / kBankBytes; w <= (end - 1) / kBankBytes; ++w)
        words[w % kBanks].push_back(w);
    }
    std::int64_t wavefronts = 0;
    for (auto& bank : words) wavefronts = std::max(wavefronts, count_distinct(bank));
    counters.shared_wavefronts += wavefronts;
    counters.ideal_shared_wavefronts += wavefronts > 0 ? 1 : 0;
  }
}

}  // namespace sheaf::emulator
