// Waiting for an atomic to change, with an end: the futex that std::atomic::wait hides, because that has no deadline.
// Invariant: whoever changes a value that is waited for here wakes the waiters here.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace sheaf::runtime {

using Deadline = std::chrono::steady_clock::time_point;
inline constexpr Deadline kNever = Deadline::max();

/// Returns when `value` is not `old`, with what it is then, or with `old` once the deadline is past. `spins`: looks for
/// some microseconds before it sleeps, for waits that are short because the others run at the same time.
std::uint32_t wait_while_equal(const std::atomic<std::uint32_t>& value, std::uint32_t old, Deadline deadline,
                               bool spins);
void wake_all(const std::atomic<std::uint32_t>& value);

}  // namespace sheaf::runtime
