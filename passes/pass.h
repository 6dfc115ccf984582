// Passes by name: what `sheaf opt --pass=NAME` and the golden tests run. Invariant: a pass is only run on what it
// takes.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "ir/graph.h"
#include "ir/target.h"

namespace sheaf::passes {

/// What a pass takes: programs without kernels, of those only what is linear in its differentiable parameters or has
/// one float scalar as its result, or programs of kernels, scheduled or not.
enum class Takes : std::uint8_t { equations, linear_equations, scalar_equations, kernels, scheduled_kernels };

/// A function of a program, or of a program and what it is compiled for.
struct Run {
  using ForAll = ir::FunctionRef (*)(const ir::FunctionRef&);
  using ForTarget = ir::FunctionRef (*)(const ir::FunctionRef&, const ir::Target&);
  constexpr Run(ForAll f) : for_all(f) {}
  constexpr Run(ForTarget f) : for_target(f) {}
  ir::FunctionRef operator()(const ir::FunctionRef& f, const ir::Target& target) const {
    return for_target ? for_target(f, target) : for_all(f);
  }

  ForAll for_all = nullptr;
  ForTarget for_target = nullptr;
};

struct Pass {
  std::string_view name;
  std::string_view doc;  // one line: what it does, or why it stands where it does
  Run run;
  Takes takes = Takes::equations;
  bool makes_local = false;  // what enters it says where parameters and results lie on the mesh
  bool makes_kernels = false;  // what enters it is the program as optimised
};

/// The stages of the pipeline that are Function -> Function, in order.
std::span<const Pass> pipeline_passes();
/// The program transforms, each applied to every parameter it can be applied to.
std::span<const Pass> transform_passes();
/// Among both; null for anything else.
const Pass* find_pass(std::string_view name);
/// Why the pass does not take f; empty if it does.
std::string why_not(const Pass& pass, const ir::FunctionRef& f);

}  // namespace sheaf::passes
