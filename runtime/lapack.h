// Calls of the linear algebra library: LAPACK over the serial OpenBLAS. Invariant: one matrix is one thread's, start to
// end, so bits do not depend on the number of threads; a matrix without the factors asked for becomes NaN.
#pragma once

#include <cstddef>
#include <span>

#include "codegen/program.h"

namespace sheaf::runtime {

/// Throws std::bad_alloc.
void run_lapack(const codegen::LibraryCall& call, std::span<const std::byte* const> operands,
                std::span<std::byte* const> results);

}  // namespace sheaf::runtime
