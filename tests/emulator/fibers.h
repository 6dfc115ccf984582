// Stacks that run by turns on one OS thread: each of a block's threads has one while it is between its first and its
// last instruction. A stack ends in the descriptor that abi.h describes.
#pragma once

#include <cstddef>
#include <vector>

#include "tests/emulator/abi.h"

namespace sheaf::emulator {

/// Saves the running context in `*save` and continues the one that `to` was saved as.
void switch_context(void** save, void* to);

class StackPool {
 public:
  StackPool() = default;
  StackPool(const StackPool&) = delete;
  StackPool& operator=(const StackPool&) = delete;
  ~StackPool();

  /// The descriptor of a stack that nobody uses.
  sf_host::Thread* take();
  void give_back(sf_host::Thread* stack) { free_.push_back(stack); }
  /// A context on the stack that calls `main`, which must not return.
  static void* context(sf_host::Thread* stack, void (*main)());

 private:
  std::vector<std::byte*> stacks_;
  std::vector<sf_host::Thread*> free_;
};

}  // namespace sheaf::emulator
