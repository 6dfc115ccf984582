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

/// void epilogue(ptr buffers, i64 batch, i64 first_row, i64 end_row, i64 first_column, i64 end_column, ptr sums), of
/// the contraction that `function` computes. `sums` is where that of row 0 and column 0 would be. Rows are counted as
/// the plan orders them.
llvm::Function* emit_epilogue(llvm::Function& function, const kir::Kernel& kernel, const kir::Phase& phase,
                              const ContractPlan& plan, const CpuTarget& target) {
  llvm::LLVMContext& context = function.getContext();
  auto* pointer = llvm::PointerType::get(context, 0);
  auto* integer = llvm::Type::getInt64Ty(context);
  auto* type = llvm::FunctionType::get(llvm::Type::getVoidTy(context),
                                       {pointer, integer, integer, integer, integer, integer, pointer}, false);
  auto* epilogue = llvm::Function::Create(type, llvm::Function::InternalLinkage, function.getName() + "_epilogue",
                                          function.getParent());
  const auto argument = [&](unsigned i) { return epilogue->getArg(i); };
  PhaseEmitter(*epilogue, kernel, phase, target)
      .emit_part({.batch = argument(1),
                  .first_row = argument(2),
                  .end_row = argument(3),
                  .first_column = argument(4),
                  .end_column = argument(5),
                  .column_step = plan.epilogue_columns(),
                  .sums = plan.epilogue == EpilogueOf::sums ? argument(6) : nullptr,
                  .sum_stride = plan.sum_stride,
                  .sum = plan.computed,
                  .lane_rows = plan.is_direct ? 0 : plan.lane_rows});
  return epilogue;
}

class Emitter {
 public:
  Emitter(llvm::Module& module, const CompileUnit& unit, const CpuTarget& target)
      : module_(module), unit_(unit), kernel_(*unit.kernel), target_(target) {}

  void emit() {
    const kir::Phase* epilogue = kernel_.contract ? kir::epilogue_of(kernel_) : nullptr;
    for (const kir::Phase& phase : kernel_.phases) {
      if (&phase == epilogue && emit_contract(epilogue)) continue;
      PhaseEmitter(next(), kernel_, phase, target_).emit();
    }
    if (kernel_.contract && !epilogue) emit_contract(nullptr);
  }

 private:
  llvm::Function& next() { return *declare_phase(module_, phase_symbol(unit_.symbol, phase_++)); }

  /// With what follows it, if the plan has that; true if so.
  bool emit_contract(const kir::Phase* epilogue) {
    const ContractPlan plan = plan_contract(kernel_, target_);
    const int packed = static_cast<int>(kernel_.params.size() - plan.shared.size());
    for (const ContractPlan::SharedPacking& packing : plan.shared)
      ContractEmitter(next(), plan, packed, target_).emit_packing(packing);
    llvm::Function& function = next();
    const bool has_epilogue = plan.epilogue != EpilogueOf::none;
    ContractEmitter(function, plan, packed, target_,
                    has_epilogue ? emit_epilogue(function, kernel_, *epilogue, plan, target_) : nullptr)
        .emit();
    return has_epilogue;
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
