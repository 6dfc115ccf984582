// One list per size, linked through the blocks themselves. The lists need no destructor, so arrays in static storage
// may come back after those of their thread; then a guard has closed the lists, and blocks go to the system.
#include "ir/recycled.h"

#include <algorithm>
#include <array>
#include <bit>
#include <memory>
#include <new>
#include <utility>

#include "ir/work.h"

namespace sheaf::ir {
namespace {

// Where what is used after it was dropped has to be found, nothing is kept.
#if defined(__SANITIZE_ADDRESS__)
constexpr bool kKeeps = false;
#elif defined(__has_feature)
constexpr bool kKeeps = !__has_feature(address_sanitizer);
#else
constexpr bool kKeeps = true;
#endif

constexpr std::size_t kLargest = std::size_t{1} << 20;

// Of small objects in steps of a few bytes, of what is larger in powers of two.
struct SizeClass {
  static constexpr std::size_t kStep = 32, kSmall = 512, kSmallClasses = kSmall / kStep;
  static constexpr std::size_t kCount = kSmallClasses + std::bit_width(kLargest / kSmall) - 1;

  explicit SizeClass(std::size_t wanted)
      : index(wanted <= kSmall ? (std::max<std::size_t>(wanted, 1) - 1) / kStep
                               : kSmallClasses + std::bit_width((wanted - 1) / kSmall) - 1),
        bytes(wanted <= kSmall ? (index + 1) * kStep : std::bit_ceil(wanted)) {}

  int most() const { return bytes <= kSmall ? 256 : static_cast<int>(kLargest / bytes); }

  std::size_t index, bytes;
};

struct FreeBlock {
  FreeBlock* next;
};

struct FreeList {
  FreeBlock* first = nullptr;
  int count = 0;
};

struct FreeLists {
  std::array<FreeList, SizeClass::kCount> of_size;
  std::int64_t recycled_bytes = 0;
  bool is_guarded = false, is_closed = false;
};

constinit thread_local FreeLists lists;

struct Guard {
  ~Guard() {
    lists.is_closed = true;
    for (FreeList& list : lists.of_size) {
      while (FreeBlock* block = list.first) {
        list.first = block->next;
        ::operator delete(block);
      }
    }
  }
};

void guard() {
  thread_local const Guard guard;
  lists.is_guarded = true;
}

class Resource final : public std::pmr::memory_resource {
  void* do_allocate(std::size_t bytes, std::size_t alignment) override {
    return alignment <= alignof(std::max_align_t) ? take_block(bytes) : aligned_.allocate(bytes, alignment);
  }
  void do_deallocate(void* block, std::size_t bytes, std::size_t alignment) override {
    if (alignment <= alignof(std::max_align_t)) give_block(block, bytes);
    else aligned_.deallocate(block, bytes, alignment);
  }
  bool do_is_equal(const memory_resource& other) const noexcept override { return this == &other; }

  std::pmr::memory_resource& aligned_ = *std::pmr::new_delete_resource();
};

}  // namespace

std::pmr::memory_resource* recycling() {
  static auto& resource = *new Resource;  // what is in static storage may be dropped after all else
  return &resource;
}

std::int64_t recycled_bytes() { return lists.recycled_bytes; }

Pieces::~Pieces() {
  while (Piece* const piece = last_) {
    last_ = piece->before;
    give_block(piece, piece->bytes);
  }
}

void* Pieces::do_allocate(std::size_t bytes, std::size_t alignment) {
  if (!std::align(alignment, bytes, free_, space_)) {
    add_piece(bytes + alignment);
    std::align(alignment, bytes, free_, space_);
  }
  space_ -= bytes;
  return std::exchange(free_, static_cast<std::byte*>(free_) + bytes);
}

void Pieces::add_piece(std::size_t at_least) {
  constexpr std::size_t kFirst = 1024, kMost = 32768;
  const std::size_t usual = last_ ? std::min(2 * last_->bytes, kMost) : kFirst;
  const std::size_t bytes = std::max(usual, at_least + sizeof(Piece));
  last_ = new (take_block(bytes)) Piece{last_, bytes};
  free_ = last_ + 1;
  space_ = bytes - sizeof(Piece);
}

void* take_block(std::size_t bytes) {
  if (!kKeeps || bytes > kLargest) return ::operator new(bytes);
  const SizeClass size(bytes);
  FreeList& list = lists.of_size[size.index];
  FreeBlock* const block = list.first;
  if (!block) return ::operator new(size.bytes);
  list.first = block->next;
  --list.count;
  lists.recycled_bytes += static_cast<std::int64_t>(size.bytes);
  return block;
}

void give_block(void* block, std::size_t bytes) noexcept {
  if (!kKeeps || bytes > kLargest || lists.is_closed) return ::operator delete(block);
  const SizeClass size(bytes);
  FreeList& list = lists.of_size[size.index];
  if (list.count >= size.most()) return ::operator delete(block);
  if (!lists.is_guarded) guard();
  auto* free = static_cast<FreeBlock*>(block);
  free->next = list.first;
  list.first = free;
  ++list.count;
}

}  // namespace sheaf::ir
