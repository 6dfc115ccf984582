// Small blocks come from slabs of one size class each; everything else from free ranges of the regions, best fit first,
// merged with their neighbours when released. Invariant: the free ranges, the slabs and the live large blocks tile the
// regions exactly.
#include "runtime/allocator.h"

#include <sys/mman.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdlib>
#include <fstream>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "fmt/format.h"
#include "ir/log.h"
#include "runtime/counters.h"
#include "runtime/fork.h"
#include "runtime/packed_copies.h"

namespace sheaf::runtime {
namespace {

constexpr std::int64_t kPage = 4 << 10;
constexpr std::int64_t kHugePage = 2 << 20;
constexpr std::int64_t kLargestSmall = 64 << 10;
constexpr std::int64_t kSlab = 256 << 10;
constexpr std::int64_t kLargestRequest = std::int64_t{1} << 46;
constexpr int kStepsPerDoubling = 4;
constexpr int kSmallClasses = 11 * kStepsPerDoubling;  // 64 B to 64 KB

std::int64_t round_up(std::int64_t bytes, std::int64_t unit) { return (bytes + unit - 1) / unit * unit; }

std::int64_t floor_pow2(std::int64_t bytes) {
  return static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(bytes)));
}

/// Sizes in use are few, so that released blocks fit later requests: four per doubling, multiples of 64.
std::int64_t small_size(std::int64_t bytes) {
  bytes = std::max<std::int64_t>(bytes, 64);
  return round_up(bytes, std::max<std::int64_t>(floor_pow2(bytes) / kStepsPerDoubling, 64));
}

int small_class(std::int64_t size) {
  const int doubling = static_cast<int>(std::bit_width(static_cast<std::uint64_t>(size))) - 7;  // 64 B: 0
  const auto step = static_cast<int>((size - (std::int64_t{64} << doubling)) * kStepsPerDoubling >> (doubling + 6));
  return doubling * kStepsPerDoubling + step;
}

/// Eight sizes per doubling, whole pages, and at most one huge page lost.
std::int64_t large_size(std::int64_t bytes) {
  return round_up(bytes, std::clamp(floor_pow2(bytes) / 8, kPage, kHugePage));
}

/// 2 MB aligned and advised to use huge pages; null when the system has no more.
std::byte* map_region(std::int64_t bytes) {
  const std::int64_t mapped = bytes + kHugePage;
  void* raw = mmap(nullptr, static_cast<std::size_t>(mapped), PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (raw == MAP_FAILED) return nullptr;
  auto* begin = static_cast<std::byte*>(raw);
  const std::int64_t before = -static_cast<std::int64_t>(std::bit_cast<std::uintptr_t>(begin)) & (kHugePage - 1);
  if (before > 0) munmap(begin, static_cast<std::size_t>(before));
  std::byte* base = begin + before;
  munmap(base + bytes, static_cast<std::size_t>(kHugePage - before));
  madvise(base, static_cast<std::size_t>(bytes), MADV_HUGEPAGE);  // a wish: kernels without it are only slower
  return base;
}

}  // namespace

std::string human_bytes(std::int64_t bytes) {
  constexpr std::array<const char*, 4> kUnits = {"B", "KiB", "MiB", "GiB"};
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 1024 && unit + 1 < kUnits.size()) value /= 1024, ++unit;
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", value, kUnits[unit]);
}

struct Allocator::State {
  struct Region {
    std::int64_t bytes = 0;
    std::int64_t touched = 0;  // [0, touched) has been handed out before
  };
  struct Live {
    std::int64_t bytes = 0;
    Loc made_at;
  };
  struct SmallClass {
    std::vector<std::byte*> free;
    std::byte* bump = nullptr;  // the rest of the newest slab
    std::byte* end = nullptr;
  };

  Options options;
  mutable std::mutex mutex;
  AllocatorStats stats;
  std::map<std::byte*, Region> regions;
  std::map<std::byte*, std::int64_t> free_by_address;
  std::set<std::pair<std::int64_t, std::byte*>> free_by_size;
  std::array<SmallClass, kSmallClasses> small;
  absl::flat_hash_map<std::byte*, Live> live_large;
  std::int64_t small_in_use = 0;
  bool source_is_empty = false;  // when it was asked last
  std::vector<LineUse> peak_uses;  // at the last high point that was noted
  std::int64_t noted_peak = 0;

