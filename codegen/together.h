// Which steps of a CPU's program are launched together. Invariant: of those that are, none reads or writes what another
// writes, so their units may run in any order, and on any threads.
#pragma once

#include <span>
#include <vector>

#include "codegen/program.h"

namespace sheaf::codegen {

/// Sets `joins_next` of steps in a row that are independent kernels of one phase. `alias`: the program's.
void join_steps(std::vector<Step>& steps, std::span<const KernelCode> kernels, std::span<const int> alias);

}  // namespace sheaf::codegen
