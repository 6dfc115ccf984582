// How one kernel runs: phase after phase, each cut into chunks by its estimated work.
#include "runtime/kernel.h"

#include <algorithm>
#include <bit>
#include <new>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/container/inlined_vector.h"
#include "codegen/kir/contract.h"
#include "ir/check.h"
#include "runtime/allocator.h"
#include "runtime/backend.h"
#include "runtime/counters.h"
#include "runtime/scratch.h"
#include "runtime/spin.h"
#include "runtime/thread_pool.h"

namespace sheaf::runtime {
namespace {

std::int64_t total_work_ps(const codegen::KernelCode& code) {
  std::int64_t total = 0;
  for (const codegen::Phase& phase : code.phases) {
    std::int64_t work = 0;
    if (__builtin_mul_overflow(phase.extent, phase.unit_ps, &work) || __builtin_add_overflow(total, work, &total))
      return INT64_MAX;
  }
  return total;
}

std::vector<codegen::PackedOperand> packed_operands_of(const codegen::KernelCode& code) {
  if (code.target.is_gpu() || !code.kir || !code.kir->contract) return {};
  // One that has phases before it, of a plan for GPUs, has its packing elsewhere.
  if (kir::prologue_of(*code.kir, 0) || kir::prologue_of(*code.kir, 1)) return {};
  return codegen::packed_operands(*code.kir, codegen::host_cpu_target());
}

class ThreadScratch {
 public:
  ~ThreadScratch() { Allocator::host().release(block_); }
  std::byte* get(std::int64_t bytes) {
    if (bytes <= block_.bytes) return block_.data;
    Allocator::host().release(std::exchange(block_, {}));
    absl::StatusOr<Block> block = Allocator::host().allocate(scratch_block_bytes(bytes), Loc{});
    if (!block.ok()) throw std::bad_alloc();
    block_ = *block;
    return block_.data;
  }

 private:
  Block block_;
};

/// Scratch for as many chunks as run at once, all of it there from the beginning: which threads come, and when, must
/// not decide which pages are touched.
class ChunkScratch {
 public:
  ChunkScratch(std::int64_t bytes, std::int64_t chunks) {
    const auto count = static_cast<int>(std::min<std::int64_t>({chunks, ThreadPool::global().threads(), 64}));
    for (int i = 0; i < count && bytes > 0; ++i) {
      absl::StatusOr<Block> block = Allocator::host().allocate(scratch_block_bytes(bytes), Loc{});
      if (!block.ok()) {
        give_back();
        throw std::bad_alloc();
      }
      blocks_.push_back(*block);
      free_ |= std::uint64_t{1} << i;
    }
  }
  ~ChunkScratch() { give_back(); }
  ChunkScratch(const ChunkScratch&) = delete;
  ChunkScratch& operator=(const ChunkScratch&) = delete;

  /// Of one chunk, which gives it back.
  int take() {
    if (blocks_.empty()) return -1;
    for (std::uint64_t free = free_.load(std::memory_order_relaxed);;) {
      if (free == 0) {  // more threads than there are bits
        relax_cpu();
        free = free_.load(std::memory_order_relaxed);
        continue;
      }
      if (free_.compare_exchange_weak(free, free & (free - 1), std::memory_order_acquire))
        return std::countr_zero(free);
    }
  }
  void end(int i) {
    if (i >= 0) free_.fetch_or(std::uint64_t{1} << i, std::memory_order_release);
  }
  std::byte* data(int i) const { return i < 0 ? nullptr : blocks_[static_cast<std::size_t>(i)].data; }

 private:
  void give_back() {
    for (const Block& block : blocks_) Allocator::host().release(block);
  }

  absl::InlinedVector<Block, 8> blocks_;
  std::atomic<std::uint64_t> free_{0};
};

/// Calls `run(begin, end, scratch)` for all units of `phase`.
template <class Run>
void run_phase(const codegen::Phase& phase, std::int64_t unit_ps, Run&& run) {
  ThreadPool& pool = ThreadPool::global();
  const std::int64_t grain = std::max<std::int64_t>(1, pool.grain(phase.extent, unit_ps));
  ChunkScratch scratch(phase.scratch_bytes, (phase.extent + grain - 1) / grain);
  pool.parallel_for(phase.extent, grain, [&](std::int64_t begin, std::int64_t end) {
    const int mine = scratch.take();
    const absl::Cleanup give_back = [&] { scratch.end(mine); };
    run(begin, end, scratch.data(mine));
  });
}

}  // namespace

// A power of two, so that a few growing requests do not leave a trail of sizes.
std::int64_t scratch_block_bytes(std::int64_t bytes) {
  return static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(bytes)));
}

