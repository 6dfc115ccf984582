// Contract: dimension numbers to four lists of strided dims. The sums themselves are the emitter's; what makes an
// operand that does not lie in memory, and what follows the sums, are maps of one element. Columns of what follows are
// added up as it is made.
#include "codegen/kir/contract.h"

#include <algorithm>

#include "codegen/kir/estimate.h"
#include "codegen/kir/templates/columns.h"
#include "codegen/kir/templates/template.h"
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
  contract.padding = lhs.padding;
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

// ---- operands ----

/// A nest with a loop for each dim of `node`, the first one's axis being 1, that does nothing but read it, `stored` as
/// if it were an input; nullopt where that takes more than index maps and scalar work.
std::optional<Phase> reading(const Group& g, int node, int stored = -1) {
  std::vector<Param> params;
  NodeBuffers buffers(g.nodes.size(), -1);
  for (int i = 0; i < g.num_inputs; ++i) {
    buffers[i] = i;
    params.push_back({g.dtype(i), g.nodes[i].type.num_elements(), Param::Access::read});
  }
  if (stored >= 0) {
    buffers[stored] = static_cast<BufferId>(params.size());
    params.push_back({g.dtype(stored), g.nodes[stored].type.num_elements(), Param::Access::read});
  }
  PhaseBuilder b(params, 1);
  Position position;
  for (std::int64_t extent : g.dims(node))
    position.push_back(b.axis(b.begin_for("i", std::max<std::int64_t>(extent, 1), LoopKind::serial)));
  // Stored, so that what is read stays; where does not matter.
  const ValueId value = Reader(b, g, buffers).read(node, position);
  if (value < 0) return std::nullopt;
  b.store(b.scratch(b.dtype(value), 1), b.indices().constant(0), value);
  for (std::size_t d = 0; d < position.size(); ++d) b.end();
  return b.finish(0);
}

/// A load that depends on fewer axes stands further out, so a nest is searched whole.
template <class F>
void for_each_let(const Block& block, F f) {
  for (const Stmt& s : block) {
    if (const auto* let = std::get_if<Let>(&s)) f(*let);
    if (const auto* loop = std::get_if<For>(&s)) for_each_let(loop->body, f);
  }
}

/// An operand of a contraction that is made, element by element, as if for a temporary that has it row-major: its
/// batch, then its other dims, of which those are `inner` along which what it is made of has its neighbours.
struct MadeOperand {
  int node = -1;
  Dims batch, outer, inner;
  StridedOperand layout = {};
};

/// Whether what `node` is made of has its neighbours along the dims `a` rather than along `b`.
bool runs_along(const Group& g, int node, const Dims& a, const Dims& b) {
  const std::optional<Phase> phase = reading(g, node);
  SHEAF_CHECK(phase, "a contraction's operand takes a nest of its own");
  const auto is_run = [&](Index index, const Dims& dims) {
    return !dims.empty() && phase->indices.stride(index, static_cast<AxisId>(dims.back()) + 1) == 1;
  };
  int bytes = 0;
  for_each_let(phase->body, [&](const Let& let) {
    const auto* load = std::get_if<Load>(&let.expr);
    if (!load) return;
    const int size = size_bytes(phase->values[let.value]);
    bytes += size * (is_run(load->index, a) - is_run(load->index, b));
  });
  return bytes >= 0;
}

/// How often a loop over the dims runs; once over an empty one, in which nothing is ever made.
std::int64_t count_of(const Group& g, int node, const Dims& dims) {
  std::int64_t n = 1;
  for (std::int64_t d : dims) n *= std::max<std::int64_t>(g.dims(node)[d], 1);
  return n;
}

MadeOperand made_operand(const Group& g, int contraction, int operand) {
  const auto& c = *g.as<low::Contract>(contraction);
  const int node = g.nodes[contraction].operands[static_cast<std::size_t>(operand)];
  const Dims& terms = operand == 0 ? c.lhs_contract : c.rhs_contract;
  MadeOperand made{.node = node, .batch = operand == 0 ? c.lhs_batch : c.rhs_batch, .outer = {}, .inner = terms};
  made.outer = others(made.batch, terms, g.dims(node).size());
  const bool has_outer = count_of(g, node, made.outer) > 1, has_terms = count_of(g, node, terms) > 1;
  if (has_outer && !(has_terms && runs_along(g, node, terms, made.outer))) std::swap(made.outer, made.inner);
  made.layout.strides.resize(g.dims(node).size());
  std::int64_t step = 1;
  for (const Dims* dims : {&made.inner, &made.outer, &made.batch})
    for (std::size_t i = dims->size(); i-- > 0; step *= g.dims(node)[(*dims)[i]])
      made.layout.strides[(*dims)[i]] = step;
  return made;
}

