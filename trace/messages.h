// Wording of the errors users see: where, what, both sides, and the names the user gave them. All texts are tested.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trace/array_node.h"

namespace sheaf {

/// "f32[64, 784]", "2.5", "a weak ...".
std::string type_text(const ArrayNode& node);

/// One line per operand: "\n  lhs m.out.W: f32[512, 10]   (argument 0 of jit step, train.cpp:31)".
struct Named {
  std::string role;
  const Array* array;
};
std::string describe(std::span<const Named> operands);

/// "jit step, train.cpp:31"
std::string trace_text(const TraceInfo& info);

[[noreturn]] void throw_leaked(const ArrayNode& node, Loc use);
/// A traced value needed on the host: `wanted` is "bool", "number", ...
[[noreturn]] void throw_traced(const ArrayNode& node, Loc use, std::string_view wanted, std::string_view fix);

}  // namespace sheaf