  std::optional<Block> take(std::int64_t bytes, Loc made_at);
  std::byte* take_small(std::int64_t size);
  std::byte* take_large(std::int64_t size);
  bool add_region(std::int64_t size);
  bool give_back_regions();
  void add_free(std::byte* data, std::int64_t bytes);
  void remove_free(std::map<std::byte*, std::int64_t>::iterator range);
  void touch(std::byte* data, std::int64_t bytes);
  std::vector<LineUse> uses() const;
  void note_peak();
  std::int64_t largest_free() const { return free_by_size.empty() ? 0 : free_by_size.rbegin()->first; }
  absl::Status out_of_memory(std::int64_t asked, Loc made_at) const;
};

std::byte* Allocator::State::take_small(std::int64_t size) {
  SmallClass& blocks = small[small_class(size)];
  if (!blocks.free.empty()) {
    std::byte* data = blocks.free.back();
    blocks.free.pop_back();
    return data;
  }
  if (blocks.bump == blocks.end) {
    std::int64_t slab = kSlab / size * size;
    std::byte* data = take_large(round_up(slab, kPage));
    if (!data) slab = size, data = take_large(round_up(slab, kPage));  // nearly full: one block at least
    if (!data) return nullptr;
    blocks.bump = data;
    blocks.end = data + slab;
  }
  return std::exchange(blocks.bump, blocks.bump + size);
}

std::byte* Allocator::State::take_large(std::int64_t size) {
  auto best = free_by_size.lower_bound({size, nullptr});
  if (best == free_by_size.end()) {
    if (!add_region(size) && !(give_back_regions() && add_region(size))) return nullptr;
    best = free_by_size.lower_bound({size, nullptr});
  }
  const auto [bytes, data] = *best;
  remove_free(free_by_address.find(data));
  if (bytes > size) add_free(data + size, bytes - size);
  touch(data, size);
  return data;
}

std::optional<Block> Allocator::State::take(std::int64_t bytes, Loc made_at) {
  if (bytes < 0 || bytes > kLargestRequest) return {};
  const bool is_small = bytes <= kLargestSmall;
  const std::int64_t size = is_small ? small_size(bytes) : large_size(bytes);
  std::byte* data = is_small ? take_small(size) : take_large(size);
  if (!data) return {};
  if (is_small) small_in_use += size;
  else live_large[data] = {size, made_at};
  ++stats.blocks;
  stats.bytes_in_use += size;
  stats.peak_bytes = std::max(stats.peak_bytes, stats.bytes_in_use);
  counters().bytes_allocated.fetch_add(size, std::memory_order_relaxed);
  return Block{data, size};
}

bool Allocator::State::add_region(std::int64_t size) {
  const std::int64_t least = round_up(size, kHugePage);
  std::int64_t bytes = std::max(least, round_up(options.region_bytes, kHugePage));
  if (options.limit_bytes > 0) bytes = std::min(bytes, options.limit_bytes - stats.bytes_reserved);
  bytes -= bytes % kHugePage;
  source_is_empty = false;
  if (bytes < least) return false;
  std::byte* base = options.source.take(bytes);
  if (!base && bytes > least) base = options.source.take(bytes = least);
  source_is_empty = !base;
  if (!base) return false;
  regions.emplace(base, Region{.bytes = bytes});
  stats.bytes_reserved += bytes;
  ++stats.regions;
  add_free(base, bytes);
  ir::log(ir::LogTopic::runtime, "new memory region of {}{}{}, {} reserved", human_bytes(bytes),
          options.where.empty() ? "" : " on ", options.where, human_bytes(stats.bytes_reserved));
  return true;
}

/// Regions that are one free range go back to the system; false if there is none.
bool Allocator::State::give_back_regions() {
  const std::int64_t before = stats.regions;
  for (auto region = regions.begin(); region != regions.end();) {
    const auto free = free_by_address.find(region->first);
    if (free == free_by_address.end() || free->second != region->second.bytes) {
      ++region;
      continue;
    }
    options.source.give_back(region->first, region->second.bytes);
    stats.bytes_reserved -= region->second.bytes;
    --stats.regions;
    remove_free(free);
    region = regions.erase(region);
  }
  return stats.regions < before;
}

