// One list per size, linked through the blocks themselves. The lists need no destructor, so arrays in static storage
// may come back after those of their thread; then a guard has closed the lists, and blocks go to the system.
#include "runtime/recycled.h"

#include <array>
#include <new>

namespace sheaf::runtime {
namespace {

// Where what is used after it was dropped has to be found, nothing is kept.
#if defined(__SANITIZE_ADDRESS__)
constexpr bool kKeeps = false;
#elif defined(__has_feature)
constexpr bool kKeeps = !__has_feature(address_sanitizer);
#else
constexpr bool kKeeps = true;
#endif

constexpr std::size_t kStep = 32, kLargest = 512;
constexpr int kMostOfASize = 256;

struct FreeBlock {
  FreeBlock* next;
};

struct FreeList {
  FreeBlock* first = nullptr;
  int count = 0;
};

struct FreeLists {
  std::array<FreeList, kLargest / kStep> of_size;
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

constexpr std::size_t rounded(std::size_t bytes) { return (bytes + kStep - 1) / kStep * kStep; }

}  // namespace

void* take_block(std::size_t bytes) {
  if (!kKeeps || bytes > kLargest) return ::operator new(bytes);
  FreeList& list = lists.of_size[(bytes - 1) / kStep];
  FreeBlock* const block = list.first;
  if (!block) return ::operator new(rounded(bytes));
  list.first = block->next;
  --list.count;
  return block;
}

void give_block(void* block, std::size_t bytes) noexcept {
  if (!kKeeps || bytes > kLargest || lists.is_closed) return ::operator delete(block);
  FreeList& list = lists.of_size[(bytes - 1) / kStep];
  if (list.count >= kMostOfASize) return ::operator delete(block);
  if (!lists.is_guarded) guard();
  auto* free = static_cast<FreeBlock*>(block);
  free->next = list.first;
  list.first = free;
  ++list.count;
}

}  // namespace sheaf::runtime
