// The memory of one fake device: an address range of its own that the host cannot touch, of which blocks are handed
// out. A block lives from the place of its allocation in its stream to that of its end, and remembers which bytes were
// ever written and which work touched them last.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/driver/cuda_abi.h"
#include "tests/emulator/fake_cuda/clock.h"

namespace sheaf::fake_cuda {

using cuda::CUdeviceptr;
using cuda::CUresult;

/// Some bytes, and the work that touched them.
struct Touch {
  std::int64_t begin = 0, end = 0;
  bool is_write = false;
  int stream = 0;
  std::uint64_t number = 0;
  std::string what;
};

struct Block {
  int device = 0;
  std::int64_t id = 0;  // counts a device's allocations
  CUdeviceptr base = 0;
  std::int64_t bytes = 0;
  bool is_pooled = false;
  std::vector<Touch> touches;  // what later work must come after
  std::string name() const;  // "allocation 3 of device 0 (4096 bytes)"
};
using BlockPtr = std::shared_ptr<Block>;

/// Bytes of a block as a call named them.
struct Range {
  BlockPtr block;
  std::int64_t offset = 0, bytes = 0;
  std::string name() const;  // "bytes [0, 16) of allocation 3 of device 0 (4096 bytes)"
};

class Memory {
 public:
  Memory(int device, std::int64_t limit_bytes);
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  // As the host's calls come.
  /// A new block, not yet alive; null when the device is full.
  BlockPtr allocate(std::int64_t bytes, bool is_pooled, int stream);
  /// The block that a later free or copy names: exactly at its base, or around these bytes.
  BlockPtr issued_at(CUdeviceptr base) const;
  std::optional<Range> issued(CUdeviceptr pointer, std::int64_t bytes) const;
  /// No later call can name the block. Where it is pooled, later ones in `stream` may get its bytes at once.
  void retire(const BlockPtr& block, int stream);
  bool owns(CUdeviceptr pointer) const { return pointer >= base_ && pointer < base_ + kArenaBytes; }

  // As work is done; where a block's life has places in a stream, those of them. "", or what is wrong.
  void begin_life(const BlockPtr& block);
  void end_life(const BlockPtr& block);
  bool is_alive(const BlockPtr& block) const;
  const std::map<CUdeviceptr, BlockPtr>& alive() const { return alive_; }
  /// Of emulator::Mark, one per byte; between launches only kInitialised.
  std::uint8_t* marks(CUdeviceptr pointer) const { return marks_ + (pointer - base_); }

  // The pool of stream-ordered allocations.
  std::uint64_t release_threshold = 0;
  std::vector<int> accessible_from;  // other devices, by cuMemPoolSetAccess
  void trim(std::uint64_t bytes_to_keep);
  std::uint64_t pool_reserved() const { return reserved_; }
  std::uint64_t pool_reserved_high() const { return reserved_high_; }
  std::uint64_t pool_used() const { return used_; }
  std::uint64_t pool_used_high() const { return used_high_; }

  std::int64_t limit_bytes() const { return limit_bytes_; }
  std::int64_t free_bytes() const { return limit_bytes_ - held_bytes_; }
  std::vector<std::string> leaks() const;

  /// While one is there, this process may touch every device's memory.
  class Open {
   public:
    Open();
    ~Open();
  };

 private:
  static constexpr std::uint64_t kArenaBytes = 1ULL << 40;  // of addresses
  // Freed addresses come again only after this many others, so that a stale pointer rarely meets a new block.
  static constexpr std::int64_t kReleasedBytes = 1LL << 28;
  static constexpr std::int64_t kGranularity = 512;  // and as much between two blocks

  struct Cached {
    CUdeviceptr base;
    std::int64_t bytes;
    int stream;  // in which it was freed
    bool is_over;  // that is done
  };
  void protect(bool is_open) const;
  std::optional<CUdeviceptr> take_cached(std::int64_t bytes, int stream);
  CUdeviceptr new_addresses(std::int64_t bytes);
  void release(CUdeviceptr base, std::int64_t bytes);

  int device_;
  std::int64_t limit_bytes_, held_bytes_ = 0, next_id_ = 0;
  CUdeviceptr base_ = 0, end_ = 0;  // of the addresses given out so far
  std::uint8_t* marks_ = nullptr;
  std::map<CUdeviceptr, BlockPtr> issued_, alive_;
  std::vector<Cached> cached_;
  std::vector<std::pair<CUdeviceptr, std::int64_t>> released_;  // addresses, oldest first
  std::int64_t released_bytes_ = 0;
  std::uint64_t reserved_ = 0, reserved_high_ = 0, used_ = 0, used_high_ = 0;
};

/// Says that the work at `at` reads or writes these bytes; "", or what is wrong with that: the block is not alive, or
/// other work touches them too and nothing orders the two.
std::string touch(Memory& memory, const Range& range, bool is_write, const Position& at);
/// The first of these bytes that nothing wrote.
std::optional<std::int64_t> first_unwritten(const Memory& memory, const Range& range);

}  // namespace sheaf::fake_cuda
