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

Group subgroup(const Group& g, const std::vector<int>& inputs, const std::vector<int>& results) {
  std::vector<int> moved(g.nodes.size(), -1);
  Group part;
  for (int n : inputs) {
    moved[n] = static_cast<int>(part.nodes.size());
    part.nodes.push_back({std::nullopt, {}, g.nodes[n].type, 0, moved[n]});
  }
  part.num_inputs = static_cast<int>(inputs.size());
  std::vector<bool> is_needed(g.nodes.size(), false);
  for (int r : results) is_needed[r] = true;
  for (std::size_t n = g.nodes.size(); n-- > 0;) {
    if (!is_needed[n] || moved[n] >= 0) continue;
    SHEAF_CHECK(g.nodes[n].lowering.has_value(), "a part of a group reads an input it was not given");
    for (int operand : g.nodes[n].operands) is_needed[operand] = true;
    is_needed[g.nodes[n].first] = true;  // the results of one equation stay together
  }
  for (std::size_t n = 0; n < g.nodes.size(); ++n) {
    const bool is_sibling = g.nodes[n].lowering && is_needed[g.nodes[n].first];
    if (moved[n] >= 0 || !(is_needed[n] || is_sibling)) continue;
    GroupNode node = g.nodes[n];
    for (int& operand : node.operands) operand = moved[operand];
    moved[n] = static_cast<int>(part.nodes.size());
    node.first = moved[node.first];
    part.nodes.push_back(std::move(node));
  }
  for (int r : results) part.results.push_back(moved[r]);
  return part;
}

}  // namespace sheaf::kir
