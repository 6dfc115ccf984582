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

namespace {

void emit_contract(llvm::Module& module, const CompileUnit& unit, const CpuTarget& target) {
  const ContractPlan plan = plan_contract(*unit.kernel->contract, target);
  int phase = 0;
  auto next = [&] { return ContractEmitter(*declare_phase(module, phase_symbol(unit.symbol, phase++)), plan, target); };
  for (const ContractPlan::SharedPacking& packing : plan.shared) next().emit_packing(packing.is_lhs);
  next().emit();
}

}  // namespace

void emit_kernel(llvm::Module& module, const CompileUnit& unit, const CpuTarget& target) {
  const kir::Kernel& kernel = *unit.kernel;
  if (kernel.contract) return emit_contract(module, unit, target);
  for (std::size_t i = 0; i < kernel.phases.size(); ++i) {
    llvm::Function* function = declare_phase(module, phase_symbol(unit.symbol, static_cast<int>(i)));
    PhaseEmitter(*function, kernel, kernel.phases[i], target).emit();
  }
}

}  // namespace sheaf::codegen
