// Kernels as LLVM IR: one function per phase. Vector loops are emitted at their full width with explicit vector types,
// and the iterations that do not fill a vector once more with the surplus lanes masked off; so every element meets the
// same operations in the same order whatever the width.
#pragma once

#include "codegen/compiler.h"
#include "llvm/IR/Module.h"

namespace sheaf::codegen {

/// Adds the functions `phase_symbol(unit.symbol, i)` to `module`.
void emit_kernel(llvm::Module& module, const CompileUnit& unit, const CpuTarget& target);

/// Adds the function `symbol` with a kernel phase's signature, its body empty.
llvm::Function* declare_phase(llvm::Module& module, const std::string& symbol);

}  // namespace sheaf::codegen
