// Every load and store of a kernel passes here: is it inside something, aligned, written before, and ordered against
// what others did to the same bytes?
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "tests/emulator/machine.h"

namespace sheaf::emulator {
namespace {

using sf_host::Access;

constexpr std::int64_t kGap = 128;  // between arrays of shared memory, so that an overrun is seen
constexpr std::int64_t kSharedAlignment = 1024;

std::int64_t round_up(std::int64_t n, std::int64_t to) { return (n + to - 1) / to * to; }

const char* noun(Access how) { return how == Access::load ? "load" : how == Access::store ? "store" : "atomic update"; }
const char* present(Access how) {
  return how == Access::load ? "loads" : how == Access::store ? "stores" : "atomically updates";
}

/// Sets flags of an allocation's bytes, and widens what is known to be touched.
void mark(Allocation& a, std::int64_t offset, std::int64_t bytes, Access how) {
  a.touched_begin = std::min(a.touched_begin, offset);
  a.touched_end = std::max(a.touched_end, offset + bytes);
  if (!a.marks) return;
  const int flags =
      (how != Access::store ? Mark::kRead : 0) | (how != Access::load ? Mark::kWritten | Mark::kInitialised : 0);
  for (std::int64_t i = offset; i < offset + bytes; ++i) a.marks[i] = static_cast<std::uint8_t>(a.marks[i] | flags);
}

}  // namespace

std::string Region::whole_name() const { return (allocation ? "" : "shared ") + name; }
std::string Region::where(std::int64_t offset) const { return fmt::format("{}+{}", whole_name(), offset); }

// ---- layout -------------------------------------------------------------------------------------------------------

void Machine::add_shared(std::byte* begin, std::int64_t bytes, std::string name) {
  regions_.push_back({begin, bytes, std::move(name), nullptr, Shadow(bytes)});
}

void Machine::lay_out_shared() {
  // Dynamic memory first: its alignment is the one that matters to copies of tensors.
  std::int64_t top = round_up(launch_.dynamic_shared_bytes, kGap) + kGap;
  std::vector<std::int64_t> offsets;
  for (const SharedArray& a : kernel_.shared) {
    offsets.push_back(top);
    top = round_up(top + a.bytes, kGap) + kGap;
  }
  arena_bytes_ = top;
  arena_memory_.resize(static_cast<std::size_t>(top + kSharedAlignment));
  const auto raw = reinterpret_cast<std::uintptr_t>(arena_memory_.data());
  arena_ = arena_memory_.data() + (kSharedAlignment - raw % kSharedAlignment) % kSharedAlignment;
  dynamic_shared_ = arena_;
  if (launch_.dynamic_shared_bytes > 0) add_shared(arena_, launch_.dynamic_shared_bytes, "memory");
  for (std::size_t i = 0; i < offsets.size(); ++i) {
    shared_at_.push_back(arena_ + offsets[i]);
    add_shared(shared_at_[i], kernel_.shared[i].bytes, kernel_.shared[i].name);
  }
}

void* Machine::shared(const sf_host::SharedArray* array) const {
  for (std::size_t i = 0; i < kernel_.shared.size(); ++i) {
    if (kernel_.shared[i].declaration == array) return shared_at_[i];
  }
  return nullptr;
}

std::byte* Machine::shared_at(Fiber& f, std::uint64_t address, std::int64_t bytes, Place place) {
  if (address + static_cast<std::uint64_t>(bytes) > static_cast<std::uint64_t>(arena_bytes_)) {
    fail("bounds", fmt::format("{}: shared address {} at {} lies outside the block's shared memory", here(f), address,
                               at_line(place)));
  }
  return arena_ + address;
}

Region* Machine::region_at(std::uintptr_t address) {
  const auto holds = [address](const Region* r) {
    return r && address - reinterpret_cast<std::uintptr_t>(r->begin) < static_cast<std::uintptr_t>(r->bytes);
  };
  if (holds(last_region_[0])) return last_region_[0];
  std::swap(last_region_[0], last_region_[1]);
  if (holds(last_region_[0])) return last_region_[0];
  auto after = std::upper_bound(regions_.begin(), regions_.end(), address, [](std::uintptr_t a, const Region& r) {
    return a < reinterpret_cast<std::uintptr_t>(r.begin);
  });
  if (after == regions_.begin()) return nullptr;
  Region* r = &*(after - 1);
  return holds(r) ? last_region_[0] = r : nullptr;
}

std::string Machine::nearest(std::uintptr_t address) const {
  constexpr std::uintptr_t kNear = 1 << 20;
  std::string best = fmt::format("at {:#x}, which is in no allocation", address);
  std::uintptr_t distance = kNear;
  for (const Region& r : regions_) {
    const auto begin = reinterpret_cast<std::uintptr_t>(r.begin), end = begin + static_cast<std::uintptr_t>(r.bytes);
    const bool is_before = address < begin;
    const std::uintptr_t by = is_before ? begin - address : address - end;
    if (by >= distance) continue;
    distance = by;
    best = fmt::format("{} bytes {} {} of {} bytes", by, is_before ? "before" : "past the end of", r.whole_name(),
                       r.bytes);
  }
  return best;
}

// ---- accesses -----------------------------------------------------------------------------------------------------

void Machine::access(Fiber& f, const void* address, std::int64_t bytes, Access how, Place place) {
  if (!policy_.is_checked) return;
  const auto stack = reinterpret_cast<std::uintptr_t>(f.stack) & ~(sf_host::kStackBytes - 1);
  if (reinterpret_cast<std::uintptr_t>(address) - stack < sf_host::kStackBytes) return;  // the thread's own locals
  touch(f, f.index, address, bytes, how, how == Access::atomic ? Party::kAtomic : 0, place);
}

void Machine::touch(Fiber& f, int party, const void* address, std::int64_t bytes, Access how, std::uint16_t flags,
                    Place place) {
  const auto a = reinterpret_cast<std::uintptr_t>(address);
  Region* r = region_at(a);
  if (!r) {
    fail("bounds",
         fmt::format("{}: a {} of {} bytes at {} begins {}", here(f), noun(how), bytes, at_line(place), nearest(a)));
  }
  const std::int64_t offset = static_cast<const std::byte*>(address) - r->begin;
  if (offset + bytes > r->bytes) {
    fail("bounds", fmt::format("{}: a {} of {} bytes at {} ends {} bytes past the end of {} of {} bytes", here(f),
                               noun(how), bytes, at_line(place), offset + bytes - r->bytes, r->whole_name(), r->bytes));
  }
  if (bytes <= 16 && a % static_cast<std::uintptr_t>(bytes) != 0) {
    fail("misaligned",
         fmt::format("{}: a {} of {} bytes at {} of {}", here(f), noun(how), bytes, at_line(place), r->where(offset)));
  }
  if (how != Access::store) check_written(f, *r, offset, bytes, place);
  const Site site = site_of(place);
  const auto who = static_cast<std::uint16_t>(party | flags);
  r->shadow.visit(offset, bytes, [&](Cell& cell, std::int64_t at) { touch_cell(f, *r, cell, at, how, who, site); });
  if (r->allocation) mark(*r->allocation, offset, bytes, how);
  // Of threads: the tensor copies and products of a warpgroup are laid out by their swizzle.
  if (policy_.counts_accesses && how != Access::atomic && bytes <= 16 && party < threads_) {
    const bool is_shared = !r->allocation;
    counter_.note({f.index, site, is_shared ? shared_address(address) : a, bytes, is_shared, how == Access::store});
  }
}

void Machine::check_written(Fiber& f, Region& r, std::int64_t offset, std::int64_t bytes, Place place) {
  const auto refuse = [&](std::int64_t at) {
    fail("uninitialised", fmt::format("{}: a load of {} bytes at {} of {}, which nothing has written", here(f), bytes,
                                      at_line(place), r.where(at)));
  };
  if (r.allocation) {
    const std::uint8_t* marks = r.allocation->marks;
    for (std::int64_t i = offset; marks && i < offset + bytes; ++i) {
      if (!(marks[i] & Mark::kInitialised)) refuse(i);
    }
    return;
  }
  r.shadow.visit(offset, bytes, [&](Cell& cell, std::int64_t at) {
    if (cell.written_at < history_.began()) refuse(at);
  });
}

void Machine::touch_cell(Fiber& f, const Region& r, Cell& cell, std::int64_t offset, Access how, std::uint16_t party,
                         Site site) {
  const bool both_atomic = (party & Party::kAtomic) && (cell.writer & Party::kAtomic);
  if (cell.written_at != 0 && !both_atomic && !is_ordered(f, r, cell.writer, cell.written_at)) {
    race(f, r, cell, false, offset, how, site);
  }
  const bool is_read_unordered = cell.read_at != 0 && !is_ordered(f, r, cell.reader, cell.read_at);
  if (how != Access::load) {
    if (is_read_unordered) race(f, r, cell, true, offset, how, site);
    // A group of unordered updates is as old as its first.
    const bool joins = both_atomic && !is_ordered(f, r, cell.writer, cell.written_at);
    cell.writer = joins && cell.writer != party ? Party::kAnyone | Party::kAtomic : party;
    if (!joins) cell.written_at = history_.now();
    cell.write_site = site;
    cell.read_at = 0;
    return;
  }
  cell.read_site = site;
  if (!is_read_unordered) {
    cell.reader = party;
    cell.read_at = history_.now();
  } else if (cell.reader != party) {
    const std::uint16_t others = warpgroups_of(cell.reader), mine = warpgroups_of(party);
    const bool is_warp = cell.reader < Party::kWarpgroups && (cell.reader & Party::kWarp);
    const int warp = is_warp ? cell.reader & 0x1f : cell.reader < threads_ ? cell.reader / 32 : -1;
    const bool joins_warp = cell.read_at >= history_.began() && party < threads_ && party / 32 == warp;
    cell.reader = joins_warp ? static_cast<std::uint16_t>(Party::kWarp | warp)
                  : others && mine && cell.read_at >= history_.began()
                      ? static_cast<std::uint16_t>(Party::kWarpgroups | others | mine)
                      : Party::kAnyone;
  }
}

std::uint16_t Machine::warpgroups_of(std::uint16_t party) const {
  const int who = party & Party::kMask, group = who - wgmma_party(fibers_[0]);
  if (who == Party::kAnyone) return 0;
  if (who >= Party::kWarpgroups) return static_cast<std::uint16_t>(who & 0xff);
  return group >= 0 && group < 8 ? static_cast<std::uint16_t>(1 << group) : std::uint16_t{0};
}

bool Machine::is_ordered(const Fiber& f, const Region& r, std::uint16_t party, Clock at) const {
  if (at < history_.began()) return !r.allocation;  // shared memory ends with its block; blocks know nothing of others
  if (party & Party::kInFlight) return false;
  const int who = party & Party::kMask;
  const auto knows_all = [&](int begin, int end) {
    for (int t = begin; t < end; ++t) {
      if (!history_.knows(f.index, t, at)) return false;
    }
    return true;
  };
  if (who == Party::kAnyone) return knows_all(0, f.index) && knows_all(f.index + 1, threads_);
  if (const unsigned groups = warpgroups_of(party); groups != 0) {
    for (int g = 0; g < 8; ++g)
      if ((groups >> g & 1) && !history_.knows(f.index, wgmma_party(fibers_[0]) + g, at)) return false;
    return true;
  }
  if (who & Party::kWarp) {
    const int warp = who & 0x1f;
    return knows_all(warp * 32, std::min(threads_, warp * 32 + 32));
  }
  return history_.knows(f.index, who, at);
}

Site Machine::site_of(Place place) {
  const auto [it, is_new] = sites_.try_emplace(place, static_cast<Site>(places_.size()));
  if (is_new) places_.push_back(place);
  return it->second;
}

void Machine::settle(std::byte* begin, std::int64_t bytes, std::uint16_t party, Place place) {
  if (!policy_.is_checked) return;
  Region* r = region_at(reinterpret_cast<std::uintptr_t>(begin));
  const Site site = site_of(place);
  r->shadow.visit(begin - r->begin, bytes, [&](Cell& cell, std::int64_t) {
    cell.writer = party;
    cell.written_at = history_.now();
    cell.write_site = site;
  });
}

// ---- the text of a race -------------------------------------------------------------------------------------------

std::int64_t Machine::block_of(Clock at) const {
  const auto after = std::upper_bound(block_began_.begin(), block_began_.end(), at,
                                      [](Clock c, const auto& began) { return c < began.first; });
  return (after - 1)->second;
}

std::string Machine::party_name(std::uint16_t party) const {
  const int who = party & Party::kMask;
  if (who == Party::kAnyone) return "several threads";
  if (who >= Party::kWarpgroups) return "several warpgroups";
  if (who & Party::kWarp) return fmt::format("several threads of warp {}", who & 0x1f);
  if (who == threads_) return "the tensor copy";
  if (who > threads_) return fmt::format("warpgroup {}", who - threads_ - 1);
  return fmt::format("thread {}", who);
}

void Machine::race(const Fiber& f, const Region& r, const Cell& cell, bool with_reader, std::int64_t offset, Access how,
                   Site site) {
  const std::uint16_t party = with_reader ? cell.reader : cell.writer;
  const Clock at = with_reader ? cell.read_at : cell.written_at;
  const std::string line = at_line(places_[with_reader ? cell.read_site : cell.write_site]);
  const bool is_other_block = at < history_.began();
  const char* did = with_reader ? "loaded" : party & Party::kAtomic ? "atomically updated" : "stored";
  std::string rest;
  if (party & Party::kInFlight) {
    rest = fmt::format("into which {} copies since {}, and nothing has waited for the copy", party_name(party), line);
  } else {
    rest = fmt::format("which {}{} {} at {}{}", is_other_block ? block_name(block_of(at)) + ", " : "",
                       party_name(party), did, line, is_other_block ? "" : ", with no barrier between");
  }
  fail("race", fmt::format("{} {} {} at {}, {}", here(f), present(how), r.where(offset), at_line(places_[site]), rest));
}

}  // namespace sheaf::emulator
