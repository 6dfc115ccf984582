// What kernels are made for: the CPU of this machine, or a GPU by its architecture. Invariant: everything a kernel's
// code depends on beyond its own text is in here or in the compiler's version, so `key()` belongs to every kernel key.
#pragma once

#include <string>

namespace sheaf::codegen {

struct Target {
  std::string gpu = {};  // "sm_90a"; empty: the CPU of this machine

  bool is_gpu() const { return !gpu.empty(); }
  std::string key() const;
  bool operator==(const Target&) const = default;
};

/// "cpu", or the architecture.
std::string to_string(const Target& target);

}  // namespace sheaf::codegen
