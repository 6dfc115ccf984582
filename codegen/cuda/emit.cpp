// A kernel's phases, each a function of its own: blocks of one launch cannot wait for each other.
#include "codegen/cuda/emit.h"

#include <fmt/format.h>

#include <algorithm>

#include "codegen/cuda/attention.h"
#include "codegen/cuda/contract.h"
#include "codegen/cuda/parameters.h"
#include "codegen/cuda/phase_printer.h"
#include "codegen/cuda/prelude.h"

namespace sheaf::codegen {

namespace {

void emit_phases(const kir::Kernel& kernel, const std::string& symbol, CudaText& out) {
  std::vector<Team> teams;
  for (const kir::Phase& phase : kernel.phases) {
    teams.emplace_back(kernel, phase);
    if (teams.back().uses_global_scratch())
      out.scratch_bytes = std::max(out.scratch_bytes, kir::scratch_bytes(phase) * phase.axes[0].extent);
  }
  for (std::size_t i = 0; i < kernel.phases.size(); ++i) {
    PhasePrinter printer(kernel, kernel.phases[i], std::move(teams[i]), fmt::format("{}_{}", symbol, i),
                         out.scratch_bytes > 0);
    out.functions += printer.print();
    out.launches.push_back(printer.launch());
  }
}

}  // namespace

CudaText emit_cuda(const kir::Kernel& kernel, const std::string& symbol, const Target& target) {
  CudaText out;
  if (kernel.attention) {
    emit_cuda_attention(kernel, symbol, out);
    return out;
  }
  if (kernel.contract) {
    emit_cuda_contract(kernel, symbol, target, out);
  } else {
    emit_phases(kernel, symbol, out);
  }
  add_pointer_table(kernel, symbol, out);
  return out;
}

std::string cuda_program(std::string_view functions) { return cuda_prelude_for(functions) + std::string(functions); }

}  // namespace sheaf::codegen
