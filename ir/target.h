// What a program is compiled for: the CPU of this machine, or a GPU by its architecture. What a plan and its kernels
// depend on of the machine is read off this, so that any machine can compile for any target.
#pragma once

#include <string>

namespace sheaf::ir {

struct Target {
  std::string gpu = {};  // "sm_90a"; empty: the CPU of this machine

  bool is_gpu() const { return !gpu.empty(); }
  /// Major times ten plus minor: 90 of "sm_90a"; 0 of a CPU.
  int compute_capability() const;
  bool operator==(const Target&) const = default;
};

/// "cpu", or the architecture.
std::string to_string(const Target& target);

}  // namespace sheaf::ir
