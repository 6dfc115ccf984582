// Workers spin for about 50 us after a job, then sleep: the same patience as Sheaf's own pool. `generation_` publishes
// a job, and `busy_` counts the workers that have not left it, so nobody ever reads a job that is being replaced.
#include "team.h"

#include <cstdlib>

namespace bench {

Team& Team::global() {
  const char* text = std::getenv("SHEAF_NUM_THREADS");  // main has set it
  static Team* const team = new Team(text ? std::atoi(text) : 1);
  return *team;
}

Team::Team(int threads) {
  for (int i = 1; i < threads; ++i) threads_.emplace_back([this] { work(); });
}

void Team::run(std::size_t chunks, Call call, const void* body) {
  chunks_ = chunks, call_ = call, body_ = body;
  next_.store(0, std::memory_order_relaxed);
  busy_.store(static_cast<int>(threads_.size()), std::memory_order_relaxed);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  take_chunks();
  while (busy_.load(std::memory_order_acquire) != 0) std::this_thread::yield();
}

void Team::take_chunks() {
  for (std::size_t i; (i = next_.fetch_add(1, std::memory_order_relaxed)) < chunks_;) call_(body_, i);
}

void Team::work() {
  for (std::uint32_t seen = 0;; ++seen) {
    for (int spins = 0; spins < 20000 && generation_.load(std::memory_order_acquire) == seen; ++spins)
      std::atomic_signal_fence(std::memory_order_seq_cst);
    generation_.wait(seen, std::memory_order_acquire);
    take_chunks();
    busy_.fetch_sub(1, std::memory_order_release);
  }
}

}  // namespace bench
