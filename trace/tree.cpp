// Trees that have to match, leaf by leaf. Their types say that they are alike; the lengths of their containers may
// still differ, and that is found before any leaf is touched.
#include "sheaf/tree.h"

#include <fmt/format.h>

#include "sheaf/ops.h"

namespace sheaf::detail {

void check_leaves(const char* who, std::size_t count, const std::string& where, std::size_t expected,
                  const std::string& as_in, Loc loc) {
  if (count == expected) return;
  throw TypeError(loc, fmt::format("{}: {} {} in {} and {} in {}", who, count, count == 1 ? "leaf" : "leaves", where,
                                   expected, as_in));
}

std::string value_text(bool v) { return v ? "true" : "false"; }
std::string value_text(double v) { return fmt::format("{}", v); }
std::string value_text(float v) { return fmt::format("{}", v); }
std::string value_text(long long v) { return fmt::format("{}", v); }
std::string value_text(unsigned long long v) { return fmt::format("{}", v); }
std::string value_text(std::string_view v) { return fmt::format("\"{}\"", v); }
std::string value_text(const void* function) { return fmt::format("the function at {}", function); }

void StaticTexts::add(const std::string& value) {
  text += fmt::format("{}{}{}{}", text.empty() ? "" : ", ", path, path.empty() ? "" : " = ", value);
}
void StaticTexts::add_size(std::size_t size) {
  text += fmt::format("{}{}{}has {}", text.empty() ? "" : ", ", path, path.empty() ? "" : " ", size);
}

bool same_leaf(const Array& a, const Array& b) {
  return a.has_value() == b.has_value() && (!a.has_value() || (a.dtype() == b.dtype() && all_equal(a, b)));
}

}  // namespace sheaf::detail
