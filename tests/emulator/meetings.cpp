// Where threads wait for each other: barriers of the block, and instructions that the lanes of a warp execute together.
// Everyone must arrive at the same line; whoever cannot is reported at once, before anything hangs.
#include <fmt/format.h>

#include "tests/emulator/machine.h"

namespace sheaf::emulator {
namespace {

std::uint64_t result_of(const BlockBarrier& b, sf_host::Reduction reduction) {
  switch (reduction) {
    case sf_host::Reduction::none: break;
    case sf_host::Reduction::count: return static_cast<std::uint64_t>(b.count);
    case sf_host::Reduction::all: return b.all;
    case sf_host::Reduction::any: return b.any;
  }
  return 0;
}

}  // namespace

bool Machine::is_same_line(Place a, Place b) const {
  return a == b || kernel_.module->line_of(a) == kernel_.module->line_of(b);
}

void Machine::diverged(const std::vector<int>& threads, Place place, const std::string& rest) {
  fail("divergence", fmt::format("{}: {} {} at {}, {}", here(), thread_list(threads),
                                 threads.size() == 1 ? "waits" : "wait", at_line(place), rest));
}

std::vector<int> Machine::waiting_at(int barrier) const {
  std::vector<int> who;
  for (const Fiber& f : fibers_) {
    if (!f.has_ended && f.waiting == Waiting::at_barrier && f.barrier == barrier) who.push_back(f.index);
  }
  return who;
}

std::vector<int> Machine::threads_of(int warp, unsigned lanes) {
  std::vector<int> who;
  for (int lane = 0; lane < 32; ++lane) {
    if (lanes >> lane & 1) who.push_back(warp * 32 + lane);
  }
  return who;
}

// ---- barriers -----------------------------------------------------------------------------------------------------

int Machine::barrier(Fiber& f, int id, int threads, sf_host::Reduction reduction, int value, Place place) {
  const bool is_whole_block = threads == 0 || (id == 0 && threads == threads_);
  BlockBarrier& b = barriers_[id];
  if (b.arrived == 0) {
    b.place = place;
    b.count = 0;
    b.all = true;
    b.any = false;
  } else if (is_whole_block && !is_same_line(b.place, place)) {
    diverged(waiting_at(id), b.place, fmt::format("thread {} at {}", f.index, at_line(place)));
  }
  if (is_whole_block && live_ < threads_) {
    std::vector<int> ended;
    for (const Fiber& other : fibers_) {
      if (other.has_ended) ended.push_back(other.index);
    }
    diverged({f.index}, place, fmt::format("{} {} ended", thread_list(ended), ended.size() == 1 ? "has" : "have"));
  }
  b.count += value;
  b.all &= value != 0;
  b.any |= value != 0;
  if (!is_whole_block) history_.release(f.index, b.clocks);
  f.barrier = id;
  if (++b.arrived < (is_whole_block ? threads_ : threads)) {
    wait(f, Waiting::at_barrier, place);
  } else {
    b.arrived = 0;
    ++counters_.barriers;
    if (is_whole_block) history_.meet_block();
    std::vector<int> all = waiting_at(id);
    all.push_back(f.index);
    for (int t : all) {
      if (!is_whole_block) history_.acquire(t, b.clocks);
      Fiber& other = fibers_[static_cast<std::size_t>(t)];
      other.value = result_of(b, reduction);
      other.waiting = Waiting::no;
    }
    b.clocks.clear();
  }
  return static_cast<int>(f.value);
}

void Machine::pause(Fiber& f, Place place) { wait(f, Waiting::paused, place); }

void Machine::trap(Fiber& f, Place place) { fail("trap", fmt::format("{} at {}", here(f), at_line(place))); }

// ---- warps --------------------------------------------------------------------------------------------------------

template <class F>
void Machine::for_each_lane(const Fiber& f, unsigned mask, const F& visit) {
  for (int lane = 0; lane < 32; ++lane) {
    if (mask >> lane & 1) visit(fibers_[static_cast<std::size_t>(f.warp() * 32 + lane)]);
  }
}

/// True for the last lane of `mask` to arrive, which acts for all of them and then lets the others go; the others wait.
bool Machine::meet_warp(Fiber& f, WarpMeeting::Kind kind, unsigned mask, Place place) {
  std::vector<WarpMeeting>& open = meetings_[static_cast<std::size_t>(f.warp())];
  if (!(mask >> f.lane() & 1)) { diverged({f.index}, place, fmt::format("and is not in its own mask {:#010x}", mask)); }
  std::size_t which = 0;
  while (which < open.size() && !(open[which].mask & mask)) ++which;
  if (which == open.size()) open.push_back({kind, mask, 0, place});
  WarpMeeting& m = open[which];
  if (m.mask != mask || m.kind != kind || !is_same_line(m.place, place)) {
    const std::string mine = m.mask == mask ? "" : fmt::format(" with mask {:#010x} instead of {:#010x}", mask, m.mask);
    diverged(threads_of(f.warp(), m.arrived), m.place, fmt::format("thread {} at {}{}", f.index, at_line(place), mine));
  }
  m.arrived |= 1u << f.lane();
  if (m.arrived == mask) {
    open.erase(open.begin() + static_cast<std::ptrdiff_t>(which));
    for_each_lane(f, mask, [](Fiber& lane) { lane.waiting = Waiting::no; });
    return true;
  }
  // Who has ended, or never was, will not come.
  unsigned missing = 0;
  for (int lane = 0; lane < 32; ++lane) {
    const int t = f.warp() * 32 + lane;
    const bool is_gone = t >= threads_ || fibers_[static_cast<std::size_t>(t)].has_ended;
    if ((mask >> lane & 1) && is_gone) missing |= 1u << lane;
  }
  if (missing != 0) {
    const std::vector<int> gone = threads_of(f.warp(), missing);
    diverged(threads_of(f.warp(), m.arrived), place,
             fmt::format("{} of mask {:#010x} {} ended", thread_list(gone), mask, gone.size() == 1 ? "has" : "have"));
  }
  wait(f, Waiting::for_warp, place);
  return false;
}

void Machine::sync_warp(Fiber& f, unsigned mask, Place place) {
  if (meet_warp(f, WarpMeeting::Kind::sync, mask, place)) history_.meet_warp(f.warp());
}

std::uint64_t Machine::shuffle(Fiber& f, unsigned mask, std::uint64_t value, int source_lane, Place place) {
  f.value = value;
  f.source_lane = source_lane;
  if (meet_warp(f, WarpMeeting::Kind::shuffle, mask, place)) {
    std::uint64_t values[32] = {};
    for_each_lane(f, mask, [&](const Fiber& lane) { values[lane.lane()] = lane.value; });
    for_each_lane(f, mask, [&](Fiber& lane) {
      if (!(mask >> lane.source_lane & 1)) {
        diverged({lane.index}, place,
                 fmt::format("and takes from lane {}, which is not in mask {:#010x}", lane.source_lane, mask));
      }
      lane.value = values[lane.source_lane];
    });
  }
  return f.value;
}

unsigned Machine::ballot(Fiber& f, unsigned mask, int value, Place place) {
  f.value = static_cast<std::uint64_t>(value != 0);
  if (meet_warp(f, WarpMeeting::Kind::ballot, mask, place)) {
    unsigned votes = 0;
    for_each_lane(f, mask, [&](const Fiber& lane) { votes |= static_cast<unsigned>(lane.value) << lane.lane(); });
    for_each_lane(f, mask, [&](Fiber& lane) { lane.value = votes; });
  }
  return static_cast<unsigned>(f.value);
}

}  // namespace sheaf::emulator
