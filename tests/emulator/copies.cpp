// Copies into shared memory that run beside the threads. A copy may happen when it is issued or only when somebody has
// waited for it: both are right on a GPU, so a kernel must be right under both.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "tests/emulator/machine.h"

namespace sheaf::emulator {
namespace {

using sf_host::Access;

/// Where swizzling moves a byte of shared memory: address bits 4.. are xored with bits 7...
std::uint64_t swizzled(std::uint64_t address, unsigned swizzle_bytes) {
  const std::uint64_t mask = swizzle_bytes == 128 ? 7 : swizzle_bytes == 64 ? 3 : swizzle_bytes == 32 ? 1 : 0;
  return address ^ ((address >> 7 & mask) << 4);
}

void finish(const AsyncCopy& copy) {
  std::memcpy(copy.shared, copy.global, static_cast<std::size_t>(copy.bytes_read));
  std::memset(copy.shared + copy.bytes_read, 0, static_cast<std::size_t>(copy.bytes - copy.bytes_read));
}

}  // namespace

// ---- cp.async -----------------------------------------------------------------------------------------------------

void Machine::cp_async(Fiber& f, const AsyncCopy& copy) {
  if (policy_.is_checked) {
    if (copy.bytes_read > 0) touch(f, f.index, copy.global, copy.bytes_read, Access::load, 0, copy.place);
    touch(f, f.index, copy.shared, copy.bytes, Access::store, Party::kInFlight, copy.place);
  }
  if (!policy_.late_copies) emulator::finish(copy);
  f.open_copies.push_back(copy);
}

void Machine::cp_async_commit(Fiber& f) {
  f.copy_groups.push_back(std::move(f.open_copies));
  f.open_copies.clear();
}

void Machine::cp_async_wait(Fiber& f, int groups_left) {
  while (std::ssize(f.copy_groups) > groups_left) {
    for (const AsyncCopy& copy : f.copy_groups.front()) {
      if (policy_.late_copies) emulator::finish(copy);
      settle(copy.shared, copy.bytes, static_cast<std::uint16_t>(f.index), copy.place);
    }
    f.copy_groups.erase(f.copy_groups.begin());
  }
}

// ---- mbarriers ----------------------------------------------------------------------------------------------------

void Machine::mbarrier_init(Fiber& f, std::uint64_t* barrier, int count, Place place) {
  if (policy_.is_checked) touch(f, f.index, barrier, 8, Access::store, 0, place);
  mbarriers_[barrier] = {.count = count, .pending = count};
}

Mbarrier& Machine::mbarrier_at(Fiber& f, std::uint64_t* barrier, Place place) {
  // Operations on an initialised mbarrier are ordered by itself; its initialisation is a plain store.
  if (policy_.is_checked) touch(f, f.index, barrier, 8, Access::atomic, Party::kAtomic, place);
  const auto it = mbarriers_.find(barrier);
  if (it == mbarriers_.end()) {
    fail("mbarrier", fmt::format("{}: the mbarrier at {} was never initialised", here(f), at_line(place)));
  }
  return it->second;
}

void Machine::mbarrier_arrive(Fiber& f, std::uint64_t* barrier, int expected_bytes, Place place) {
  Mbarrier& m = mbarrier_at(f, barrier, place);
  if (m.pending == 0) {
    fail("mbarrier", fmt::format("{}: an arrival too many at {}: the phase takes {} and waits for {} bytes", here(f),
                                 at_line(place), m.count, m.bytes_due));
  }
  m.bytes_due += expected_bytes;
  --m.pending;
  history_.release(f.index, m.arriving);
  try_complete(barrier, m);
}

void Machine::try_complete(std::uint64_t* address, Mbarrier& m) {
  if (m.pending != 0 || m.bytes_due != 0) return;
  m.phase ^= 1;
  m.pending = m.count;
  // All phases so far: who waited for one may get its turn when the next is over.
  m.completed.resize(std::max(m.completed.size(), m.arriving.size()));
  for (std::size_t p = 0; p < m.arriving.size(); ++p) m.completed[p] = std::max(m.completed[p], m.arriving[p]);
  m.arriving.clear();
  for (Fiber& f : fibers_) {
    if (f.has_ended || f.waiting != Waiting::at_mbarrier || f.mbarrier.first != address) continue;
    if (m.phase != f.mbarrier.second) f.waiting = Waiting::no;
  }
}

void Machine::mbarrier_wait(Fiber& f, std::uint64_t* barrier, int parity, Place place) {
  Mbarrier& m = mbarrier_at(f, barrier, place);
  f.mbarrier = {barrier, parity & 1};
  if (m.phase == (parity & 1)) wait(f, Waiting::at_mbarrier, place);
  history_.acquire(f.index, m.completed);
}

// ---- tensor copies ------------------------------------------------------------------------------------------------

void Machine::tma_load_2d(Fiber& f, const TmaLoad& load) {
  const Place place = load.place;
  constexpr std::uint64_t kDestinationBytes = 128;
  mbarrier_at(f, load.barrier, place);
  const std::uint64_t to = shared_address(load.shared);
  const sf_host::TensorMap& m = load.map;
  const std::int64_t row_bytes = std::int64_t{m.box[0]} * m.element_bytes;
  if (to % kDestinationBytes != 0) {
    fail("misaligned", fmt::format("{}: a tensor copy at {} to shared address {}, which is no multiple of {}", here(f),
                                   at_line(place), to, kDestinationBytes));
  }
  shared_at(f, to, row_bytes * m.box[1], place);
  if (policy_.is_checked) {
    touch(f, tma_party(), load.shared, row_bytes * m.box[1], Access::store, Party::kInFlight, place);
    for (unsigned r = 0; r < m.box[1]; ++r) {
      const std::int64_t y = load.y + std::int64_t{r};
      const std::int64_t first = std::max<std::int64_t>(load.x, 0);
      const std::int64_t last =
          std::min<std::int64_t>(std::int64_t{load.x} + m.box[0], static_cast<std::int64_t>(m.dims[0]));
      if (y < 0 || y >= static_cast<std::int64_t>(m.dims[1]) || first >= last) continue;
      const auto* row = static_cast<const std::byte*>(m.base) + y * static_cast<std::int64_t>(m.row_bytes);
      touch(f, f.index, row + first * m.element_bytes, (last - first) * m.element_bytes, Access::load, 0, place);
    }
  }
  tma_.push_back(load);
  if (!policy_.late_copies) finish_one_tma();
}

bool Machine::finish_one_tma() {
  if (tma_.empty()) return false;
  // In any order: nothing orders two copies but the mbarriers they report to.
  const std::size_t which = policy_.order == Order::random    ? random_() % tma_.size()
                            : policy_.order == Order::reverse ? tma_.size() - 1
                                                              : 0;
  const TmaLoad load = tma_[which];
  tma_.erase(tma_.begin() + static_cast<std::ptrdiff_t>(which));
  finish(load);
  return true;
}

void Machine::finish(const TmaLoad& load) {
  const sf_host::TensorMap& m = load.map;
  const std::uint64_t to = shared_address(load.shared);
  for (unsigned r = 0; r < m.box[1]; ++r) {
    for (unsigned c = 0; c < m.box[0]; ++c) {
      const std::int64_t x = load.x + std::int64_t{c}, y = load.y + std::int64_t{r};
      const bool is_inside =
          x >= 0 && y >= 0 && x < static_cast<std::int64_t>(m.dims[0]) && y < static_cast<std::int64_t>(m.dims[1]);
      std::byte* element = arena_ + swizzled(to + (std::uint64_t{r} * m.box[0] + c) * m.element_bytes, m.swizzle_bytes);
      if (is_inside) {
        const auto* row = static_cast<const std::byte*>(m.base) + y * static_cast<std::int64_t>(m.row_bytes);
        std::memcpy(element, row + x * m.element_bytes, m.element_bytes);
      } else {
        std::memset(element, 0, m.element_bytes);
      }
    }
  }
  // A clipped box still counts in full.
  const std::int64_t bytes = std::int64_t{m.box[0]} * m.box[1] * m.element_bytes;
  settle(load.shared, bytes, static_cast<std::uint16_t>(tma_party()), load.place);
  Mbarrier& barrier = mbarriers_[load.barrier];
  history_.release_agent(tma_party(), barrier.arriving);
  barrier.bytes_due -= bytes;
  try_complete(load.barrier, barrier);
}

}  // namespace sheaf::emulator
