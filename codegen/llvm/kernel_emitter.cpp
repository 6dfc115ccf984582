// A kernel is its phases, or a contraction.
#include "codegen/llvm/kernel_emitter.h"

#include "codegen/llvm/contract_emitter.h"
#include "codegen/llvm/phase_emitter.h"

namespace sheaf::codegen {

llvm::Function* declare_phase(llvm::Module& module, const std::string& symbol) {
  llvm::LLVMContext& context = module.getContext();
  auto* pointer = llvm::PointerType::get(context, 0);
  auto* integer = llvm::Type::getInt64Ty(context);
  auto* type = llvm::FunctionType::get(llvm::Type::getVoidTy(context), {pointer, integer, integer, pointer}, false);
  return llvm::Function::Create(type, llvm::Function::ExternalLinkage, symbol, module);
}

void emit_kernel(llvm::Module& module, const CompileUnit& unit, const CpuTarget& target) {
  const kir::Kernel& kernel = *unit.kernel;
  if (kernel.contract) {
    ContractEmitter(*declare_phase(module, phase_symbol(unit.symbol, 0)), *kernel.contract, target).emit();
    return;
  }
  for (std::size_t i = 0; i < kernel.phases.size(); ++i) {
    llvm::Function* function = declare_phase(module, phase_symbol(unit.symbol, static_cast<int>(i)));
    PhaseEmitter(*function, kernel, kernel.phases[i], target).emit();
  }
}

}  // namespace sheaf::codegen
