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

bool same_leaf(const Array& a, const Array& b) {
  return a.has_value() == b.has_value() && (!a.has_value() || (a.dtype() == b.dtype() && all_equal(a, b)));
}

}  // namespace sheaf::detail
