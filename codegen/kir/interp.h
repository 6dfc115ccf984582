// Executes KIR directly: the third implementation of a kernel, beside CUDA text and LLVM code, and the one that needs
// no compiler. Vector loops run 64 lanes per instruction, so dispatch costs little; values are exact bits
// (ir::eval_op).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "codegen/kir/kir.h"

namespace sheaf::kir {

/// One phase, resolved to flat instructions over a register file. Immutable, so any number of threads may run it.
class PhaseProgram;

/// The reference form of a Contract: plain nested loops over buffers {lhs, rhs, out}.
void run_contract(const Contract& contract, void* const* buffers);

class Interpreter {
 public:
  /// `kernel` must pass `verify`, have no barriers or thread loops, and may die before the interpreter.
  explicit Interpreter(const Kernel& kernel);
  ~Interpreter();
  Interpreter(Interpreter&&) noexcept;
  Interpreter& operator=(Interpreter&&) noexcept;

  /// Units [begin, end) of one phase. `scratch` holds scratch_bytes(phase), 64-byte aligned. Buffers are in the order
  /// of the parameters. Throws InternalError on an access out of bounds.
  void run(int phase, void* const* buffers, std::int64_t begin, std::int64_t end, std::byte* scratch) const;
  /// Everything, on this thread. A contraction's result that is a temporary need not be there.
  void run(void* const* buffers) const;

 private:
  std::vector<std::unique_ptr<const PhaseProgram>> phases_;
  std::unique_ptr<const Contract> contract_;
  std::size_t prologues_ = 0;  // phases before the contraction
  std::size_t params_ = 0;
  std::int64_t sum_bytes_ = 0;  // of the contraction's result, if that is a temporary
};

}  // namespace sheaf::kir
