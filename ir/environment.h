// Switches in the environment, all read alike. Invariant: a value that is neither 0 nor 1 is one warning, and no more
// than that.
#pragma once

namespace sheaf::ir {

/// Whether `variable` is 1; `otherwise` where it is not set, empty, or makes no sense.
bool is_switched_on(const char* variable, bool otherwise = false);

}  // namespace sheaf::ir
