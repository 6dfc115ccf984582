// Sets up LLVM for x86-64 and runs its code generator. There is no middle-end: kernels are emitted in the form they
// should have, and only locals are promoted to SSA. Contraction of a*b+c is off; `fma` is asked for by name.
#include "codegen/llvm/module.h"

#include <map>

#include "codegen/llvm/kernel_emitter.h"
#include "ir/check.h"
#include "llvm/IR/Dominators.h"
#include "llvm/IR/Instructions.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/IR/Verifier.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Support/SmallVectorMemoryBuffer.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/Target/TargetMachine.h"
#include "llvm/Transforms/Utils/PromoteMemToReg.h"

namespace sheaf::codegen {
namespace {

constexpr const char* kTriple = "x86_64-unknown-linux-gnu";

std::unique_ptr<llvm::TargetMachine> make_machine(const CpuTarget& target) {
  static const bool is_ready = [] {
    LLVMInitializeX86TargetInfo();
    LLVMInitializeX86Target();
    LLVMInitializeX86TargetMC();
    LLVMInitializeX86AsmPrinter();
    return true;
  }();
  std::string error;
  const llvm::Target* x86 = llvm::TargetRegistry::lookupTarget(kTriple, error);
  SHEAF_CHECK(is_ready && x86, error);
  llvm::TargetOptions options;
  options.AllowFPOpFusion = llvm::FPOpFusion::Strict;
  options.NoTrappingFPMath = true;
  return std::unique_ptr<llvm::TargetMachine>(x86->createTargetMachine(kTriple, target.cpu, target.features, options,
                                                                       llvm::Reloc::PIC_, llvm::CodeModel::Small,
                                                                       llvm::CodeGenOptLevel::Default, /*JIT=*/false));
}

// A thread compiles for one target nearly always; making a machine takes a millisecond.
llvm::TargetMachine& machine_of_this_thread(const CpuTarget& target) {
  thread_local std::map<std::string, std::unique_ptr<llvm::TargetMachine>> machines;
  std::unique_ptr<llvm::TargetMachine>& machine = machines[target.key()];
  if (!machine) machine = make_machine(target);
  return *machine;
}

void promote_locals(llvm::Function& function) {
  llvm::DominatorTree dominators(function);
  std::vector<llvm::AllocaInst*> locals;
  for (llvm::Instruction& instruction : function.getEntryBlock()) {
    auto* local = llvm::dyn_cast<llvm::AllocaInst>(&instruction);
    if (local && llvm::isAllocaPromotable(local)) locals.push_back(local);
  }
  if (!locals.empty()) llvm::PromoteMemToReg(locals, dominators);
}

}  // namespace

KernelModule::KernelModule(std::span<const CompileUnit> units, const CpuTarget& target)
    : module_(std::make_unique<llvm::Module>("sheaf", context_)), machine_(&machine_of_this_thread(target)) {
  module_->setTargetTriple(kTriple);
  module_->setDataLayout(machine_->createDataLayout());
  for (const CompileUnit& unit : units) emit_kernel(*module_, unit, target);
  for (llvm::Function& function : *module_) {
    if (function.isDeclaration()) continue;
    function.addFnAttr(llvm::Attribute::NoUnwind);
    function.addFnAttr("target-cpu", target.cpu);
    function.addFnAttr("target-features", target.features);
    // LLVM's own tuning for AVX-512 stops at 256 bits, which would halve the throughput of everything.
    function.addFnAttr("prefer-vector-width", std::to_string(8 * target.vector_bytes));
    function.addFnAttr("min-legal-vector-width", std::to_string(8 * target.vector_bytes));
    promote_locals(function);
  }
  std::string problems;
  llvm::raw_string_ostream stream(problems);
  SHEAF_CHECK(!llvm::verifyModule(*module_, &stream), problems);
}

void KernelModule::generate(llvm::raw_pwrite_stream& out, bool as_text) {
  llvm::legacy::PassManager passes;
  const auto type = as_text ? llvm::CodeGenFileType::AssemblyFile : llvm::CodeGenFileType::ObjectFile;
  SHEAF_CHECK(!machine_->addPassesToEmitFile(passes, out, nullptr, type));
  passes.run(*module_);
}

std::vector<std::byte> KernelModule::object() {
  llvm::SmallVector<char, 0> buffer;
  llvm::raw_svector_ostream stream(buffer);
  generate(stream, false);
  const auto bytes = std::as_bytes(std::span(buffer.data(), buffer.size()));
  return {bytes.begin(), bytes.end()};
}

std::string KernelModule::assembly() {
  llvm::SmallVector<char, 0> buffer;
  llvm::raw_svector_ostream stream(buffer);
  generate(stream, true);
  return {buffer.begin(), buffer.end()};
}

std::string KernelModule::llvm_ir() const {
  std::string text;
  llvm::raw_string_ostream stream(text);
  module_->print(stream, nullptr);
  return stream.str();
}

}  // namespace sheaf::codegen
