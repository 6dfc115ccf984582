// Collectives as GPUs do them among themselves: what each gives to another, or gets, lies in one piece, and what is
// combined is of a dtype and a kind that NCCL combines as Sheaf does. The rest stands for equations around one of
// these.
#pragma once

#include "ir/builder.h"
#include "ir/op.h"

namespace sheaf::ir::ops {

/// Moves dim `from` to place `to`.
Value move_dim(Value x, std::int64_t from, std::int64_t to);
/// Dim `at` as n blocks: [n, size / n] in its place.
Value split_dim(Value x, std::int64_t at, std::int64_t n);
/// Dims `at` and `at` + 1 as one.
Value merge_dims(Value x, std::int64_t at);

// Of each op: whether a target's runtime does it as it is (OpDef::has_kernel), and the equations it stands for where
// not (OpDef::expand).
bool has_all_reduce(const Eqn& e, const Target& target);
bool has_reduce_scatter(const Eqn& e, const Target& target);
bool has_all_gather(const Eqn& e, const Target& target);
bool has_all_to_all(const Eqn& e, const Target& target);
Values expand_all_reduce(Builder& b, const Eqn& e, const Values& operands);
Values expand_reduce_scatter(Builder& b, const Eqn& e, const Values& operands);
Values expand_all_gather(Builder& b, const Eqn& e, const Values& operands);
Values expand_all_to_all(Builder& b, const Eqn& e, const Values& operands);

}  // namespace sheaf::ir::ops
