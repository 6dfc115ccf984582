// The IR's text: parse(print(x)) prints as x, exactly. Grammar and examples: docs/ir.md.
#pragma once

#include <absl/status/statusor.h>

#include <string>
#include <string_view>

#include "ir/graph.h"

namespace sheaf::ir {

struct PrintOptions {
  bool locs = false;   // loc(file:line, transforms) after each equation
  bool names = true;   // the users' parameter names; off for keys
};

/// The module's text. Functions named by `call` that the module does not list are appended.
std::string print(const Module& module, const PrintOptions& options = {});
std::string print(const FunctionRef& f, const PrintOptions& options = {});
/// One equation, for messages.
std::string print(const Eqn& e);

/// Errors are "line:column: what", followed by the source line and a caret.
absl::StatusOr<Module> parse(std::string_view text);
absl::StatusOr<Type> parse_type(std::string_view text);

/// The text without names and locations: equal programs have equal canonical text. Basis of all cache keys.
std::string canonical_text(const FunctionRef& f);

}  // namespace sheaf::ir