/// Merges with free neighbours, but never over the border of a region: regions are told apart by `touched`.
void Allocator::State::add_free(std::byte* data, std::int64_t bytes) {
  const auto region = std::prev(regions.upper_bound(data));
  auto next = free_by_address.lower_bound(data);
  if (next != free_by_address.end() && next->first == data + bytes &&
      next->first < region->first + region->second.bytes) {
    bytes += next->second;
    auto merged = next++;
    remove_free(merged);
  }
  if (next != free_by_address.begin()) {
    auto previous = std::prev(next);
    if (previous->first + previous->second == data && previous->first >= region->first) {
      data = previous->first;
      bytes += previous->second;
      remove_free(previous);
    }
  }
  free_by_address.emplace(data, bytes);
  free_by_size.emplace(bytes, data);
}

void Allocator::State::remove_free(std::map<std::byte*, std::int64_t>::iterator range) {
  free_by_size.erase({range->second, range->first});
  free_by_address.erase(range);
}

void Allocator::State::touch(std::byte* data, std::int64_t bytes) {
  const auto it = std::prev(regions.upper_bound(data));
  const std::int64_t end = data + bytes - it->first;
  if (end <= it->second.touched) return;
  stats.fresh_bytes += end - it->second.touched;
  it->second.touched = end;
}

std::vector<LineUse> Allocator::State::uses() const {
  absl::flat_hash_map<std::pair<const char*, int>, LineUse> by_line;
  for (const auto& [data, block] : live_large) {
    LineUse& use = by_line[{block.made_at.file, block.made_at.line}];
    use.made_at = block.made_at;
    use.bytes += block.bytes;
    ++use.blocks;
  }
  if (small_in_use > 0) {
    LineUse& use = by_line[{nullptr, 0}];
    use.bytes += small_in_use;
    use.blocks += stats.blocks - std::ssize(live_large);
  }
  std::vector<LineUse> all;
  for (const auto& [line, use] : by_line) all.push_back(use);
  std::sort(all.begin(), all.end(), [](const LineUse& a, const LineUse& b) {
    return std::tuple(-a.bytes, to_string(a.made_at)) < std::tuple(-b.bytes, to_string(b.made_at));
  });
  return all;
}

/// Before a block goes. A program in steady state has noted its peak, and one that grows notes each 2 percent.
void Allocator::State::note_peak() {
  if (stats.bytes_in_use <= noted_peak + noted_peak / 50) return;
  noted_peak = stats.bytes_in_use;
  peak_uses = uses();
}

absl::Status Allocator::State::out_of_memory(std::int64_t asked, Loc made_at) const {
  constexpr std::size_t kShown = 10;
  const std::string where = options.where.empty() ? "" : " on " + options.where;
  std::string text = fmt::format("out of memory{}: {} asked{}; {} in use in {} blocks, {} reserved", where,
                                 human_bytes(asked), made_at ? " at " + to_string(made_at) : "",
                                 human_bytes(stats.bytes_in_use), stats.blocks, human_bytes(stats.bytes_reserved));
  if (options.limit_bytes > 0) text += fmt::format(" of a limit of {}", human_bytes(options.limit_bytes));
  text += fmt::format(", largest hole {}", human_bytes(largest_free()));
  if (source_is_empty) text += fmt::format(", and {} has no more", options.where.empty() ? "the system" : "the driver");
  const std::int64_t unused = stats.bytes_reserved - stats.bytes_in_use;
  if (unused >= asked) text += fmt::format(" ({} are free but in pieces)", human_bytes(unused));
  std::vector<Live> live;
  for (const auto& [data, block] : live_large) live.push_back(block);
  std::sort(live.begin(), live.end(), [](const Live& a, const Live& b) {
    return std::tuple(-a.bytes, to_string(a.made_at)) < std::tuple(-b.bytes, to_string(b.made_at));
  });
  if (live.size() > kShown) live.resize(kShown);
  for (const Live& block : live)
    text += fmt::format("\n  {} made at {}", human_bytes(block.bytes), to_string(block.made_at));
  if (small_in_use > 0) text += fmt::format("\n  {} in blocks of at most 64 KiB", human_bytes(small_in_use));
  return absl::ResourceExhaustedError(text);
}

Allocator::Source Allocator::host_pages() {
  return {.take = map_region,
          .give_back = [](std::byte* region, std::int64_t bytes) { munmap(region, static_cast<std::size_t>(bytes)); }};
}

