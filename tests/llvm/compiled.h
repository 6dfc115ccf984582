// Compiles a kernel for a CPU level and runs it: what the tests of the CPU compiler share.
#pragma once

#include <doctest/doctest.h>

#include <string>
#include <utility>
#include <vector>

#include "codegen/compiler.h"
#include "codegen/native_code.h"

namespace sheaf::codegen {

class Compiled {
 public:
  Compiled(const kir::Kernel& kernel, const CpuTarget& target) : kernel_(kernel), code_(build(kernel, target)) {}

  /// Every phase, unit by unit in one call.
  void run(std::vector<void*> buffers) const {
    for (int i = 0; i < static_cast<int>(kernel_.phases.size()); ++i) {
      const kir::Phase& phase = kernel_.phases[i];
      const std::size_t bytes = kir::scratch_bytes(phase);
      std::vector<std::byte> scratch(bytes + 64);
      std::byte* aligned = scratch.data() + (64 - reinterpret_cast<std::uintptr_t>(scratch.data()) % 64);
      function(i)(buffers.data(), 0, phase.axes[0].extent, aligned);
    }
  }
  KernelFunction function(int phase) const {
    KernelFunction f = code_.find(phase_symbol("k", phase));
    REQUIRE((f != nullptr));
    return f;
  }

 private:
  static NativeCode build(const kir::Kernel& kernel, const CpuTarget& target) {
    const CompileUnit units[] = {{&kernel, "k"}};
    auto object = compile_cpu(units, target);
    REQUIRE_MESSAGE(object.ok(), object.status().ToString());
    auto code = NativeCode::load(*object);
    REQUIRE_MESSAGE(code.ok(), code.status().ToString());
    return std::move(*code);
  }

  const kir::Kernel& kernel_;
  NativeCode code_;
};

/// The levels that this machine can run, highest first.
inline std::vector<CpuTarget> runnable_targets() {
  std::vector<CpuTarget> targets;
  bool is_runnable = false;
  for (const char* isa : {"x86-64-v4", "x86-64-v3", "x86-64-v2", "x86-64"}) {
    is_runnable |= host_cpu_target().cpu == isa;
    if (is_runnable) targets.push_back(*cpu_target(isa));
  }
  return targets;
}

}  // namespace sheaf::codegen
