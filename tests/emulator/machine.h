// One launch being executed: a block at a time, its threads as fibers that run until they must wait for one another.
// Functions that a fiber calls may find a fault; then that fiber unwinds and the run ends with the fault.
#pragma once

#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "tests/emulator/access_counter.h"
#include "tests/emulator/engine.h"
#include "tests/emulator/fibers.h"
#include "tests/emulator/history.h"
#include "tests/emulator/shadow.h"

namespace sheaf::emulator {

using Place = const void*;  // an instruction of the text

/// A range that kernels may touch: an allocation, or an array of shared memory.
struct Region {
  std::byte* begin = nullptr;
  std::int64_t bytes = 0;
  std::string name;
  Allocation* allocation = nullptr;  // null: shared memory
  std::string where(std::int64_t offset) const;
  std::string whole_name() const;
  Shadow shadow;
};

struct AsyncCopy {
  std::byte* shared = nullptr;
  const std::byte* global = nullptr;
  int bytes = 0, bytes_read = 0;
  Place place = nullptr;
};

struct WgmmaOp {
  sf_host::Mma kind{};
  float* d = nullptr;
  std::uint64_t a = 0, b = 0;
  int n = 0;
  bool a_is_transposed = false, b_is_transposed = false;  // rows of 128 bytes along m or n
  Place place = nullptr;
  bool operator==(const WgmmaOp& o) const {
    return kind == o.kind && a == o.a && b == o.b && n == o.n && a_is_transposed == o.a_is_transposed &&
           b_is_transposed == o.b_is_transposed;
  }
};

class Machine;

enum class Waiting : std::uint8_t { no, at_barrier, for_warp, for_warpgroup, at_mbarrier, paused };

struct Fiber {
  Machine* machine = nullptr;
  int index = 0;
  bool has_begun = false, has_ended = false;
  Waiting waiting = Waiting::no;
  sf_host::Thread* stack = nullptr;
  void* context = nullptr;
  Place place = nullptr;  // where it waits

  int barrier = 0;                                   // at_barrier
  std::pair<std::uint64_t*, int> mbarrier{nullptr, 0};  // at_mbarrier: which, parity
  // What a lane brings to its warp's meeting, and takes from it.
  std::uint64_t value = 0;
  int source_lane = 0;
  void* out = nullptr;
  const void* in[2] = {nullptr, nullptr};

  std::vector<AsyncCopy> open_copies = {};
  std::vector<std::vector<AsyncCopy>> copy_groups = {};
  std::vector<WgmmaOp> open_products = {};
  std::vector<std::vector<WgmmaOp>> product_groups = {};

  int lane() const { return index % 32; }
  int warp() const { return index / 32; }
};

/// Lanes of a warp that wait for the rest of `mask` at one instruction.
struct WarpMeeting {
  enum class Kind { sync, shuffle, ballot, ldmatrix, mma } kind = Kind::sync;
  unsigned mask = 0, arrived = 0;
  Place place = nullptr;
};

struct BlockBarrier {
  int arrived = 0;
  Place place = nullptr;
  int count = 0;
  bool all = true, any = false;
  Clocks clocks = {};  // of a barrier that is not the whole block's
};

struct Mbarrier {
  int count = 0, pending = 0;
  std::int64_t bytes_due = 0;
  int phase = 0;
  Clocks arriving = {}, completed = {};
};

struct TmaLoad {
  std::byte* shared = nullptr;
  sf_host::TensorMap map{};
  std::uint64_t* barrier = nullptr;
  int x = 0, y = 0;
  Place place = nullptr;
};

class Machine {
 public:
  Machine(const Kernel& kernel, const Launch& launch, void* const* params, std::span<Allocation> allocations,
          const Policy& policy);
  absl::StatusOr<Counters> run();

  // ---- memory (memory.cpp) ----
  void access(Fiber& f, const void* address, std::int64_t bytes, sf_host::Access how, Place place);
  void* shared(const sf_host::SharedArray* array) const;
  void* dynamic_shared() const { return dynamic_shared_; }
  std::uint32_t shared_address(const void* p) const {
    return static_cast<std::uint32_t>(static_cast<const std::byte*>(p) - arena_);
  }
  /// Part of shared memory for an instruction of several threads; a fault where `address` leaves it.
  std::byte* shared_at(Fiber& f, std::uint64_t address, std::int64_t bytes, Place place);

  // ---- meetings (meetings.cpp) ----
  int barrier(Fiber& f, int id, int threads, sf_host::Reduction reduction, int value, Place place);
  void sync_warp(Fiber& f, unsigned mask, Place place);
  std::uint64_t shuffle(Fiber& f, unsigned mask, std::uint64_t value, int source_lane, Place place);
  unsigned ballot(Fiber& f, unsigned mask, int value, Place place);
  void pause(Fiber& f, Place place);
  [[noreturn]] void trap(Fiber& f, Place place);

  // ---- copies that run beside the threads (copies.cpp) ----
  void cp_async(Fiber& f, const AsyncCopy& copy);
  void cp_async_commit(Fiber& f);
  void cp_async_wait(Fiber& f, int groups_left);
  void mbarrier_init(Fiber& f, std::uint64_t* barrier, int count, Place place);
  void mbarrier_arrive(Fiber& f, std::uint64_t* barrier, int expected_bytes, Place place);
  void mbarrier_wait(Fiber& f, std::uint64_t* barrier, int parity, Place place);
  void tma_load_2d(Fiber& f, const TmaLoad& load);

