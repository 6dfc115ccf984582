// A kernel in the process: its KIR, and its machine code once that exists. Invariant: `run` gives the same bits through
// the interpreter and through machine code, so the switch from one to the other may happen between any two runs.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "codegen/contract.h"
#include "codegen/kir/interp.h"
#include "codegen/native_code.h"
#include "codegen/program.h"

namespace sheaf::runtime {

class CudaKernel;

/// Machine code of a kernel. On a CPU one entry per phase, which `owner` keeps mapped; on a GPU in `cuda`.
struct CompiledKernel {
  std::vector<codegen::KernelFunction> phases = {};
  std::shared_ptr<const void> owner = nullptr;
  std::shared_ptr<CudaKernel> cuda = nullptr;
  std::int64_t code_bytes = 0;
};
using CompiledKernelPtr = std::shared_ptr<const CompiledKernel>;

/// The interpreter takes about this many times as long as machine code.
inline constexpr std::int64_t kInterpreterSlowdown = 100;

class Kernel {
 public:
  explicit Kernel(codegen::KernelCode code);

  const codegen::KernelCode& code() const { return code_; }
  /// The estimated work of one run of the machine code on one core.
  std::int64_t work_ps() const { return work_ps_; }
  bool is_compiled() const { return ready_.load(std::memory_order_acquire) != nullptr; }
  /// Of its machine code; 0 as long as there is none.
  std::int64_t code_bytes() const {
    const CompiledKernel* compiled = ready_.load(std::memory_order_acquire);
    return compiled ? compiled->code_bytes : 0;
  }
  /// Null as long as there is none.
  const CompiledKernel* compiled() const { return ready_.load(std::memory_order_acquire); }
  void set_compiled(CompiledKernelPtr compiled);
  /// True once: whoever gets it has the kernel compiled.
  bool claim_compilation() { return !is_claimed_.exchange(true, std::memory_order_relaxed); }
  /// How often the interpreter ran it.
  int interpreted_runs() const { return interpreted_runs_.load(std::memory_order_relaxed); }

  /// On the CPU: what phases before the last pack, so that whoever has such a copy may give that.
  const std::vector<codegen::PackedOperand>& packed_operands() const { return packed_operands_; }
  /// On the CPU: runs all phases on the pool, or on this thread where that is quicker; but machine code skips those
  /// that would make the copies which were given: bit i of `packed` is phase i. Throws what the interpreter throws, and
  /// std::bad_alloc where there is no memory for scratch.
  void run(void* const* buffers, std::uint32_t packed);

 private:
  void run_interpreted(void* const* buffers);
  const kir::Interpreter& interpreter();

  const codegen::KernelCode code_;
  const std::int64_t work_ps_;
  const std::vector<codegen::PackedOperand> packed_operands_;  // of the first phases, in order
  std::once_flag interpreter_once_;
  std::unique_ptr<const kir::Interpreter> interpreter_;
  CompiledKernelPtr compiled_;  // written once, before ready_
  std::atomic<const CompiledKernel*> ready_{nullptr};
  std::atomic<bool> is_claimed_{false};
  std::atomic<int> interpreted_runs_{0};
};
using KernelPtr = std::shared_ptr<Kernel>;

struct Launch;

/// On the CPU: runs kernels of one phase each, none of which waits for another. Throws as they do.
void run_together(std::span<const Launch> launches);

}  // namespace sheaf::runtime
