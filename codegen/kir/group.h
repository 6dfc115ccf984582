// A fusion group as the templates see it: the equations of one kernel's body, each reduced to its Lowering, in operand-
// first order. Nodes below `num_inputs` are the kernel's inputs; everything else reads nodes before it.
#pragma once

#include <optional>
#include <vector>

#include "ir/graph.h"
#include "ir/lowering.h"

namespace sheaf::kir {

struct GroupNode {
  std::optional<ir::Lowering> lowering;  // none: an input
  std::vector<int> operands;
  ir::Type type;
  int result = 0;  // which result of a multi-result lowering (sort)
  int first = -1;  // the node of result 0 of the same equation
};

struct Group {
  std::vector<GroupNode> nodes;
  int num_inputs = 0;
  std::vector<int> results;

  const Shape& dims(int node) const { return nodes[node].type.dims(); }
  DType dtype(int node) const { return nodes[node].type.dtype(); }
  template <class T>
  const T* as(int node) const {
    return nodes[node].lowering ? std::get_if<T>(&*nodes[node].lowering) : nullptr;
  }
};

Group group_of(const ir::Function& body);

}  // namespace sheaf::kir
