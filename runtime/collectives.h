// What each member of a group does at a collective, all having brought their operand and result. Invariant: no two
// members write the same bytes, and none reads a byte of an operand that another writes; an all_reduce may have its
// operand for a result, since each part of it is read by the member alone that writes it.
#pragma once

#include <cstdint>
#include <span>

#include "runtime/rendezvous.h"

namespace sheaf::runtime {

/// The share of the member at position `self`, on the pool where that is quicker.
void do_share(std::span<const Rendezvous::Part> parts, int self);

/// Bytes that cross from one member to another, all members of a group of n together, as in the table of costs.
std::int64_t bytes_moved(const codegen::Collective& what, std::int64_t n);

}  // namespace sheaf::runtime
