// Memory of the small objects that a call makes and drops, kept by the thread that dropped it for its next call: in
// steady state a call of a compiled function asks the system for nothing. Invariant: a thread keeps a bounded number of
// blocks of each size, and gives them back when it ends; after that, and for larger objects, this is operator new.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>

namespace sheaf::runtime {

void* take_block(std::size_t bytes);
void give_block(void* block, std::size_t bytes) noexcept;

/// For std::allocate_shared.
template <class T>
struct Recycling {
  using value_type = T;
  Recycling() = default;
  template <class U>
  Recycling(const Recycling<U>&) {}  // NOLINT
  T* allocate(std::size_t n) { return static_cast<T*>(take_block(n * sizeof(T))); }
  void deallocate(T* p, std::size_t n) noexcept { give_block(p, n * sizeof(T)); }
  template <class U>
  bool operator==(const Recycling<U>&) const {
    return true;
  }
};

template <class T, class... A>
std::shared_ptr<T> make_recycled(A&&... args) {
  static_assert(alignof(T) <= alignof(std::max_align_t));
  return std::allocate_shared<T>(Recycling<T>(), std::forward<A>(args)...);
}

}  // namespace sheaf::runtime
