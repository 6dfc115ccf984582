// Functions of the host that programs call by number. A program holds slot numbers, never pointers, so its text, its
// keys and its dumps do not depend on the process; a slot lives as long as the process.
#pragma once

#include <absl/status/status.h>

#include <functional>
#include <span>

#include "ir/literal.h"

namespace sheaf::ir {

/// Gets the operands, fills the results (sized and zeroed); what it throws or returns ends the program's run.
using Callback = std::function<absl::Status(std::span<const Literal> in, std::span<Literal> out)>;

/// The number of a new slot.
int add_callback(Callback callback);
/// The number of a new slot that has no results and only looks whether its operands make sense: what runs more than was
/// written, as all branches under vmap, leaves it out.
int add_watcher(Callback watcher);
bool is_watcher(int slot);
/// Runs slot `slot`: once for each of `lanes` examples, whose operands and results lie along the first dims.
absl::Status run_callback(int slot, std::int64_t lanes, std::span<const Literal> in, std::span<Literal> out);

}  // namespace sheaf::ir
