// The contraction of a fusion group as a description for the emitter's own nest. Operands may be views of buffers, as
// long as their index maps are sums of strides.
#pragma once

#include <optional>

#include "codegen/kir/group.h"
#include "codegen/kir/kir.h"

namespace sheaf::kir {

/// Where and how an operand of a contraction lies in memory.
struct StridedOperand {
  int node = -1;                       // an input of the group
  std::int64_t offset = 0;
  std::vector<std::int64_t> strides;   // per logical dim of the operand
};

/// nullopt where reading `node` is more than one load at a strided address.
std::optional<StridedOperand> strided_operand(const Group& group, int node);

/// The contraction that gives the group its result, perhaps permuted and then reshaped; -1 where there is none.
int contraction_of(const Group& group);

/// The kernel of the group's contraction over operands that lie so; parameters lhs, rhs, out.
Kernel contract_kernel(const Group& group, const StridedOperand& lhs, const StridedOperand& rhs);

}  // namespace sheaf::kir
