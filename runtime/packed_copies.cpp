// The first use of a layout is only counted, so that what changes with every call, as weights in training do, is packed
// into the program's own memory as ever.
#include "runtime/packed_copies.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <string_view>

#include "fmt/format.h"
#include "ir/log.h"
#include "runtime/buffer.h"
#include "runtime/counters.h"

namespace sheaf::runtime {
namespace {

constexpr std::int64_t kDefaultLimit = std::int64_t{1} << 30;

std::int64_t limit_bytes() {
  static const std::int64_t limit = [] {
    const char* text = std::getenv("SHEAF_PACKED_LIMIT");
    if (!text || !*text) return kDefaultLimit;
    if (std::string_view(text) == "0") return std::int64_t{0};
    const absl::StatusOr<std::int64_t> bytes = parse_bytes(text, kDefaultLimit);
    if (bytes.ok()) return *bytes;
    ir::warn(fmt::format("SHEAF_PACKED_LIMIT={}: {}", text, std::string(bytes.status().message())));
    return kDefaultLimit;
  }();
  return limit;
}

std::atomic<std::int64_t>& kept_bytes() {
  static std::atomic<std::int64_t> bytes{0};
  return bytes;
}

bool reserve(std::int64_t bytes) {
  if (kept_bytes().fetch_add(bytes, std::memory_order_relaxed) + bytes <= limit_bytes()) return true;
  kept_bytes().fetch_sub(bytes, std::memory_order_relaxed);
  return false;
}

}  // namespace

PackedCopies::~PackedCopies() {
  for (Copy& copy : copies_)
    if (copy.memory) forget(copy);
}

PackedCopies::Place PackedCopies::place(const std::string& layout, std::int64_t bytes) {
  std::lock_guard lock(mutex_);
  auto copy = std::find_if(copies_.begin(), copies_.end(), [&](const Copy& c) { return c.layout == layout; });
  if (copy == copies_.end()) copy = copies_.insert(copy, {.layout = layout, .bytes = bytes, .memory = nullptr});
  if (copy->memory && !copy->is_made) return {};  // another is at it
  if (copy->memory) {
    counters().packed_copies_read.fetch_add(1, std::memory_order_relaxed);
    return {copy->memory, true};
  }
  if (++copy->uses < 2 || !reserve(bytes)) return {};
  absl::StatusOr<std::shared_ptr<Memory>> memory = Memory::allocate(Allocator::host(), bytes, Loc{});
  if (!memory.ok()) {
    kept_bytes().fetch_sub(bytes, std::memory_order_relaxed);
    return {};
  }
  copy->memory = *std::move(memory);
  return {copy->memory, false};
}

void PackedCopies::finish(const std::string& layout, bool is_made) {
  std::lock_guard lock(mutex_);
  const auto copy = std::find_if(copies_.begin(), copies_.end(), [&](const Copy& c) { return c.layout == layout; });
  copy->is_made = is_made;
  if (is_made) counters().packed_copies_kept.fetch_add(1, std::memory_order_relaxed);
  else forget(*copy);
}

void PackedCopies::forget(Copy& copy) {
  copy.memory = nullptr;
  kept_bytes().fetch_sub(copy.bytes, std::memory_order_relaxed);
}

}  // namespace sheaf::runtime
