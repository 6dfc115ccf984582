// How places in a program are worded: the user's file and line in messages, and ours when an invariant breaks.
// Invariant: the text depends on nothing but the arguments, so that tests can compare whole messages.
#include <fmt/format.h>

#include <string_view>

#include "ir/check.h"
#include "sheaf/source.h"

namespace sheaf {
namespace {

std::string_view last_component(std::string_view path) { return path.substr(path.find_last_of("/\\") + 1); }

}  // namespace

std::string to_string(Loc loc) {
  if (!loc) return "<unknown>";
  return fmt::format("{}:{}", last_component(loc.file), loc.line);
}

namespace ir {

void check_failed(const char* condition, const char* file, int line, const std::string& detail) {
  throw InternalError(fmt::format("internal error: {}:{}: {} does not hold{}{}", last_component(file), line, condition,
                                  detail.empty() ? "" : ": ", detail));
}

}  // namespace ir
}  // namespace sheaf
