// The contraction of a fusion group as a description for the emitter's own nest. Operands may be views of buffers, as
// long as their index maps are sums of strides.
#pragma once

#include <optional>
#include <span>

#include "codegen/kir/group.h"
#include "codegen/kir/kir.h"

namespace sheaf::kir {

/// Where and how an operand of a contraction lies in memory.
struct StridedOperand {
  int node = -1;                       // an input of the group
  std::int64_t offset = 0;
  std::vector<std::int64_t> strides;   // per logical dim of the operand
  std::optional<Contract::Padding> padding = std::nullopt;
};

/// nullopt where reading `node` is more than one load at a strided address; of `stored`, if that is a node, as if it
/// were one input more.
std::optional<StridedOperand> strided_operand(const Group& group, int node, int stored = -1);

/// The same of a view of zeros around an input.
std::optional<StridedOperand> padded_operand(const Group& group, int node);

/// Element i of the padded array in the one that lies in memory; -1: it is a zero.
std::int64_t place_of(const Contract::Padding& padding, std::int64_t i);
/// How many dims are outside of the last ones, of which `extents` are whole and none is padded.
std::size_t outside_of_rows(const Contract::Padding& padding, const std::vector<std::int64_t>& extents);

/// The group's contraction; -1 where there is none.
int contraction_of(const Group& group);

/// The kernel of a group's contraction, of what makes its operands, of what follows it elementwise, and of sums of the
/// columns of that (CPU).
struct ContractKernel {
  Kernel kernel;
  std::vector<int> inputs;  // of the group, in the order of the parameters; its results are the next
};
/// Over operands that lie so; nullopt: that a prologue makes. `in_place`, by result: the input whose place it takes, or
/// -1; empty: none takes any.
ContractKernel contract_kernel(const Group& group, const std::optional<StridedOperand>& lhs,
                               const std::optional<StridedOperand>& rhs, std::span<const std::int64_t> in_place = {});

/// What makes operand 0 or 1, the left or the right one; null: it lies in memory. Axis 0 is the batch, axes 1 and 2 are
/// the operand's rows (or columns) and its terms; axis 2 is that one of them along which the temporary has neighbours.
const Phase* prologue_of(const Kernel& kernel, int operand);
/// Null: the contraction's result is the kernel's.
const Phase* epilogue_of(const Kernel& kernel);
/// What ends the totals of columns that the epilogue has added up, those of each lane (docs/numerics.md) row by row:
/// row, row + 64, row + 128, ...; null: there are none.
const Phase* columns_of(const Kernel& kernel);

/// How many positions a list of dims has.
std::int64_t size_of(const Contract::Dims& dims);
/// Without dims of extent 1, and neighbours that are one dim for every operand as one. Always leaves one dim.
Contract::Dims merged(const Contract::Dims& dims);
/// The same result with the operands exchanged: rows become columns.
Contract swapped(const Contract& contract);

}  // namespace sheaf::kir
