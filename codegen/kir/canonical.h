// The one order of a phase's values. Templates make values in the order their C++ happens to be evaluated in, and
// compilers evaluate the arguments of a call in different orders; the text of a kernel, and so its key, must not show
// it.
#pragma once

#include "codegen/kir/kir.h"

namespace sheaf::kir {

/// Puts each value before the first effect of its block that needs it, operand first; drops those nobody needs; numbers
/// values and orders index terms by the text that results. Reads of what the phase also writes stay between the same
/// effects; `is_read_only`, by parameter, says what it never writes.
void canonicalise(Phase& phase, const std::vector<bool>& is_read_only);

}  // namespace sheaf::kir
