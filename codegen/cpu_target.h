// The CPU that kernels are compiled for, as plain data: one of the x86-64 levels, found at run time by CPUID.
// Invariant: everything a kernel's code depends on beyond its own text is in here, so `key()` belongs to every kernel
// key.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace sheaf::codegen {

struct CpuTarget {
  std::string cpu;           // LLVM's name of the level: "x86-64" ... "x86-64-v4"
  std::string features;      // beyond the level, sorted: "+avx512bf16,..."; empty for a bare level
  int vector_bytes = 16;     // of one vector register
  int vector_registers = 16;
  bool has_fma = false;

  /// Instructions that multiply and add several narrow terms in each lane. That of bf16 is used where it gives the bits of
  /// one fused multiply-add after the other, upper half first, but for subnormal numbers, which it takes to be zero.
  bool has_bf16_dot() const { return features.find("+avx512bf16") != std::string::npos; }
  bool has_int8_dot() const { return features.find("+avx512vnni") != std::string::npos; }
  /// Lanes of one register for elements of `bytes` bytes.
  int lanes(int bytes) const { return vector_bytes / bytes; }
  std::string key() const { return cpu + features; }
  bool operator==(const CpuTarget&) const = default;
};

/// The level named `isa` ("x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4"), on whatever machine this is.
absl::StatusOr<CpuTarget> cpu_target(std::string_view isa);

/// The highest level this machine and its kernel can run, with the dot products it has beyond; or the bare level that
/// SHEAF_CPU_ISA names where that is no higher (a test of AVX2 code on an AVX-512 machine). Read once.
const CpuTarget& host_cpu_target();

}  // namespace sheaf::codegen