Allocator::Allocator(Options options) : state_(std::make_unique<State>()) {
  state_->stats.bytes_limit = options.limit_bytes;
  state_->options = std::move(options);
}

Allocator::~Allocator() {
  for (const auto& [base, region] : state_->regions) state_->options.source.give_back(base, region.bytes);
}

absl::StatusOr<Block> Allocator::allocate(std::int64_t bytes, Loc made_at) {
  if (absl::Status status = check_not_forked(); !status.ok()) return status;
  State& s = *state_;
  for (;;) {
    {
      std::lock_guard lock(s.mutex);
      const std::optional<Block> block = s.take(bytes, made_at);
      if (block) return *block;
      const bool is_possible = bytes >= 0 && bytes <= kLargestRequest;
      if (!is_possible || !s.options.make_room) return s.out_of_memory(bytes, made_at);
    }
    if (s.options.make_room()) continue;
    std::lock_guard lock(s.mutex);
    return s.out_of_memory(bytes, made_at);
  }
}

void Allocator::release(Block block) {
  if (!block.data || !check_not_forked().ok()) return;  // whoever held the mutex does not exist in a forked child
  State& s = *state_;
  std::lock_guard lock(s.mutex);
  s.note_peak();
  --s.stats.blocks;
  s.stats.bytes_in_use -= block.bytes;
  if (block.bytes <= kLargestSmall) {
    s.small_in_use -= block.bytes;
    s.small[small_class(block.bytes)].free.push_back(block.data);
    return;
  }
  s.live_large.erase(block.data);
  s.add_free(block.data, block.bytes);
}

AllocatorStats Allocator::stats() const {
  std::lock_guard lock(state_->mutex);
  AllocatorStats stats = state_->stats;
  stats.largest_free = state_->largest_free();
  return stats;
}

std::vector<LineUse> Allocator::live() const {
  std::lock_guard lock(state_->mutex);
  return state_->uses();
}

std::vector<LineUse> Allocator::at_peak() const {
  std::lock_guard lock(state_->mutex);
  return state_->stats.bytes_in_use > state_->noted_peak ? state_->uses() : state_->peak_uses;
}

absl::StatusOr<std::int64_t> parse_bytes(const std::string& text, std::int64_t total) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  const std::string_view unit = end;
  const std::pair<std::string_view, double> units[] = {
      {"", 1}, {"K", 1 << 10}, {"M", 1 << 20}, {"G", 1 << 30}, {"%", static_cast<double>(total) / 100}};
  const auto scale = std::ranges::find(units, unit, &std::pair<std::string_view, double>::first);
  const double bytes = scale == std::end(units) ? 0 : value * scale->second;
  if (!(bytes >= 1) || bytes > static_cast<double>(kLargestRequest))
    return absl::InvalidArgumentError(
        fmt::format("'{}' is not a size: a number of bytes, or one with K, M{}", text, total ? ", G or %" : " or G"));
  return static_cast<std::int64_t>(bytes);
}

namespace {

/// Memory and swap, of the machine or of the container if that has less. Asking the system for more succeeds, but
/// whoever touches it all is killed.
std::int64_t bytes_there_are() {
  struct sysinfo machine{};
  if (sysinfo(&machine) != 0) return 0;
  auto bytes = static_cast<std::int64_t>((std::uint64_t{machine.totalram} + machine.totalswap) * machine.mem_unit);
  std::int64_t limit = 0;  // the file says "max" where there is none
  if (std::ifstream("/sys/fs/cgroup/memory.max") >> limit && limit > 0) bytes = std::min(bytes, limit);
  return bytes;
}

}  // namespace

Allocator& Allocator::host() {
  static Allocator* const allocator = [] {
    Options options{.limit_bytes = bytes_there_are(), .make_room = drop_packed_copies};
    if (const char* text = std::getenv("SHEAF_MEMORY_LIMIT"); text && *text) {
      const auto limit = parse_bytes(text, sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE));
      if (limit.ok()) options.limit_bytes = *limit;
      else ir::warn("SHEAF_MEMORY_LIMIT: " + std::string(limit.status().message()) + "; the limit is all there is");
    }
    return new Allocator(options);
  }();
  return *allocator;
}

}  // namespace sheaf::runtime
