// The order in which sort, argmax and argmin see elements, written once for the reference.
#pragma once

#include <cmath>

#include "ir/literal.h"

namespace sheaf::ir::ops {

/// Elements i and j of x: negative, 0 or positive. NaNs equal each other and come after everything; -0 equals +0.
inline int compare(const Literal& x, std::int64_t i, std::int64_t j) {
  const auto by_value = [](auto a, auto b) { return a < b ? -1 : b < a ? 1 : 0; };
  if (is_float(x.dtype())) {
    const double a = x.get(i), b = x.get(j);
    if (std::isnan(a) || std::isnan(b)) return by_value(std::isnan(a), std::isnan(b));
    return by_value(a, b);
  }
  if (is_signed_int(x.dtype())) return by_value(x.get_int(i), x.get_int(j));
  return by_value(x.bits(i), x.bits(j));
}

}  // namespace sheaf::ir::ops
