// Contract: dimension numbers to four lists of strided dims. The sums themselves are the emitter's; what follows them
// is a map of one element.
#include "codegen/kir/contract.h"

#include <algorithm>

#include "codegen/kir/reader.h"
#include "ir/check.h"
#include "ir/literal.h"

namespace sheaf::kir {
namespace {

namespace low = ir::lowering;
using Dims = std::vector<std::int64_t>;

// The contraction that the group's result is, or is a reshape of a transpose of; and the steps in memory along its
// dims.
struct Written {
  int node = -1;
  Dims strides;
};

Written written(const Group& g) {
  Written w{g.results[0], ir::strides_of(g.dims(g.results[0]))};
  for (; g.as<low::Reshape>(w.node); w.strides = ir::strides_of(g.dims(w.node))) w.node = g.nodes[w.node].operands[0];
  while (const auto* view = g.as<low::View>(w.node)) {
    Dims of_operand;
    for (int d : view->source) of_operand.push_back(w.strides[d]);
    w = {g.nodes[w.node].operands[0], std::move(of_operand)};
  }
  return w;
}

Dims others(const Dims& a, const Dims& b, std::size_t rank) {
  Dims rest;
  for (std::int64_t d = 0; d < static_cast<std::int64_t>(rank); ++d) {
    if (std::find(a.begin(), a.end(), d) == a.end() && std::find(b.begin(), b.end(), d) == b.end()) rest.push_back(d);
  }
  return rest;
}

Contract contract_of(const Group& g, int node, const StridedOperand& lhs, const StridedOperand& rhs,
                     const Dims& out_strides) {
  const auto& c = *g.as<low::Contract>(node);
  const int lhs_node = g.nodes[node].operands[0], rhs_node = g.nodes[node].operands[1];
  const Shape &lhs_dims = g.dims(lhs_node), &rhs_dims = g.dims(rhs_node);
  Contract contract;
  std::size_t out = 0;
  const auto add = [](Contract::Dims& dims, std::int64_t extent, std::int64_t l, std::int64_t r, std::int64_t o) {
    dims.extents.push_back(extent);
    dims.lhs_strides.push_back(l);
    dims.rhs_strides.push_back(r);
    dims.out_strides.push_back(o);
  };
  for (std::size_t i = 0; i < c.lhs_batch.size(); ++i, ++out) {
    add(contract.batch, lhs_dims[c.lhs_batch[i]], lhs.strides[c.lhs_batch[i]], rhs.strides[c.rhs_batch[i]],
        out_strides[out]);
  }
  for (std::int64_t d : others(c.lhs_batch, c.lhs_contract, lhs_dims.size())) {
    add(contract.m, lhs_dims[d], lhs.strides[d], 0, out_strides[out++]);
  }
  for (std::int64_t d : others(c.rhs_batch, c.rhs_contract, rhs_dims.size())) {
    add(contract.n, rhs_dims[d], 0, rhs.strides[d], out_strides[out++]);
  }
  for (std::size_t i = 0; i < c.lhs_contract.size(); ++i) {
    add(contract.k, lhs_dims[c.lhs_contract[i]], lhs.strides[c.lhs_contract[i]], rhs.strides[c.rhs_contract[i]], 0);
  }
  contract.lhs_offset = lhs.offset;
  contract.rhs_offset = rhs.offset;
  contract.lhs = g.dtype(lhs_node);
  contract.rhs = g.dtype(rhs_node);
  contract.out = g.dtype(node);
  contract.accumulate = c.accumulate;
  if (contract.lhs == DType::f32 && contract.rhs == DType::f32 && c.accumulate == DType::f32)
    contract.precision = c.precision;
  return contract;
}

Phase epilogue(const Group& g, const Kernel& kernel, int node, const NodeBuffers& buffers,
               const std::vector<BufferId>& results) {
  const Contract& c = *kernel.contract;
  PhaseBuilder b(kernel.params, size_of(c.batch));
  IndexPool& pool = b.indices();
  const Index batch = b.unit(), row = b.axis(b.begin_for("row", size_of(c.m), LoopKind::serial));
  const Index column = b.axis(b.begin_for("column", size_of(c.n), LoopKind::vector));
  Position at;
  for (const auto& [flat, dims] : {std::pair(batch, &c.batch), {row, &c.m}, {column, &c.n}})
    for (Index digit : unflatten(pool, flat, dims->extents)) at.push_back(digit);
  Reader reader(b, g, buffers);
  reader.bind(node, at, b.load(c.result, flatten(pool, at, g.dims(node))));
  std::vector<ValueId> values;
  for (int r : g.results) values.push_back(reader.read(r, at));
  SHEAF_CHECK(reader.ok(), "what follows a contraction reads more of it than the element at hand");
  for (std::size_t j = 0; j < results.size(); ++j)
    if (results[j] != c.result) b.store(results[j], flatten(pool, at, g.dims(node)), values[j]);
  b.end();
  b.end();
  return b.finish(1000);
}

}  // namespace

std::optional<StridedOperand> strided_operand(const Group& g, int node) {
  std::vector<Param> params;
  NodeBuffers buffers(g.nodes.size(), -1);
  for (int i = 0; i < g.num_inputs; ++i) {
    buffers[i] = i;
    params.push_back({g.dtype(i), g.nodes[i].type.num_elements(), Param::Access::read});
  }
  PhaseBuilder b(params, 1);
  Position position;
  for (std::int64_t extent : g.dims(node)) {
    position.push_back(b.axis(b.begin_for("i", std::max<std::int64_t>(extent, 1), LoopKind::serial)));
  }
  // Stored, so that what is read stays; where does not matter.
  const ValueId value = Reader(b, g, buffers).read(node, position);
  if (value < 0) return std::nullopt;
  b.store(b.scratch(b.dtype(value), 1), b.indices().constant(0), value);
  for (std::size_t d = 0; d < position.size(); ++d) b.end();
  const Phase phase = b.finish(0);
  // A load that depends on fewer axes stands further out, so the nest is searched whole.
  const Load* load = nullptr;
  for (const Block* block = &phase.body; block;) {
    const Block* inner = nullptr;
    for (const Stmt& s : *block) {
      if (const auto* let = std::get_if<Let>(&s)) {
        if (load || !std::holds_alternative<Load>(let->expr)) return std::nullopt;
        load = &std::get<Load>(let->expr);
      } else if (const auto* loop = std::get_if<For>(&s)) {
        inner = &loop->body;
      }
    }
    block = inner;
  }
  if (!load || load->mask >= 0 || phase.indices.depends_on_value(load->index)) return std::nullopt;
  StridedOperand operand{load->buffer, phase.indices.offset(load->index), {}};
  for (std::size_t d = 0; d < position.size(); ++d) {
    const auto stride = phase.indices.stride(load->index, static_cast<AxisId>(d) + 1);
    if (!stride) return std::nullopt;
    operand.strides.push_back(*stride);
  }
  return operand;
}

int contraction_of(const Group& g) {
  for (int node = g.num_inputs; node < std::ssize(g.nodes); ++node)
    if (g.as<low::Contract>(node)) return node;
  return -1;
}

ContractKernel contract_kernel(const Group& g, const StridedOperand& lhs, const StridedOperand& rhs) {
  const Written w = written(g);
  const int node = contraction_of(g);
  const bool is_alone = g.results.size() == 1 && w.node == node;
  ContractKernel all{.kernel = {}, .inputs = {lhs.node, rhs.node}};
  Kernel& kernel = all.kernel;
  kernel.contract = contract_of(g, node, lhs, rhs, is_alone ? w.strides : ir::strides_of(g.dims(node)));
  const auto param = [&](int n, Param::Access access) {
    kernel.params.push_back({g.dtype(n), g.nodes[n].type.num_elements(), access});
    return static_cast<BufferId>(kernel.params.size()) - 1;
  };
  NodeBuffers buffers(g.nodes.size(), -1);
  buffers[lhs.node] = param(lhs.node, Param::Access::read);
  const BufferId rhs_buffer = param(rhs.node, Param::Access::read);
  if (buffers[rhs.node] < 0) buffers[rhs.node] = rhs_buffer;
  if (is_alone) {
    kernel.contract->result = param(node, Param::Access::write);
    return all;
  }
  for (int i = 0; i < g.num_inputs; ++i) {
    if (buffers[i] >= 0) continue;
    buffers[i] = param(i, Param::Access::read);
    all.inputs.push_back(i);
  }
  kernel.contract->result = -1;
  std::vector<BufferId> results;
  for (int r : g.results) {
    results.push_back(param(r, r == node ? Param::Access::read_write : Param::Access::write));
    if (r == node) kernel.contract->result = results.back();
  }
  if (kernel.contract->result < 0) kernel.contract->result = param(node, Param::Access::temporary);
  kernel.phases.push_back(epilogue(g, kernel, node, buffers, results));
  return all;
}

}  // namespace sheaf::kir
