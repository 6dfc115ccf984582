// Blocks are rounded up and kept apart, so a write past the end meets no other block; new ones hold bytes that are NaN
// as floats and -1 as integers.
#include "tests/emulator/fake_cuda/memory.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>

namespace sheaf::fake_cuda {
namespace {

std::vector<Memory*> all;  // changed and read under the driver's lock
int open_count = 0;

void* reserve(std::uint64_t bytes, int protection) {
  void* at = mmap(nullptr, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) {
    std::fprintf(stderr, "fake CUDA: no addresses for a device's memory\n");
    std::abort();
  }
  return at;
}

std::byte* bytes_at(CUdeviceptr pointer) { return reinterpret_cast<std::byte*>(pointer); }

/// The whole pages between, which are zeros afterwards; how many bytes come before and behind them.
std::pair<std::int64_t, std::int64_t> give_back_pages(void* begin, std::int64_t bytes) {
  constexpr std::uintptr_t page = 4096;
  const auto at = reinterpret_cast<std::uintptr_t>(begin), end = at + static_cast<std::uintptr_t>(bytes);
  const std::uintptr_t first = (at + page - 1) / page * page, last = end / page * page;
  if (last <= first) return {bytes, 0};
  madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
  return {static_cast<std::int64_t>(first - at), static_cast<std::int64_t>(end - last)};
}

/// Zeros, without touching the pages of a large block that never were.
void forget(std::uint8_t* marks, std::int64_t bytes) {
  const auto [before, behind] = give_back_pages(marks, bytes);
  std::memset(marks, 0, static_cast<std::size_t>(before));
  std::memset(marks + bytes - behind, 0, static_cast<std::size_t>(behind));
}

bool is_ordered(const Touch& earlier, const Position& at) {
  return earlier.stream == at.stream || earlier.number <= fake_cuda::at(at.before, earlier.stream);
}

}  // namespace

std::string Block::name() const { return fmt::format("allocation {} of device {} ({} bytes)", id, device, bytes); }
std::string Range::name() const { return fmt::format("bytes [{}, {}) of {}", offset, offset + bytes, block->name()); }

Memory::Memory(int device, std::int64_t limit_bytes) : device_(device), limit_bytes_(limit_bytes) {
  base_ = reinterpret_cast<CUdeviceptr>(reserve(kArenaBytes, PROT_NONE));
  end_ = base_;
  marks_ = static_cast<std::uint8_t*>(reserve(kArenaBytes, PROT_READ | PROT_WRITE));
  all.push_back(this);
}

Memory::~Memory() {
  std::erase(all, this);
  munmap(bytes_at(base_), kArenaBytes);
  munmap(marks_, kArenaBytes);
}

void Memory::protect(bool is_open) const {
  if (end_ > base_) mprotect(bytes_at(base_), end_ - base_, is_open ? PROT_READ | PROT_WRITE : PROT_NONE);
}

Memory::Open::Open() {
  if (open_count++ == 0)
    for (Memory* m : all) m->protect(true);
}
Memory::Open::~Open() {
  if (--open_count == 0)
    for (Memory* m : all) m->protect(false);
}

std::optional<CUdeviceptr> Memory::take_cached(std::int64_t bytes, int stream) {
  for (std::size_t i = cached_.size(); i-- > 0;) {
    const Cached c = cached_[i];
    if (c.bytes != bytes || (c.stream != stream && !c.is_over)) continue;
    cached_.erase(cached_.begin() + static_cast<std::ptrdiff_t>(i));
    return c.base;
  }
  return {};
}

CUdeviceptr Memory::new_addresses(std::int64_t bytes) {
  const auto fits = [&](const auto& r) { return r.second == bytes; };
  if (const auto r = std::find_if(released_.begin(), released_.end(), fits);
      released_bytes_ > kReleasedBytes && r != released_.end()) {
    const CUdeviceptr base = r->first;
    released_bytes_ -= bytes;
    released_.erase(r);
    return base;
  }
  const CUdeviceptr base = end_;
  end_ += static_cast<std::uint64_t>(bytes + kGranularity);
  return base;
}

BlockPtr Memory::allocate(std::int64_t bytes, bool is_pooled, int stream) {
  const std::int64_t rounded = (bytes + kGranularity - 1) / kGranularity * kGranularity;
  if (rounded < bytes || rounded > limit_bytes_) return nullptr;
  std::optional<CUdeviceptr> base = is_pooled ? take_cached(rounded, stream) : std::nullopt;
  if (!base) {
    if (rounded > free_bytes()) trim(0);
    if (rounded > free_bytes() || end_ + static_cast<std::uint64_t>(rounded) > base_ + kArenaBytes / 2) return nullptr;
    base = new_addresses(rounded);
    held_bytes_ += rounded;
    if (is_pooled) reserved_high_ = std::max(reserved_high_, reserved_ += static_cast<std::uint64_t>(rounded));
  }
  if (is_pooled) used_high_ = std::max(used_high_, used_ += static_cast<std::uint64_t>(rounded));
  const auto block = std::make_shared<Block>(
      Block{.device = device_, .id = next_id_++, .base = *base, .bytes = bytes, .is_pooled = is_pooled, .touches = {}});
  issued_[*base] = block;
  return block;
}

BlockPtr Memory::issued_at(CUdeviceptr base) const {
  const auto i = issued_.find(base);
  return i == issued_.end() ? nullptr : i->second;
}

std::optional<Range> Memory::issued(CUdeviceptr pointer, std::int64_t bytes) const {
  auto i = issued_.upper_bound(pointer);
  if (i == issued_.begin()) return {};
  const BlockPtr& block = (--i)->second;
  const auto offset = static_cast<std::int64_t>(pointer - block->base);
  if (bytes < 0 || offset > block->bytes || bytes > block->bytes - offset) return {};
  return Range{block, offset, bytes};
}

void Memory::retire(const BlockPtr& block, int stream) {
  issued_.erase(block->base);
  if (!block->is_pooled) return;
  const std::int64_t rounded = (block->bytes + kGranularity - 1) / kGranularity * kGranularity;
  used_ -= static_cast<std::uint64_t>(rounded);
  cached_.push_back({block->base, rounded, stream, false});
}

void Memory::begin_life(const BlockPtr& block) {
  alive_[block->base] = block;
  forget(marks(block->base), block->bytes);
  // Not all of a large one: a kernel that reads what nothing wrote is told anyway.
  constexpr std::int64_t most = 1 << 20;
  std::memset(bytes_at(block->base), 0xff, static_cast<std::size_t>(std::min(block->bytes, most)));
}

void Memory::end_life(const BlockPtr& block) {
  alive_.erase(block->base);
  if (!block->is_pooled) {
    const std::int64_t rounded = (block->bytes + kGranularity - 1) / kGranularity * kGranularity;
    held_bytes_ -= rounded;
    return release(block->base, rounded);
  }
  for (Cached& c : cached_) c.is_over |= c.base == block->base;
}

void Memory::release(CUdeviceptr base, std::int64_t bytes) {
  give_back_pages(bytes_at(base), bytes);
  released_.emplace_back(base, bytes);
  released_bytes_ += bytes;
}

void Memory::trim(std::uint64_t bytes_to_keep) {
  std::erase_if(cached_, [&](const Cached& c) {
    if (!c.is_over || reserved_ <= bytes_to_keep) return false;
    reserved_ -= static_cast<std::uint64_t>(c.bytes);
    held_bytes_ -= c.bytes;
    release(c.base, c.bytes);
    return true;
  });
}

bool Memory::is_alive(const BlockPtr& block) const {
  const auto i = alive_.find(block->base);
  return i != alive_.end() && i->second == block;
}

std::vector<std::string> Memory::leaks() const {
  std::vector<std::string> lines;
  for (const auto& [base, block] : issued_) lines.push_back(block->name());
  return lines;
}

std::string touch(Memory& memory, const Range& range, bool is_write, const Position& at) {
  Block& block = *range.block;
  if (!memory.is_alive(range.block))
    return fmt::format("{} touches {}, which is freed, or comes into being on another stream later", at.what,
                       range.name());
  const Touch now{.begin = range.offset,
                  .end = range.offset + range.bytes,
                  .is_write = is_write,
                  .stream = at.stream,
                  .number = at.number,
                  .what = at.what};
  for (const Touch& t : block.touches) {
    const bool overlaps = t.begin < now.end && now.begin < t.end;
    if (!overlaps || !(t.is_write || is_write) || is_ordered(t, at)) continue;
    return fmt::format("{} {} {}, which {} {}, and nothing orders the two", at.what, is_write ? "writes" : "reads",
                       range.name(), t.what, t.is_write ? "writes" : "reads");
  }
  std::erase_if(block.touches, [&](const Touch& t) {
    const bool is_covered = now.begin <= t.begin && t.end <= now.end;
    return is_covered && (is_write || (!t.is_write && t.stream == now.stream));
  });
  constexpr std::size_t few = 64;
  if (block.touches.size() > few)
    std::erase_if(block.touches, [&](const Touch& t) { return t.number <= fake_cuda::at(at.settled, t.stream); });
  block.touches.push_back(now);
  return "";
}

std::optional<std::int64_t> first_unwritten(const Memory& memory, const Range& range) {
  const std::uint8_t* begin = memory.marks(range.block->base + static_cast<CUdeviceptr>(range.offset));
  const void* hole = std::memchr(begin, 0, static_cast<std::size_t>(range.bytes));
  if (!hole) return {};
  return range.offset + (static_cast<const std::uint8_t*>(hole) - begin);
}

}  // namespace sheaf::fake_cuda
