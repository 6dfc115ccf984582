// The first use of a layout is only counted, so that what changes with every call, as weights in training do, is packed
// into the program's own memory as ever. Room is made by age, but only as far as it lasts: weights that do not fit
// together, read in turn, would otherwise drop each other before any is read again, and each be packed every time.
#include "runtime/packed_copies.h"

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <mutex>
#include <string_view>
#include <utility>

#include "fmt/format.h"
#include "ir/log.h"
#include "runtime/buffer.h"
#include "runtime/counters.h"
#include "runtime/fork.h"

namespace sheaf::runtime {

struct PackedCopy {
  std::string layout;
  std::int64_t bytes = 0;
  std::uint64_t last_use = 0;  // 0: never
  bool is_made = false;
  std::shared_ptr<Memory> memory = nullptr;  // null: not kept
};

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

// The copies of the process that are kept.
class Shelf {
 public:
  std::recursive_mutex mutex;  // guards all copies; memory for one may be asked for under it
  std::uint64_t clock = 0;
  bool is_growing = false;  // then none is dropped for want of memory: copies do not drive out copies

  void keep(PackedCopy& copy, std::shared_ptr<Memory> memory) {
    copy.memory = std::move(memory);
    kept_.push_back(&copy);
    bytes_ += copy.bytes;
  }
  void drop(PackedCopy& copy) {
    copy.memory = nullptr;
    copy.is_made = false;
    kept_.erase(std::find(kept_.begin(), kept_.end(), &copy));
    bytes_ -= copy.bytes;
  }
  /// Whether so much more fits, once those have gone that were not read after `since`.
  bool make_room(std::int64_t bytes, std::uint64_t since) {
    const auto gives_way = [&](const PackedCopy* c) { return c->is_made && c->last_use < since; };
    std::vector<PackedCopy*> idle;
    std::copy_if(kept_.begin(), kept_.end(), std::back_inserter(idle), gives_way);
    std::int64_t least = bytes_ + bytes;
    for (const PackedCopy* copy : idle) least -= copy->bytes;
    if (least > limit_bytes()) return false;
    std::sort(idle.begin(), idle.end(), [](auto* a, auto* b) { return a->last_use < b->last_use; });
    for (auto oldest = idle.begin(); bytes_ + bytes > limit_bytes(); ++oldest) {
      drop(**oldest);
      counters().packed_copies_dropped.fetch_add(1, std::memory_order_relaxed);
    }
    return true;
  }

  bool clear() {
    if (is_growing) return false;
    std::vector<PackedCopy*> made;
    std::ranges::copy_if(kept_, std::back_inserter(made), &PackedCopy::is_made);
    for (PackedCopy* copy : made) drop(*copy);
    counters().packed_copies_dropped.fetch_add(std::ssize(made), std::memory_order_relaxed);
    return !made.empty();
  }

 private:
  std::vector<PackedCopy*> kept_;
  std::int64_t bytes_ = 0;
};

Shelf& shelf() {
  static auto& shelf = *new Shelf;  // leaked: static Arrays may outlive any destructor order
  return shelf;
}

PackedCopy* find(const std::vector<std::unique_ptr<PackedCopy>>& copies, const std::string& layout) {
  const auto at = std::find_if(copies.begin(), copies.end(), [&](const auto& c) { return c->layout == layout; });
  return at == copies.end() ? nullptr : at->get();
}

}  // namespace

PackedCopies::PackedCopies() = default;

PackedCopies::~PackedCopies() {
  if (!check_not_forked().ok()) return;  // whoever held the mutex does not exist in a forked child
  std::lock_guard lock(shelf().mutex);
  for (const auto& copy : copies_)
    if (copy->memory) shelf().drop(*copy);
}

PackedCopies::Place PackedCopies::place(const std::string& layout, std::int64_t bytes) {
  std::lock_guard lock(shelf().mutex);
  PackedCopy* copy = find(copies_, layout);
  if (!copy) copy = copies_.emplace_back(new PackedCopy{.layout = layout, .bytes = bytes}).get();
  const std::uint64_t last_use = std::exchange(copy->last_use, ++shelf().clock);
  if (copy->memory && !copy->is_made) return {};  // another is at it
  if (copy->memory) {
    counters().packed_copies_read.fetch_add(1, std::memory_order_relaxed);
    return {copy->memory, true};
  }
  if (last_use == 0 || !shelf().make_room(bytes, last_use)) return {};
  shelf().is_growing = true;
  absl::StatusOr<std::shared_ptr<Memory>> memory = Memory::allocate(Allocator::host(), bytes, Loc{});
  shelf().is_growing = false;
  if (!memory.ok()) return {};
  shelf().keep(*copy, *memory);
  return {*std::move(memory), false};
}

void PackedCopies::finish(const std::string& layout, bool is_made) {
  std::lock_guard lock(shelf().mutex);
  PackedCopy& copy = *find(copies_, layout);
  copy.is_made = is_made;
  if (is_made) counters().packed_copies_kept.fetch_add(1, std::memory_order_relaxed);
  else shelf().drop(copy);
}

bool drop_packed_copies() {
  std::lock_guard lock(shelf().mutex);
  return shelf().clear();
}

}  // namespace sheaf::runtime
