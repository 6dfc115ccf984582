// A kernel is its phases, and perhaps a contraction between what makes its operands and what follows it.
#include "codegen/llvm/kernel_emitter.h"

#include "codegen/kir/contract.h"
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

class Emitter {
 public:
  Emitter(llvm::Module& module, const CompileUnit& unit, const CpuTarget& target)
      : module_(module), unit_(unit), kernel_(*unit.kernel), target_(target) {}

  void emit() {
    const kir::Phase* epilogue = kernel_.contract ? kir::epilogue_of(kernel_) : nullptr;
    for (const kir::Phase& phase : kernel_.phases) {
      if (&phase == epilogue) emit_contract();
      PhaseEmitter(next(), kernel_, phase, target_).emit();
    }
    if (kernel_.contract && !epilogue) emit_contract();
  }

 private:
  llvm::Function& next() { return *declare_phase(module_, phase_symbol(unit_.symbol, phase_++)); }

  void emit_contract() {
    const ContractPlan plan = plan_contract(*kernel_.contract, target_);
    const int packed = static_cast<int>(kernel_.params.size() - plan.shared.size());
    for (const ContractPlan::SharedPacking& packing : plan.shared)
      ContractEmitter(next(), plan, packed, target_).emit_packing(packing.is_lhs);
    ContractEmitter(next(), plan, packed, target_).emit();
  }

  llvm::Module& module_;
  const CompileUnit& unit_;
  const kir::Kernel& kernel_;
  const CpuTarget& target_;
  int phase_ = 0;
};

}  // namespace

void emit_kernel(llvm::Module& module, const CompileUnit& unit, const CpuTarget& target) {
  Emitter(module, unit, target).emit();
}

}  // namespace sheaf::codegen