Phase prologue(const Group& g, const Kernel& kernel, BufferId to, const MadeOperand& made, const NodeBuffers& buffers) {
  PhaseBuilder b(kernel.params, count_of(g, made.node, made.batch));
  IndexPool& pool = b.indices();
  const auto loop = [&](const char* name, const Dims& dims, LoopKind kind) {
    return b.axis(b.begin_for(name, count_of(g, made.node, dims), kind));
  };
  const Index batch = b.unit(), outer = loop("outer", made.outer, LoopKind::serial);
  const Index inner = loop("inner", made.inner, LoopKind::vector);
  Position at(g.dims(made.node).size());
  Index flat = pool.constant(0);
  for (const auto& [index, dims] : {std::pair(batch, &made.batch), {outer, &made.outer}, {inner, &made.inner}}) {
    Shape extents;
    for (std::int64_t d : *dims) extents.push_back(std::max<std::int64_t>(g.dims(made.node)[d], 1));
    const Position digits = unflatten(pool, index, extents);
    for (std::size_t i = 0; i < digits.size(); ++i) at[static_cast<std::size_t>((*dims)[i])] = digits[i];
    flat = pool.add(pool.scale(flat, count_of(g, made.node, *dims)), index);
  }
  Reader reader(b, g, buffers);
  b.store(to, flat, reader.read(made.node, at));
  SHEAF_CHECK(reader.ok(), "a contraction's operand takes a nest of its own");
  b.end();
  b.end();
  Phase phase = b.finish(0);
  phase.unit_ps = estimate_unit_ps(phase);
  if (g.nodes[made.node].type.num_elements() == 0) phase.axes[0].extent = 0;
  return phase;
}

// ---- what follows ----

/// The reductions over all rows of what follows.
std::vector<int> column_sums_of(const Group& g) {
  std::vector<int> nodes;
  for (int node = g.num_inputs; node < std::ssize(g.nodes); ++node)
    if (g.as<low::Reduce>(node) && !is_inlinable(g, node)) nodes.push_back(node);
  return nodes;
}

Phase epilogue(const Group& g, const Kernel& kernel, int node, const NodeBuffers& buffers,
               const std::vector<Target>& results, const ColumnTotals* totals) {
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
  std::vector<ValueId> values, of_columns;
  for (const Target& t : results) values.push_back(reader.read(t.node, at));
  for (int n : column_sums_of(g)) of_columns.push_back(reader.read(g.nodes[n].operands[0], at));
  SHEAF_CHECK(reader.ok(), "what follows a contraction reads more of it than the element at hand");
  for (std::size_t j = 0; j < results.size(); ++j)
    if (results[j].buffer != c.result) b.store(results[j].buffer, flatten(pool, at, g.dims(node)), values[j]);
  if (totals) totals->add_row(b, row, column, of_columns);
  b.end();
  b.end();
  return b.finish(1000);
}

/// What becomes of each column's totals.
Phase ends_of_columns(const Group& g, const Kernel& kernel, const NodeBuffers& buffers, const ColumnTotals& totals,
                      const std::vector<Target>& results) {
  PhaseBuilder b(kernel.params, totals.units());
  IndexPool& pool = b.indices();
  totals.finish(b, [&](Index column, const std::vector<ValueId>& sums) {
    Reader reader(b, g, buffers);
    const std::vector<int> nodes = column_sums_of(g);
    for (std::size_t i = 0; i < nodes.size(); ++i)
      reader.bind(nodes[i], unflatten(pool, column, g.dims(nodes[i])), sums[i]);
    std::vector<ValueId> values;
    for (const Target& t : results) values.push_back(reader.read(t.node, unflatten(pool, column, g.dims(t.node))));
    SHEAF_CHECK(reader.ok(), "what follows a contraction reads more of it than the column at hand");
    for (std::size_t j = 0; j < results.size(); ++j) b.store(results[j].buffer, column, values[j]);
  });
  Phase phase = b.finish(0);
  phase.unit_ps = estimate_unit_ps(phase);
  return phase;
}

}  // namespace

