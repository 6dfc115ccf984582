// From a traced Function to a Plan. The table of contents is passes/pipeline.cpp.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ir/sharding.h"
#include "ir/target.h"
#include "passes/plan.h"

namespace sheaf::passes {

struct PipelineOptions {
  ir::Target target = {};
  std::vector<bool> donated = {};  // per parameter: its buffer may be overwritten
  /// Of a function on a mesh, per result: where it is wanted. What is none, or beyond the list, the compiler decides.
  std::vector<std::optional<ir::Spec>> results = {};
  /// Called after every pass with its number, name and result; for dumps.
  std::function<void(int, std::string_view, const ir::FunctionRef&)> observe = {};
};

Plan run_pipeline(const ir::FunctionRef& f, const PipelineOptions& options = {});

}  // namespace sheaf::passes
