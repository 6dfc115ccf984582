// Equations to nodes, one node per result.
#include "codegen/kir/group.h"

#include "ir/check.h"
#include "ir/op.h"

namespace sheaf::kir {
namespace {

ir::Lowering lowering_of(const ir::Eqn& e) {
  if (e.op != &ir::ops::constant) return e.op->lower(e);
  SHEAF_CHECK(e.out().rank() == 0, "dense constants are inputs of a kernel");
  ir::ScalarBuilder b;
  return ir::lowering::Map{b.finish(b.constant_bits(e.out().dtype(), ir::literal_of(e).bits(0)))};
}

}  // namespace

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
    const ir::Lowering lowering = lowering_of(*e);
    for (int k = 0; k < e->num_out(); ++k) {
      node[e->out(k)] = static_cast<int>(g.nodes.size());
      g.nodes.push_back({lowering, operands, e->out(k).type(), k, first});
    }
  }
  for (ir::Value r : body.results()) g.results.push_back(node[r]);
  return g;
}

}  // namespace sheaf::kir
