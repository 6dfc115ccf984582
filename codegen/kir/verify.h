// Checks a kernel's structure: definitions before uses, dtypes, loops and lanes. What passes can be emitted by every
// target that supports its loop kinds; memory bounds depend on data and are checked by the interpreter instead.
#pragma once

#include "absl/status/status.h"
#include "codegen/kir/kir.h"

namespace sheaf::kir {

/// Ok, or an internal error naming the first broken rule and the value, local or buffer that breaks it.
absl::Status verify(const Kernel& kernel);

}  // namespace sheaf::kir
