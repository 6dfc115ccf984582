// `Program`: what codegen hands to the runtime. Plain data: kernels as target-independent text plus a key, the launch
// shape of each, and the ordered steps with the buffers they touch. The runtime loads and runs it, and never re-plans.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ir/type.h"
#include "sheaf/source.h"

namespace sheaf::kir { struct Kernel; }

namespace sheaf::codegen {

/// Where a kernel parameter lives.
struct BufferRef {
  enum class Space : std::uint8_t { input, output, arena, constant };
  Space space = Space::arena;
  std::int64_t index = 0;   // input, output, constant: which; arena: byte offset (a multiple of 64)
  std::int64_t bytes = 0;
};

/// One phase of a kernel: a function `void f(void* const* buffers, int64_t begin, int64_t end, std::byte* scratch)` that
/// may be run for disjoint [begin, end) of [0, extent) on any threads in any order. Phases run one after the other.
struct Phase {
  std::string entry;              // symbol
  std::int64_t extent = 1;        // units of parallel work
  std::int64_t unit_ps = 1000;    // estimated picoseconds per unit; below ~8 us in all the caller runs it alone
  std::int64_t scratch_bytes = 0; // per thread; 64-byte aligned, uninitialised
};

struct KernelCode {
  std::string name;               // op list + hash: what a profile shows
  std::string key;                // hex of hash(KIR text, target, compiler version)
  std::shared_ptr<const kir::Kernel> kir;
  std::vector<Phase> phases;
};

struct Step {
  int kernel = 0;                   // index into Program::kernels
  std::vector<BufferRef> buffers;   // in the order of the kernel's parameters
  Loc loc;                          // the user's line of the group's hero
};

struct Constant { ir::Type type; std::vector<std::byte> data; };

struct Program {
  std::string name;
  std::vector<ir::Type> inputs, outputs;
  std::vector<Constant> constants;
  std::vector<KernelCode> kernels;
  std::vector<Step> steps;
  std::int64_t arena_bytes = 0;
  std::vector<int> alias;           // per output: the donated input whose buffer it takes, or -1
};

}  // namespace sheaf::codegen
