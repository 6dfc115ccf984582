// What is done at a collective with the operands and results of all members of a group. Invariant: a byte is read
// before anything is written over it only in an all_reduce, whose results may therefore be its operands.
#pragma once

#include <cstdint>
#include <span>

#include "runtime/rendezvous.h"

namespace sheaf::runtime {

/// On the pool where that is quicker.
void do_collective(std::span<const Rendezvous::Part> parts);

/// Bytes that cross from one member to another, all members of a group of n together, as in the table of costs.
std::int64_t bytes_moved(const codegen::Collective& what, std::int64_t n);

}  // namespace sheaf::runtime
