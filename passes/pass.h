// Passes by name: what `sheaf opt --pass=NAME` and the golden tests run.
#pragma once

#include <span>
#include <string_view>

#include "ir/graph.h"

namespace sheaf::passes {

struct Pass {
  std::string_view name;
  std::string_view doc;  // one line: what it does, or why it stands where it does
  ir::FunctionRef (*run)(const ir::FunctionRef&);
  bool makes_kernels = false;  // what enters it is the program as optimised
};

/// The stages of the pipeline that are Function -> Function, in order.
std::span<const Pass> pipeline_passes();
/// The program transforms, each applied to every parameter it can be applied to.
std::span<const Pass> transform_passes();
/// Among both; null for anything else.
const Pass* find_pass(std::string_view name);

}  // namespace sheaf::passes