  // ---- tensor cores (tensor_cores.cpp) ----
  void ldmatrix(Fiber& f, unsigned* registers, const void* row, int matrices, bool is_transposed, Place place);
  void mma(Fiber& f, sf_host::Mma kind, void* d, const unsigned* a, const unsigned* b, Place place);
  void wgmma(Fiber& f, const WgmmaOp& op);
  void wgmma_commit(Fiber& f);
  void wgmma_wait(Fiber& f, int groups_left, Place place);

  /// Ends the run, and the fiber with it.
  [[noreturn]] void fail(std::string_view kind, const std::string& text);
  std::string at_line(Place place) const;  // "line 7"

  void run_fiber();  // the body of a fiber

 private:
  // ---- blocks and turns (machine.cpp) ----
  void run_block(std::int64_t block);
  void begin_block(std::int64_t block);
  bool run_ready();
  bool wake_paused();
  void resume(Fiber& f);
  void end_thread(Fiber& f);
  /// Gives the turn away, until `f.waiting` is `no` again.
  void wait(Fiber& f, Waiting reason, Place place);
  void yield(Fiber& f);
  std::string stuck() const;
  std::string block_name(std::int64_t block) const;
  std::string here() const;                // "kernel k, block 0"
  std::string here(const Fiber& f) const;  // "kernel k, block 0, thread 3"

  // ---- memory ----
  void lay_out_shared();
  void add_shared(std::byte* begin, std::int64_t bytes, std::string name);
  Region* region_at(std::uintptr_t address);
  std::string nearest(std::uintptr_t address) const;
  Site site_of(Place place);
  /// One access of known place: bounds, alignment, what was never written, and order. `party` acts for thread `f`.
  void touch(Fiber& f, int party, const void* address, std::int64_t bytes, sf_host::Access how, std::uint16_t flags,
             Place place);
  void check_written(Fiber& f, Region& r, std::int64_t offset, std::int64_t bytes, Place place);
  void touch_cell(Fiber& f, const Region& r, Cell& cell, std::int64_t offset, sf_host::Access how, std::uint16_t party,
                  Site site);
  bool is_ordered(const Fiber& f, const Region& r, std::uint16_t party, Clock at) const;
  void race(const Fiber& f, const Region& r, const Cell& cell, bool with_reader, std::int64_t offset,
            sf_host::Access how, Site site);
  std::string party_name(std::uint16_t party) const;
  std::int64_t block_of(Clock at) const;
  /// The write that `begin` announced has happened: by `party`, now.
  void settle(std::byte* begin, std::int64_t bytes, std::uint16_t party, Place place);

  // ---- meetings ----
  bool meet_warp(Fiber& f, WarpMeeting::Kind kind, unsigned mask, Place place);
  template <class F>
  void for_each_lane(const Fiber& f, unsigned mask, const F& visit);
  [[noreturn]] void diverged(const std::vector<int>& threads, Place place, const std::string& rest);
  bool is_same_line(Place a, Place b) const;
  std::vector<int> waiting_at(int barrier) const;
  static std::vector<int> threads_of(int warp, unsigned lanes);

  // ---- copies ----
  void finish(const TmaLoad& load);
  bool finish_one_tma();
  Mbarrier& mbarrier_at(Fiber& f, std::uint64_t* barrier, Place place);
  void try_complete(std::uint64_t* address, Mbarrier& m);
  bool has_completed(const Fiber& f) const;
  int tma_party() const { return threads_; }
  /// A bit for each warpgroup whose products the party stands for.
  std::uint16_t warpgroups_of(std::uint16_t party) const;
  int wgmma_party(const Fiber& f) const { return threads_ + 1 + f.index / 128; }

  // ---- tensor cores ----
  void read_operand(Fiber& f, std::uint64_t descriptor, int rows, bool is_transposed, Place place,
                    std::vector<std::uint16_t>& out);
  void multiply_warpgroup(Fiber& last, const std::vector<WgmmaOp>& ops, std::size_t which);

  const Kernel& kernel_;
  const Launch& launch_;
  void* const* params_;
  const Policy& policy_;
  int threads_;
  std::mt19937_64 random_;

  std::vector<std::byte> arena_memory_;
  std::byte* arena_ = nullptr;
  std::int64_t arena_bytes_ = 0;
  std::vector<std::byte*> shared_at_;  // by kernel_.shared
  std::byte* dynamic_shared_ = nullptr;
  std::vector<Region> regions_;  // by address
  Region* last_region_[2] = {nullptr, nullptr};

  History history_;
  std::vector<std::pair<Clock, std::int64_t>> block_began_;
  absl::flat_hash_map<Place, Site> sites_;
  std::vector<Place> places_;
  AccessCounter counter_;
  Counters counters_;

  std::vector<Fiber> fibers_;
  std::vector<int> order_;
  std::int64_t block_ = 0;
  int live_ = 0;
  void* scheduler_ = nullptr;
  std::map<int, BlockBarrier> barriers_;
  std::vector<std::vector<WarpMeeting>> meetings_;  // by warp
  std::map<std::uint64_t*, Mbarrier> mbarriers_;
  std::vector<TmaLoad> tma_;
  int idle_rounds_ = 0;
  absl::Status fault_;
};

/// Numbers as ranges: "thread 3", "threads 0-15 and 17".
std::string thread_list(std::vector<int> threads);

extern const sf_host::Calls kCalls;

}  // namespace sheaf::emulator
