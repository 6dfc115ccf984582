// The invariants every function keeps between passes.
#pragma once

#include <absl/status/status.h>

#include "ir/graph.h"

namespace sheaf::ir {

/// Types equal what inference says, operands precede their uses, regions are isolated, order is canonical.
absl::Status verify(const Function& f);

}  // namespace sheaf::ir
