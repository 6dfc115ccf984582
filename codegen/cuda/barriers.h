// Where a team meets. Barriers are statements of the loop nest, put in and checked before any text exists: two accesses
// to one buffer of which one is a store, by threads that need not be the same, have a barrier between them on every way
// through the nest, and every thread of the team arrives at it.
#pragma once

#include "absl/status/status.h"
#include "codegen/cuda/team.h"

namespace sheaf::codegen {

/// The phase's body with as few barriers as that takes.
kir::Block with_barriers(const kir::Phase& phase, const Team& team);

/// Ok, or an internal error that names the buffer that lacks a barrier, or says that one stands where not all arrive.
absl::Status check_barriers(const kir::Block& body, const Team& team);

}  // namespace sheaf::codegen
