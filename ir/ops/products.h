// What dot and conv share: both add up products of two operands, and the result may be wider than these. Invariant: it
// is of their kind, so that no product loses a part of its value on the way.
#pragma once

#include <fmt/format.h>

#include "ir/ops/rules.h"

namespace sheaf::ir::ops {

/// The dtype of the result: `preferred`, or for `token` that of the operands.
inline DType product_dtype(const Eqn& e, DType preferred) {
  return preferred == DType::token ? e.in(0).dtype() : preferred;
}

enum class ComplexProducts : bool { no, yes };

inline absl::StatusOr<std::vector<DType>> product_dtypes(const Eqn& e, DType preferred, ComplexProducts allowed) {
  const DType lhs = e.in(0).dtype(), rhs = e.in(1).dtype(), result = product_dtype(e, preferred);
  if (lhs != rhs)
    return absl::InvalidArgumentError(fmt::format("lhs ({}) and rhs ({}) must have the same dtype",
                                                  to_string(e.in(0).type()), to_string(e.in(1).type())));
  const Dtypes taken = allowed == ComplexProducts::yes ? Dtypes::numeric : Dtypes::real;
  if (!contains(taken, lhs))
    return absl::InvalidArgumentError(fmt::format("takes {}, not {}", name(taken), to_string(e.in(0).type())));
  const bool same_kind = is_float(lhs)        ? is_float(result)
                         : is_complex(lhs)    ? is_complex(result)
                         : is_signed_int(lhs) ? is_signed_int(result)
                                              : is_unsigned_int(result);
  if (!same_kind || (result != lhs && size_bytes(result) <= size_bytes(lhs)))
    return absl::InvalidArgumentError(
        fmt::format("dtype {} must be {} or a wider one of its kind", name(result), name(lhs)));
  return std::vector<DType>{result};
}

}  // namespace sheaf::ir::ops
