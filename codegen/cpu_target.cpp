// Finds the x86-64 level of this machine. The operating system has a say too: a register file that it does not save
// across a context switch is as good as absent, so XCR0 is read beside CPUID.
#include "codegen/cpu_target.h"

#include <cpuid.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>

#include "fmt/format.h"
#include "ir/log.h"

namespace sheaf::codegen {
namespace {

const std::array<CpuTarget, 4>& levels() {
  static const std::array<CpuTarget, 4> table = {{
      {"x86-64", "", 16, 16, false},
      {"x86-64-v2", "", 16, 16, false},
      {"x86-64-v3", "", 32, 16, true},
      {"x86-64-v4", "", 64, 32, true},
  }};
  return table;
}

constexpr std::string_view kNames = "x86-64, x86-64-v2, x86-64-v3, x86-64-v4";

struct Registers {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
};

Registers cpuid(unsigned leaf) {
  Registers r;
  __get_cpuid_count(leaf, 0, &r.eax, &r.ebx, &r.ecx, &r.edx);
  return r;
}

// Which register files the operating system saves: bits 1 and 2 are xmm and ymm, 5 to 7 the AVX-512 state.
std::uint64_t saved_state() {
  std::uint32_t low = 0, high = 0;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return std::uint64_t{high} << 32 | low;
}

bool has_all(std::uint64_t word, std::initializer_list<int> bits) {
  for (int bit : bits) {
    if (!(word >> bit & 1)) return false;
  }
  return true;
}

// Index into `levels()`. Bit numbers are those of the "CPUID" page of Intel's manual, volume 2.
int host_level() {
  const Registers basic = cpuid(1), extended = cpuid(7), amd = cpuid(0x80000001);
  const bool v2 = has_all(basic.ecx, {0, 9, 13, 19, 20, 23}) && has_all(amd.ecx, {0});  // sse3 ... popcnt, lahf
  if (!v2) return 0;
  const bool v3 = has_all(basic.ecx, {12, 22, 27, 28, 29}) &&  // fma movbe osxsave avx f16c
                  has_all(extended.ebx, {3, 5, 8}) &&          // bmi1 avx2 bmi2
                  has_all(amd.ecx, {5}) && has_all(saved_state(), {1, 2});  // lzcnt
  if (!v3) return 1;
  const bool v4 = has_all(extended.ebx, {16, 17, 28, 30, 31}) &&  // avx512 f dq cd bw vl
                  has_all(saved_state(), {5, 6, 7});
  return v4 ? 3 : 2;
}

int level_named(std::string_view isa) {
  for (int i = 0; i < static_cast<int>(levels().size()); ++i) {
    if (levels()[i].cpu == isa) return i;
  }
  return -1;
}

}  // namespace

absl::StatusOr<CpuTarget> cpu_target(std::string_view isa) {
  const int level = level_named(isa);
  if (level < 0) {
    return absl::InvalidArgumentError(fmt::format("unknown CPU level '{}'; there are {}", isa, kNames));
  }
  return levels()[level];
}

const CpuTarget& host_cpu_target() {
  static const CpuTarget target = [] {
    const int level = host_level();
    const char* wanted = std::getenv("SHEAF_CPU_ISA");
    if (!wanted || !*wanted) return levels()[level];
    const int named = level_named(wanted);
    if (named < 0)
      ir::warn(fmt::format("SHEAF_CPU_ISA={} is none of {}; using {}", wanted, kNames, levels()[level].cpu));
    // A level above the machine's own would die of an illegal instruction, so it is only ever lowered.
    return levels()[named < 0 ? level : std::min(level, named)];
  }();
  return target;
}

}  // namespace sheaf::codegen
