// What each thread of a block may rely on having happened. One clock for everything ticks whenever threads synchronise;
// an access is known to a thread if a barrier, a warp's meeting or a chain of mbarriers lies between.
// (Vector clocks as in Flanagan, Freund, "FastTrack" (2009), with the block's and the warps' meetings as one number
// each.)
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace sheaf::emulator {

using Clock = std::uint32_t;
using Clocks = std::vector<Clock>;  // by party: accesses before that time have happened

class History {
 public:
  /// Parties are the threads, then `agents` that access memory on their behalf.
  void begin_block(int threads, int agents) {
    began_ = block_met_ = ++now_;
    threads_ = threads;
    parties_ = threads + agents;
    warps_met_.assign(static_cast<std::size_t>(threads + 31) / 32, 0);
    learned_.assign(static_cast<std::size_t>(threads), {});
    has_learned_ = false;
  }
  Clock now() const { return now_; }
  Clock began() const { return began_; }

  /// True if what `party` did at `at` (in this block) is known to `thread`.
  bool knows(int thread, int party, Clock at) const { return party == thread || at < known(thread, party); }

  void meet_block() {
    block_met_ = ++now_;
    if (has_learned_) share_what_agents_did();
  }
  void meet_warp(int warp) { warps_met_[static_cast<std::size_t>(warp)] = ++now_; }

  /// Adds to `clocks` all that `thread` knows and has done.
  void release(int thread, Clocks& clocks) {
    clocks.resize(static_cast<std::size_t>(parties_));
    for (int p = 0; p < parties_; ++p) raise(clocks, p, known(thread, p));
    raise(clocks, thread, ++now_);
  }
  void acquire(int thread, const Clocks& clocks) {
    for (std::size_t p = 0; p < clocks.size(); ++p) learn(thread, static_cast<int>(p), clocks[p]);
  }
  /// Adds to `clocks` what `agent` has done.
  void release_agent(int agent, Clocks& clocks) {
    clocks.resize(static_cast<std::size_t>(parties_));
    raise(clocks, agent, ++now_);
  }
  void learn(int thread, int party, Clock at) {
    Clocks& mine = learned_[static_cast<std::size_t>(thread)];
    mine.resize(static_cast<std::size_t>(parties_));
    raise(mine, party, at);
    has_learned_ = true;
  }
  Clock tick() { return ++now_; }

 private:
  static void raise(Clocks& clocks, int party, Clock at) {
    Clock& c = clocks[static_cast<std::size_t>(party)];
    c = std::max(c, at);
  }
  Clock known(int thread, int party) const {
    const Clocks& mine = learned_[static_cast<std::size_t>(thread)];
    Clock at = mine.empty() ? 0 : mine[static_cast<std::size_t>(party)];
    if (party >= threads_) return at;
    at = std::max(at, block_met_);
    return party / 32 == thread / 32 ? std::max(at, warps_met_[static_cast<std::size_t>(party / 32)]) : at;
  }
  void share_what_agents_did() {
    for (int p = threads_; p < parties_; ++p) {
      Clock latest = 0;
      for (const Clocks& c : learned_) latest = std::max(latest, c.empty() ? 0 : c[static_cast<std::size_t>(p)]);
      for (int t = 0; t < threads_; ++t) learn(t, p, latest);
    }
  }

  Clock now_ = 0, began_ = 0, block_met_ = 0;
  int threads_ = 0, parties_ = 0;
  Clocks warps_met_;
  std::vector<Clocks> learned_;  // by thread; empty until it waited at an mbarrier
  bool has_learned_ = false;
};

}  // namespace sheaf::emulator
