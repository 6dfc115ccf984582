// One LLVM module: kernels in, object code or text out. Each thread has its own LLVM context and target machine, so
// kernels compile in parallel without a lock.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "codegen/compiler.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/Module.h"

namespace llvm {
class TargetMachine;
}

namespace sheaf::codegen {

class KernelModule {
 public:
  /// Emits every phase of every unit, and promotes locals to SSA values. Throws InternalError if the result is not
  /// valid LLVM IR.
  KernelModule(std::span<const CompileUnit> units, const CpuTarget& target);

  std::vector<std::byte> object();  // the module is used up by either of these two
  std::string assembly();
  std::string llvm_ir() const;

 private:
  void generate(llvm::raw_pwrite_stream& out, bool as_text);

  llvm::LLVMContext context_;
  std::unique_ptr<llvm::Module> module_;
  llvm::TargetMachine* machine_;  // of this thread
};

}  // namespace sheaf::codegen