std::byte* thread_scratch(std::int64_t bytes) {
  thread_local ThreadScratch scratch;
  return scratch.get(bytes);
}

Kernel::Kernel(codegen::KernelCode code)
    : code_(std::move(code)), work_ps_(total_work_ps(code_)), packed_operands_(packed_operands_of(code_)) {}

void Kernel::set_compiled(CompiledKernelPtr compiled) {
  SHEAF_CHECK(compiled->cuda || compiled->phases.size() == code_.phases.size(), code_.name);
  compiled_ = std::move(compiled);
  ready_.store(compiled_.get(), std::memory_order_release);
}

void Kernel::run(void* const* buffers, std::uint32_t packed) {
  counters().launches.fetch_add(1, std::memory_order_relaxed);
  const CompiledKernel* compiled = ready_.load(std::memory_order_acquire);
  if (!compiled) return run_interpreted(buffers);
  for (std::size_t i = 0; i < code_.phases.size(); ++i) {
    if (i < packed_operands_.size() && (packed >> i & 1)) continue;
    const codegen::KernelFunction function = compiled->phases[i];
    run_phase(code_.phases[i], code_.phases[i].unit_ps, [&](std::int64_t begin, std::int64_t end, std::byte* scratch) {
      function(buffers, begin, end, scratch);
    });
  }
}

void Kernel::run_interpreted(void* const* buffers) {
  counters().interpreted_launches.fetch_add(1, std::memory_order_relaxed);
  interpreted_runs_.fetch_add(1, std::memory_order_relaxed);
  const kir::Interpreter& kir = interpreter();
  if (code_.kir->contract) return kir.run(buffers);
  for (int i = 0; i < std::ssize(code_.phases); ++i) {
    const codegen::Phase& phase = code_.phases[i];
    run_phase(
        phase, phase.unit_ps * kInterpreterSlowdown,
        [&](std::int64_t begin, std::int64_t end, std::byte* scratch) { kir.run(i, buffers, begin, end, scratch); });
  }
}

void run_together(std::span<const Launch> launches) {
  struct Chunk {
    const Launch* launch;
    std::int64_t begin, end;
  };
  const auto is_compiled = [](const Launch& l) { return l.kernel->is_compiled(); };
  if (!std::all_of(launches.begin(), launches.end(), is_compiled)) {  // an interpreter is asked for each
    for (const Launch& l : launches) l.kernel->run(l.buffers.data(), 0);
    return;
  }
  std::int64_t total_ps = 0;
  for (const Launch& l : launches)
    if (__builtin_add_overflow(total_ps, l.kernel->work_ps(), &total_ps)) total_ps = INT64_MAX;
  ThreadPool& pool = ThreadPool::global();
  const std::int64_t chunk_ps = pool.grain(total_ps, 1);  // all of it where that is quicker on this thread
  counters().launches.fetch_add(1, std::memory_order_relaxed);
  absl::InlinedVector<Chunk, 64> chunks;
  for (const Launch& l : launches) {
    const codegen::Phase& phase = l.kernel->code().phases[0];
    const std::int64_t units = std::max<std::int64_t>(1, chunk_ps / std::max<std::int64_t>(phase.unit_ps, 1));
    for (std::int64_t begin = 0; begin < phase.extent; begin += units)
      chunks.push_back({&l, begin, std::min(begin + units, phase.extent)});
  }
  std::int64_t scratch_bytes = 0;
  for (const Launch& l : launches) scratch_bytes = std::max(scratch_bytes, l.kernel->code().phases[0].scratch_bytes);
  ChunkScratch scratch(scratch_bytes, std::ssize(chunks));
  const std::int64_t grain = chunk_ps < total_ps ? 1 : std::ssize(chunks);
  pool.parallel_for(std::ssize(chunks), grain, [&](std::int64_t first, std::int64_t end) {
    const int mine = scratch.take();
    const absl::Cleanup give_back = [&] { scratch.end(mine); };
    for (std::int64_t i = first; i < end; ++i) {
      const Chunk& chunk = chunks[static_cast<std::size_t>(i)];
      chunk.launch->kernel->compiled()->phases[0](chunk.launch->buffers.data(), chunk.begin, chunk.end,
                                                  scratch.data(mine));
    }
  });
}

const kir::Interpreter& Kernel::interpreter() {
  std::call_once(interpreter_once_, [&] {
    SHEAF_CHECK(code_.kir != nullptr, code_.name);
    interpreter_ = std::make_unique<const kir::Interpreter>(*code_.kir);
  });
  return *interpreter_;
}

}  // namespace sheaf::runtime
