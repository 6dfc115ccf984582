// How much work compiling is, counted where the work grows with the program: each equation that is made, sealed or
// visited, and each step of a search among them. Tests prove with it that twice the program is twice the work, which
// bytes alone do not say: a search asks for no memory.
#pragma once

#include <cstdint>

namespace sheaf::ir {

/// Of this thread so far; it only grows.
inline std::int64_t& work_done() {
  static constinit thread_local std::int64_t count = 0;
  return count;
}
inline void count_work(std::int64_t steps = 1) { work_done() += steps; }

/// Bytes that this thread took of what it had kept (ir/recycled.h) so far, which a heap that counts does not see.
std::int64_t recycled_bytes();

}  // namespace sheaf::ir
