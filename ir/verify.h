// The invariants every function keeps between passes. A break is a bug of ours: the text names function and equation.
#pragma once

#include <absl/status/status.h>

#include "ir/graph.h"

namespace sheaf::ir {

/// Types equal what inference says, operands precede their uses, regions are isolated. (Order is canonical by the
/// making: see Function.)
absl::Status verify(const Function& f);

}  // namespace sheaf::ir
