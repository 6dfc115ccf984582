// Samples: one-op programs with input ranges, written in each op's data sheet. Every table test walks them.
#pragma once

#include <absl/status/statusor.h>

#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "ir/graph.h"
#include "ir/literal.h"

namespace sheaf::ir {

/// "in (low, high)", or "in definite": symmetric positive definite matrices in the last two dims.
struct SampleRange {
  std::optional<std::pair<double, double>> range = {};
  bool is_definite = false;
};

struct Sample {
  FunctionRef function;              // the op, applied to its parameters
  std::vector<SampleRange> ranges;   // per parameter
};

/// "dot f32[2, 3] in (-1, 1), f32[3, 4] {lhs=[1], rhs=[0]}".
absl::StatusOr<Sample> parse_sample(std::string_view text);

/// Inputs in the sample's ranges (floats default to (-2, 2), integers to (-5, 5)), the same for the same seed.
Literals random_inputs(const Sample& sample, std::uint64_t seed);
Literals random_inputs(const Function& f, std::uint64_t seed);

}  // namespace sheaf::ir
