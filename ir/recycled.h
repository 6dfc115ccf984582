// Memory that a call or a trace makes and drops, kept by the thread that dropped it for its next: in steady state a
// call of a compiled function asks the system for nothing, and a trace meets no fresh pages. Invariant: a thread keeps
// a bounded number of blocks of each size, and gives them back when it ends; after that, and for what is larger, this
// is operator new.
#pragma once

#include <cstddef>
#include <memory>
#include <memory_resource>
#include <utility>

namespace sheaf::ir {

void* take_block(std::size_t bytes);
void give_block(void* block, std::size_t bytes) noexcept;
/// The same for the standard's containers.
std::pmr::memory_resource* recycling();

/// Memory of what is dropped together. Its pieces do not grow beyond a size, so that what a program takes is linear in
/// it.
class Pieces final : public std::pmr::memory_resource {
 public:
  Pieces() = default;
  ~Pieces() override;
  Pieces(const Pieces&) = delete;
  Pieces& operator=(const Pieces&) = delete;

 private:
  struct Piece {
    Piece* before;
    std::size_t bytes;
  };

  void* do_allocate(std::size_t bytes, std::size_t alignment) override;
  void do_deallocate(void*, std::size_t, std::size_t) override {}
  bool do_is_equal(const memory_resource& other) const noexcept override { return this == &other; }
  void add_piece(std::size_t at_least);

  Piece* last_ = nullptr;
  void* free_ = nullptr;      // of the last piece
  std::size_t space_ = 0;     // bytes behind it
};

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

}  // namespace sheaf::ir
