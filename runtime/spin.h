// Waiting for an atomic to change: about 50 us of spinning, which a hot loop never exceeds, and then the futex behind
// std::atomic::wait. Invariant: a thread that waits long uses no CPU.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>

namespace sheaf::runtime {

inline void relax_cpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::this_thread::yield();
#endif
}

/// Returns when `value` is not `old`, with what it is then.
inline std::uint32_t wait_while_equal(const std::atomic<std::uint32_t>& value, std::uint32_t old) {
  constexpr auto kSpin = std::chrono::microseconds(50);
  std::uint32_t now = value.load(std::memory_order_acquire);
  if (now != old) return now;
  const auto deadline = std::chrono::steady_clock::now() + kSpin;
  do {
    for (int i = 0; i < 32; ++i) {
      relax_cpu();
      now = value.load(std::memory_order_acquire);
      if (now != old) return now;
    }
  } while (std::chrono::steady_clock::now() < deadline);
  value.wait(old, std::memory_order_acquire);
  return value.load(std::memory_order_acquire);
}

}  // namespace sheaf::runtime
