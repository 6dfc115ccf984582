// What products that do not say their precision are taken to say: full, or what the innermost PrecisionScope of this
// thread says. It is part of every key that something traced is found by.
#pragma once

#include <optional>

#include "sheaf/ops.h"
#include "sheaf/precision_scope.h"
#include "trace/apply.h"

namespace sheaf {

Precision default_precision();

/// Of a product whose operands are `computed`: full where there is no f32 in it, nor in its derivatives.
Precision precision_of(std::optional<Precision> wanted, DType computed);

inline RuleKey key_of(const ProductOptions& o) {
  return std::move(RuleKey().add(static_cast<std::int64_t>(o.precision.value_or(default_precision()))));
}

}  // namespace sheaf
