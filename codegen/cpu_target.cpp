// Finds the x86-64 level of this machine. The operating system has a say too: a register file that it does not save
// across a context switch is as good as absent, so XCR0 is read beside CPUID; and what an instruction's sums are is
// tried.
#include "codegen/cpu_target.h"

#include <cpuid.h>
#include <immintrin.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "fmt/format.h"
#include "fmt/ranges.h"
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

Registers cpuid(unsigned leaf, unsigned part = 0) {
  Registers r;
  __get_cpuid_count(leaf, part, &r.eax, &r.ebx, &r.ecx, &r.edx);
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

__attribute__((target("avx512f,avx512bf16"))) float bf16_dot(float sum, std::uint32_t a, std::uint32_t b) {
  const __m512i x = _mm512_set1_epi32(static_cast<int>(a)), y = _mm512_set1_epi32(static_cast<int>(b));
  return _mm512_cvtss_f32(_mm512_dpbf16_ps(_mm512_set1_ps(sum), (__m512bh)x, (__m512bh)y));
}

// Whether each half is added by itself and rounded, the upper one first: the manuals leave room for other ways.
bool bf16_dot_is_two_steps() {
  const auto upper = [](std::uint32_t x) { return std::bit_cast<float>(x & 0xffff0000u); };
  std::uint32_t state = 1;
  const auto next = [&] { return (state = state * 1664525u + 1013904223u); };
  // Of either sign, and by exponent between 2^-4 and 2^4.
  const auto number = [&] { return (next() >> 8 & 0x807fu) | (123u + (next() >> 16) % 9u) << 7; };
  for (int i = 0; i < 256; ++i) {
    const std::uint32_t a = number() << 16 | number(), b = number() << 16 | number();
    const float sum = std::bit_cast<float>(number() << 16 | next() >> 16);
    const float expected = std::fma(upper(a << 16), upper(b << 16), std::fma(upper(a), upper(b), sum));
    if (bf16_dot(sum, a, b) != expected) return false;
  }
  return true;
}

CpuTarget host_target() {
  CpuTarget target = levels()[host_level()];
  if (target.vector_bytes < 64) return target;
  std::vector<std::string> features;
  if (has_all(cpuid(7, 1).eax, {5}) && bf16_dot_is_two_steps()) features.push_back("+avx512bf16");
  if (has_all(cpuid(7).ecx, {11})) features.push_back("+avx512vnni");
  target.features = fmt::format("{}", fmt::join(features, ","));
  return target;
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
    const char* wanted = std::getenv("SHEAF_CPU_ISA");
    if (!wanted || !*wanted) return host_target();
    const int level = host_level(), named = level_named(wanted);
    if (named < 0) {
      ir::warn(fmt::format("SHEAF_CPU_ISA={} is none of {}; using {}", wanted, kNames, levels()[level].cpu));
      return host_target();
    }
    // A level above the machine's own would die of an illegal instruction, so it is only ever lowered.
    return levels()[std::min(level, named)];
  }();
  return target;
}

}  // namespace sheaf::codegen
