// The way to the CPU compiler: KIR kernels in, a relocatable object out. LLVM itself sits in a plug-in that is opened
// by the first compilation, so that a process that only loads objects (native_code.h) never pays for it. Every function
// here may be called from any thread; each thread compiles with a compiler instance of its own.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "codegen/cpu_target.h"
#include "codegen/kir/kir.h"

namespace sheaf::codegen {

/// A kernel and the symbol its functions are named after.
struct CompileUnit {
  const kir::Kernel* kernel = nullptr;
  std::string symbol;
};

/// The function that runs phase `phase` of a kernel compiled under `symbol`; its type is KernelFunction.
std::string phase_symbol(std::string_view symbol, int phase);

/// Compiles the kernels into one object. Unavailable if the plug-in cannot be opened (the message lists the places
/// tried), FailedPrecondition if it was built from other sources than this library, Internal for a compiler bug.
absl::StatusOr<std::vector<std::byte>> compile_cpu(std::span<const CompileUnit> units, const CpuTarget& target);

/// Opens the plug-in now instead of at the first compilation. LLVM's own exit handlers are registered by this, so a
/// handler registered after it runs before them.
absl::Status open_compiler();

enum class Listing { llvm_ir, assembly };

/// What `compile_cpu` makes of the kernels, as text.
absl::StatusOr<std::string> list_cpu(std::span<const CompileUnit> units, const CpuTarget& target, Listing listing);

/// Names the compiler's version and sources; part of every kernel key. Does not open the plug-in.
std::string_view compiler_id();

}  // namespace sheaf::codegen
