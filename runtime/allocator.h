// The memory of a device, taken from its source in large regions and kept: a fresh page costs more than the kernel that
// writes it. Invariant: a program in steady state finds every block it asks for among blocks it has freed, so it
// touches no fresh page; a region goes back only when it is free as a whole and there is no other way to answer a
// request.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "sheaf/source.h"

namespace sheaf::runtime {

/// A piece of memory, 64-byte aligned, uninitialised. `bytes` is what was asked for rounded up to its size class.
struct Block {
  std::byte* data = nullptr;
  std::int64_t bytes = 0;
};

struct AllocatorStats {
  std::int64_t bytes_in_use = 0;  // in blocks handed out
  std::int64_t peak_bytes = 0;  // the most bytes_in_use has been
  std::int64_t bytes_reserved = 0;  // in regions
  std::int64_t bytes_limit = 0;  // 0: none
  std::int64_t largest_free = 0;  // the largest block that needs no new region
  std::int64_t regions = 0;
  std::int64_t fresh_bytes = 0;  // handed out for the first time: constant in steady state
  std::int64_t blocks = 0;  // handed out
};

/// Of the blocks that one line made.
struct LineUse {
  Loc made_at;  // none: of all small blocks together
  std::int64_t bytes = 0;
  std::int64_t blocks = 0;
};

class Allocator {
 public:
  /// Where regions come from. `take` gives null when there is no more.
  struct Source {
    std::function<std::byte*(std::int64_t bytes)> take;
    std::function<void(std::byte* region, std::int64_t bytes)> give_back;
  };
  struct Options {
    std::int64_t limit_bytes = 0;  // most that may be reserved; 0: no limit
    std::int64_t region_bytes = 64 << 20;  // the least taken from the source at once
    Source source = host_pages();
    std::string where = {};  // "cuda:0", for messages; empty: the host
    /// Asked when there is no memory: waits for some to be given back; false if there is none to wait for.
    std::function<bool()> make_room = {};
  };
  /// The system's, 2 MB aligned and advised to be of huge pages.
  static Source host_pages();

  explicit Allocator(Options options);
  ~Allocator();
  Allocator(const Allocator&) = delete;
  Allocator& operator=(const Allocator&) = delete;

  /// The host's memory, up to SHEAF_MEMORY_LIMIT (bytes, or with K, M, G, or a percentage of the machine's); without
  /// it, up to the memory and swap there are. Never destroyed.
  static Allocator& host();

  /// ResourceExhausted says what was asked, in use and reserved, the largest hole, and the largest live blocks with the
  /// lines that made them.
  absl::StatusOr<Block> allocate(std::int64_t bytes, Loc made_at);
  void release(Block block);
  AllocatorStats stats() const;
  /// By the lines that made them, most bytes first: the blocks handed out now, and when the most were, to within 2
  /// percent of the peak.
  std::vector<LineUse> live() const;
  std::vector<LineUse> at_peak() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// "64 B", "1.5 MiB".
std::string human_bytes(std::int64_t bytes);

/// "64M" -> 67108864, "50%" -> half of `total`; InvalidArgument for anything else.
absl::StatusOr<std::int64_t> parse_bytes(const std::string& text, std::int64_t total = 0);

}  // namespace sheaf::runtime
