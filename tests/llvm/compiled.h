// Compiles a kernel for a CPU level and runs it: what the tests of the CPU compiler share.
#pragma once

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "codegen/compiler.h"
#include "codegen/kir/interp.h"
#include "codegen/native_code.h"

namespace sheaf::codegen {

/// Numbers of any dtype: normal floats, any integers, few true bools.
inline std::vector<std::byte> random_elements(DType t, std::int64_t count, std::mt19937& random) {
  std::vector<std::byte> data(count * size_bytes(t));
  std::normal_distribution<double> normal;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint64_t bits = is_float(t)  ? ir::to_bits(t, normal(random))
                               : is_bool(t) ? std::uint64_t{random() % 8 == 0}
                                            : random();
    std::memcpy(data.data() + i * size_bytes(t), &bits, size_bytes(t));
  }
  return data;
}

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

/// This machine with all it has, where that is more than a level, and the levels that it can run, highest first.
inline std::vector<CpuTarget> runnable_targets() {
  std::vector<CpuTarget> targets;
  if (!host_cpu_target().features.empty()) targets.push_back(host_cpu_target());
  bool is_runnable = false;
  for (const char* isa : {"x86-64-v4", "x86-64-v3", "x86-64-v2", "x86-64"}) {
    is_runnable |= host_cpu_target().cpu == isa;
    if (is_runnable) targets.push_back(*cpu_target(isa));
  }
  return targets;
}

/// Any NaN equals any NaN; all other elements are equal to the bit.
inline bool same_elements(DType t, const std::byte* a, const std::byte* b, std::int64_t count) {
  const bool has_nan = is_float(t) || t == DType::f8e4m3 || t == DType::f8e5m2;
  for (std::int64_t i = 0; i < count; ++i) {
    std::uint64_t x = 0, y = 0;
    std::memcpy(&x, a + i * size_bytes(t), size_bytes(t));
    std::memcpy(&y, b + i * size_bytes(t), size_bytes(t));
    if (x != y && !(has_nan && std::isnan(ir::from_bits(t, x)) && std::isnan(ir::from_bits(t, y)))) return false;
  }
  return true;
}

/// Runs `kernel` compiled for each of `targets` and interpreted, from the same buffers, and compares what was written.
inline void check_compiled_equals_interpreted(const kir::Kernel& kernel, const std::vector<void*>& buffers,
                                              const std::vector<CpuTarget>& targets) {
  using Buffers = std::vector<std::vector<std::byte>>;
  auto copies = [&] {
    Buffers result;
    for (std::size_t i = 0; i < kernel.params.size(); ++i) {
      const auto* from = static_cast<const std::byte*>(buffers[i]);
      result.emplace_back(from, from + kernel.params[i].count * size_bytes(kernel.params[i].dtype));
    }
    return result;
  };
  auto pointers = [](Buffers& all) {
    std::vector<void*> result;
    for (auto& buffer : all) result.push_back(buffer.data());
    return result;
  };
  Buffers expected = copies();
  kir::Interpreter(kernel).run(pointers(expected).data());
  for (const CpuTarget& target : targets) {
    CAPTURE(target.cpu);
    Buffers actual = copies();
    Compiled(kernel, target).run(pointers(actual));
    for (std::size_t i = 0; i < kernel.params.size(); ++i) {
      CAPTURE(i);
      const kir::Param& p = kernel.params[i];
      if (p.access == kir::Param::Access::temporary) continue;
      CHECK(same_elements(p.dtype, actual[i].data(), expected[i].data(), p.count));
    }
  }
}

}  // namespace sheaf::codegen
