// Blocks, and whose turn it is. A round lets every thread that can run do so until it waits; when a round moves nobody,
// a copy in flight may land, and after that the block is stuck.
#include "tests/emulator/machine.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

namespace sheaf::emulator {
namespace {

struct Stopped {};

constexpr int kIdleRounds = 2000;  // of threads that only ask whether something has happened

thread_local StackPool* pool = nullptr;
struct PoolOwner {
  ~PoolOwner() { delete std::exchange(pool, nullptr); }
};

/// The thread's. The main thread's may be needed again by handlers of its exit.
StackPool& stacks() {
  if (!pool) {
    thread_local PoolOwner owner;
    static_cast<void>(owner);
    pool = new StackPool;
  }
  return *pool;
}

void fiber_main() {
  auto* fiber = static_cast<Fiber*>(sf_host::self()->fiber);
  fiber->machine->run_fiber();
}

sf_host::Index index_of(std::int64_t linear, const Dim& dim) {
  const auto n = static_cast<std::uint64_t>(linear);
  return {static_cast<unsigned>(n % dim.x), static_cast<unsigned>(n / dim.x % dim.y),
          static_cast<unsigned>(n / dim.x / dim.y)};
}

std::int64_t size_of(const Dim& d) { return std::int64_t{d.x} * d.y * d.z; }

sf_host::Index as_index(const Dim& d) { return {d.x, d.y, d.z}; }

}  // namespace

std::string thread_list(std::vector<int> threads) {
  std::sort(threads.begin(), threads.end());
  std::vector<std::string> ranges;
  for (std::size_t i = 0; i < threads.size();) {
    std::size_t end = i + 1;
    while (end < threads.size() && threads[end] == threads[end - 1] + 1) ++end;
    ranges.push_back(end - i == 1 ? fmt::format("{}", threads[i]) : fmt::format("{}-{}", threads[i], threads[end - 1]));
    i = end;
  }
  std::string out = threads.size() == 1 ? "thread " : "threads ";
  constexpr std::size_t kShown = 4;
  for (std::size_t i = 0; i < std::min(ranges.size(), kShown); ++i) {
    if (i > 0) out += i + 1 == ranges.size() ? " and " : ", ";
    out += ranges[i];
  }
  return ranges.size() > kShown ? out + ", ..." : out;
}

Machine::Machine(const Kernel& kernel, const Launch& launch, void* const* params, std::span<Allocation> allocations,
                 const Policy& policy)
    : kernel_(kernel),
      launch_(launch),
      params_(params),
      policy_(policy),
      threads_(static_cast<int>(size_of(launch.block))),
      random_(policy.seed) {
  for (Allocation& a : allocations) {
    if (a.bytes == 0) continue;
    regions_.push_back({a.data, a.bytes, a.name, &a, Shadow(a.bytes)});
    a.touched_begin = policy.is_checked ? a.bytes : 0;
    a.touched_end = policy.is_checked ? 0 : a.bytes;
    constexpr int kAll = Mark::kInitialised | Mark::kRead | Mark::kWritten;
    if (!policy.is_checked && a.marks) std::memset(a.marks, kAll, static_cast<std::size_t>(a.bytes));
  }
  lay_out_shared();
  std::sort(regions_.begin(), regions_.end(), [](const Region& a, const Region& b) { return a.begin < b.begin; });
  fibers_.resize(static_cast<std::size_t>(threads_));
  order_.resize(static_cast<std::size_t>(threads_));
  std::iota(order_.begin(), order_.end(), 0);
  if (policy.order == Order::reverse) std::reverse(order_.begin(), order_.end());
}

absl::StatusOr<Counters> Machine::run() {
  std::vector<std::int64_t> blocks(static_cast<std::size_t>(size_of(launch_.grid)));
  std::iota(blocks.begin(), blocks.end(), 0);
  if (policy_.order == Order::reverse) std::reverse(blocks.begin(), blocks.end());
  if (policy_.order == Order::random) std::shuffle(blocks.begin(), blocks.end(), random_);
  for (std::int64_t block : blocks) {
    run_block(block);
    if (!fault_.ok()) break;
  }
  for (Fiber& f : fibers_) {
    if (f.stack) stacks().give_back(f.stack);  // of one that a fault left waiting
  }
  if (!fault_.ok()) return fault_;
  return counters_;
}

void Machine::begin_block(std::int64_t block) {
  block_ = block;
  live_ = threads_;
  history_.begin_block(threads_, 1 + (threads_ + 127) / 128);
  block_began_.emplace_back(history_.began(), block);
  std::memset(arena_, 0xff, static_cast<std::size_t>(arena_bytes_));  // NaN, and never by luck what was left there
  barriers_.clear();
  meetings_.assign(static_cast<std::size_t>(threads_ + 31) / 32, {});
  mbarriers_.clear();
  tma_.clear();
  idle_rounds_ = 0;
  for (int i = 0; i < threads_; ++i) { fibers_[static_cast<std::size_t>(i)] = Fiber{.machine = this, .index = i}; }
  if (policy_.counts_accesses) counter_.begin_block(threads_);
}

void Machine::run_block(std::int64_t block) {
  begin_block(block);
  while (live_ > 0) {
    if (policy_.order == Order::random) std::shuffle(order_.begin(), order_.end(), random_);
    // Late copies land when nobody can go on without them, or, at random, some time before.
    if (policy_.order == Order::random && random_() % 4 == 0) finish_one_tma();
    const bool has_run = run_ready();
    if (!fault_.ok()) return;
    if (has_run) {
      idle_rounds_ = 0;
      wake_paused();
    } else if (!finish_one_tma()) {
      const bool is_polled = wake_paused();
      if (!is_polled || ++idle_rounds_ > kIdleRounds) {
        fault_ = absl::AbortedError(fmt::format("{}: {}: {}", is_polled ? "livelock" : "deadlock", here(), stuck()));
        return;
      }
    }
  }
  while (finish_one_tma()) {}
  counters_.threads += threads_;
  if (policy_.counts_accesses) counter_.end_block(counters_);
}

/// True if a thread ran that had not merely been asked to look again.
bool Machine::run_ready() {
  bool has_run = false;
  for (int i : order_) {
    Fiber& f = fibers_[static_cast<std::size_t>(i)];
    if (f.has_ended || f.waiting != Waiting::no) continue;
    resume(f);
    if (!fault_.ok()) return true;
    has_run |= f.waiting != Waiting::paused;
  }
  return has_run;
}

/// Lets paused threads look again. True if there were any.
bool Machine::wake_paused() {
  bool is_polled = false;
  for (Fiber& f : fibers_) {
    if (f.has_ended || f.waiting != Waiting::paused) continue;
    f.waiting = Waiting::no;
    is_polled = true;
  }
  return is_polled;
}

void Machine::resume(Fiber& f) {
  if (!f.has_begun) {
    f.has_begun = true;
    f.stack = stacks().take();
    *f.stack = {index_of(f.index, launch_.block),
                index_of(block_, launch_.grid),
                as_index(launch_.block),
                as_index(launch_.grid),
                &kCalls,
                &f};
    f.context = StackPool::context(f.stack, fiber_main);
  }
  switch_context(&scheduler_, f.context);
  if (!f.has_ended) return;
  stacks().give_back(f.stack);
  f.stack = nullptr;
}

void Machine::run_fiber() {
  Fiber& f = *static_cast<Fiber*>(sf_host::self()->fiber);
  try {
    kernel_.call(params_);
    end_thread(f);
  } catch (const Stopped&) {}
  f.has_ended = true;
  yield(f);
}

void Machine::end_thread(Fiber& f) {
  cp_async_commit(f);
  cp_async_wait(f, 0);
  --live_;
  // Whoever still waits for the whole block, or with this lane in a mask, waits for this thread.
  const auto whole = barriers_.find(0);
  if (whole != barriers_.end() && whole->second.arrived > 0) {
    diverged(waiting_at(0), whole->second.place, fmt::format("thread {} has ended", f.index));
  }
  for (const WarpMeeting& m : meetings_[static_cast<std::size_t>(f.warp())]) {
    if (m.mask >> f.lane() & 1) {
      diverged(threads_of(f.warp(), m.arrived), m.place, fmt::format("thread {} has ended", f.index));
    }
  }
}

void Machine::yield(Fiber& f) { switch_context(&f.context, scheduler_); }

void Machine::wait(Fiber& f, Waiting reason, Place place) {
  f.waiting = reason;
  f.place = place;
  yield(f);
}

void Machine::fail(std::string_view kind, const std::string& text) {
  fault_ = absl::AbortedError(fmt::format("{}: {}", kind, text));
  throw Stopped();  // through the kernel's frames, which own nothing
}

std::string Machine::stuck() const {
  std::map<std::pair<Waiting, int>, std::vector<int>> groups;
  for (const Fiber& f : fibers_) {
    if (!f.has_ended) groups[{f.waiting, kernel_.module->line_of(f.place)}].push_back(f.index);
  }
  std::string out;
  for (const auto& [key, threads] : groups) {
    const auto [waiting, line] = key;
    const char* what = waiting == Waiting::at_barrier      ? "at the barrier of"
                       : waiting == Waiting::for_warp      ? "for their warp at"
                       : waiting == Waiting::for_warpgroup ? "for their warpgroup at"
                       : waiting == Waiting::at_mbarrier   ? "at the mbarrier of"
                                                           : "in the loop of";
    out += fmt::format("{}{} {} {} line {}", out.empty() ? "" : "; ", thread_list(threads),
                       threads.size() == 1 ? "waits" : "wait", what, line);
  }
  return out;
}

std::string Machine::at_line(Place place) const { return fmt::format("line {}", kernel_.module->line_of(place)); }

std::string Machine::block_name(std::int64_t block) const {
  const sf_host::Index i = index_of(block, launch_.grid);
  return launch_.grid.y * launch_.grid.z == 1 ? fmt::format("block {}", i.x)
                                              : fmt::format("block ({}, {}, {})", i.x, i.y, i.z);
}

std::string Machine::here() const { return fmt::format("kernel {}, {}", kernel_.name, block_name(block_)); }
std::string Machine::here(const Fiber& f) const { return fmt::format("{}, thread {}", here(), f.index); }

}  // namespace sheaf::emulator
