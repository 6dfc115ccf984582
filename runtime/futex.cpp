// The system call, and the short look before it.
#include "runtime/futex.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <ctime>

#include "runtime/spin.h"

namespace sheaf::runtime {
namespace {

constexpr std::chrono::microseconds kSpin{20};

std::uint32_t* address_of(const std::atomic<std::uint32_t>& value) {
  static_assert(sizeof value == sizeof(std::uint32_t) && std::atomic<std::uint32_t>::is_always_lock_free);
  return const_cast<std::uint32_t*>(reinterpret_cast<const std::uint32_t*>(&value));
}

void sleep_while_equal(const std::atomic<std::uint32_t>& value, std::uint32_t old, std::chrono::nanoseconds at_most) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(at_most);
  const timespec time{.tv_sec = seconds.count(), .tv_nsec = static_cast<long>((at_most - seconds).count())};
  syscall(SYS_futex, address_of(value), FUTEX_WAIT_PRIVATE, old, &time, nullptr, 0);
}

}  // namespace

std::uint32_t wait_while_equal(const std::atomic<std::uint32_t>& value, std::uint32_t old, Deadline deadline,
                               bool spins) {
  using Clock = std::chrono::steady_clock;
  std::uint32_t now = value.load(std::memory_order_acquire);
  if (spins) {
    for (const Deadline end = Clock::now() + kSpin; now == old && Clock::now() < end;)
      for (int i = 0; i < 32 && now == old; ++i) {
        relax_cpu();
        now = value.load(std::memory_order_acquire);
      }
  }
  while (now == old) {
    const Deadline before = Clock::now();
    if (before >= deadline) break;
    sleep_while_equal(value, old, std::min<std::chrono::nanoseconds>(deadline - before, std::chrono::seconds(60)));
    now = value.load(std::memory_order_acquire);
  }
  return now;
}

void wake_all(const std::atomic<std::uint32_t>& value) {
  syscall(SYS_futex, address_of(value), FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace sheaf::runtime