std::optional<StridedOperand> padded_operand(const Group& g, int node) {
  int pad = node;
  while (g.as<low::View>(pad) || g.as<low::Windows>(pad)) pad = g.nodes[pad].operands[0];
  const auto* p = g.as<low::Pad>(pad);
  if (!p) return std::nullopt;
  const int from = g.nodes[pad].operands[0];
  Contract::Padding padding{.padded = g.dims(pad), .low = p->low, .extents = g.dims(from)};
  std::optional<StridedOperand> operand = strided_operand(g, node, pad);
  if (from >= g.num_inputs || !operand) return std::nullopt;
  operand->node = from;
  operand->padding = std::move(padding);
  return operand;
}

std::optional<StridedOperand> strided_operand(const Group& g, int node, int stored) {
  const std::optional<Phase> phase = reading(g, node, stored);
  if (!phase) return std::nullopt;
  const Load* load = nullptr;
  bool is_one_load = true;
  for_each_let(phase->body, [&](const Let& let) {
    is_one_load &= !load && std::holds_alternative<Load>(let.expr);
    load = std::get_if<Load>(&let.expr);
  });
  if (!is_one_load || !load || load->mask >= 0 || phase->indices.depends_on_value(load->index)) return std::nullopt;
  StridedOperand operand{load->buffer, phase->indices.offset(load->index), {}};
  for (std::size_t d = 0; d < g.dims(node).size(); ++d) {
    const auto stride = phase->indices.stride(load->index, static_cast<AxisId>(d) + 1);
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

ContractKernel contract_kernel(const Group& g, const std::optional<StridedOperand>& lhs,
                               const std::optional<StridedOperand>& rhs, std::span<const std::int64_t> in_place) {
  const Written w = written(g);
  const int node = contraction_of(g);
  std::optional<MadeOperand> made[2];
  if (!lhs) made[0] = made_operand(g, node, 0);
  if (!rhs) made[1] = made_operand(g, node, 1);
  const bool is_alone = g.results.size() == 1 && w.node == node;
  ContractKernel all;
  Kernel& kernel = all.kernel;
  kernel.contract = contract_of(g, node, lhs ? *lhs : made[0]->layout, rhs ? *rhs : made[1]->layout,
                                is_alone ? w.strides : ir::strides_of(g.dims(node)));
  const auto param = [&](int n, Param::Access access) {
    kernel.params.push_back({g.dtype(n), g.nodes[n].type.num_elements(), access});
    return static_cast<BufferId>(kernel.params.size()) - 1;
  };
  NodeBuffers buffers(g.nodes.size(), -1);
  // What a result takes the place of must not be read after that is written, as what is only read may be.
  const auto read = [&](int n) {
    const bool is_replaced = std::find(in_place.begin(), in_place.end(), n) != in_place.end();
    const BufferId buffer = param(n, is_replaced ? Param::Access::read_write : Param::Access::read);
    if (buffers[n] < 0) buffers[n] = buffer;
    all.inputs.push_back(n);
  };
  lhs ? read(lhs->node) : static_cast<void>(param(made[0]->node, Param::Access::temporary));
  rhs ? read(rhs->node) : static_cast<void>(param(made[1]->node, Param::Access::temporary));
  for (int i = 0; i < g.num_inputs; ++i)
    if (buffers[i] < 0) read(i);
  kernel.contract->result = -1;
  std::vector<Target> results, of_columns;
  for (int r : g.results) {
    const bool is_sum = r == node || is_alone;
    const BufferId buffer = param(r, is_sum && !is_alone ? Param::Access::read_write : Param::Access::write);
    (is_alone || g.dims(r) == g.dims(node) ? results : of_columns).push_back({r, buffer});
    if (is_sum) kernel.contract->result = buffer;
  }
  if (kernel.contract->result < 0) kernel.contract->result = param(node, Param::Access::temporary);
  std::optional<ColumnTotals> totals;
  if (!of_columns.empty()) {
    totals.emplace(g, column_sums_of(g), size_of(kernel.contract->m), size_of(kernel.contract->n),
                   [&](DType t, std::int64_t count) {
                     kernel.params.push_back({t, count, Param::Access::temporary});
                     return static_cast<BufferId>(kernel.params.size()) - 1;
                   });
  }
  for (const int k : {0, 1})
    if (made[k]) kernel.phases.push_back(prologue(g, kernel, k, *made[k], buffers));
  if (!is_alone) kernel.phases.push_back(epilogue(g, kernel, node, buffers, results, totals ? &*totals : nullptr));
  if (totals) kernel.phases.push_back(ends_of_columns(g, kernel, buffers, *totals, of_columns));
  return all;
}

}  // namespace sheaf::kir
