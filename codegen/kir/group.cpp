// Equations to nodes, one node per result.
#include "codegen/kir/group.h"

#include "ir/op.h"

namespace sheaf::kir {

Group group_of(const ir::Function& body) {
  Group g;
  ir::ValueTable<int> node(body, -1);
  for (ir::Value p : body.params()) {
    node[p] = static_cast<int>(g.nodes.size());
    g.nodes.push_back({.lowering = std::nullopt, .operands = {}, .type = p.type(), .result = 0, .first = node[p]});
  }
  g.num_inputs = static_cast<int>(g.nodes.size());
  for (const ir::Eqn* e : body.eqns()) {
    std::vector<int> operands;
    for (ir::Value v : e->operands) operands.push_back(node[v]);
    const int first = static_cast<int>(g.nodes.size());
    const ir::Lowering lowering = e->op->lower(*e);
    for (int k = 0; k < e->num_out(); ++k) {
      node[e->out(k)] = static_cast<int>(g.nodes.size());
      g.nodes.push_back({lowering, operands, e->out(k).type(), k, first});
    }
  }
  for (ir::Value r : body.results()) g.results.push_back(node[r]);
  return g;
}

}  // namespace sheaf::kir
