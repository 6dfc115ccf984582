// What a block's accesses would cost on a GPU: the k-th execution of an instruction by the lanes of a warp is one
// request, which moves 32-byte sectors of global memory or takes wavefronts over the 32 banks of shared memory.
#pragma once

#include <cstdint>
#include <vector>

#include "tests/emulator/engine.h"
#include "tests/emulator/shadow.h"

namespace sheaf::emulator {

class AccessCounter {
 public:
  struct Access {
    int thread = 0;
    Site site = 0;
    std::uint64_t address = 0;
    std::int64_t bytes = 0;
    bool is_shared = false, is_store = false;
  };

  void begin_block(int threads);
  void note(const Access& access);
  void end_block(Counters& counters);

 private:
  struct Request {
    std::int64_t bytes = 0;
    bool is_shared = false, is_store = false;
    int count = 0;
    std::uint64_t addresses[32];
    std::uint8_t lanes[32];
  };
  static void add_global(const Request& request, Counters& counters);
  static void add_shared(const Request& request, Counters& counters);

  std::vector<std::vector<std::uint32_t>> executions_;     // [thread][site]
  std::vector<std::vector<std::vector<Request>>> requests_;  // [warp][site][execution]
};

}  // namespace sheaf::emulator
