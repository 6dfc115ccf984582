// Programs with shard_maps, built and run by the reference: parts cut out of the whole arrays, the body on all devices
// in lockstep, the parts put together. What the transforms make of such programs runs alike.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "ir/builder.h"
#include "ir/eval.h"
#include "ir/eval_spmd.h"
#include "ir/op.h"
#include "ir/ops/attrs.h"
#include "ir/ops/rules.h"
#include "ir/sharding.h"
#include "passes/transforms.h"
#include "tests/passes/parts.h"

namespace sheaf::tests {

struct MapProgram {
  std::string mesh = "x=4";
  std::vector<ir::Type> types = {};  // of the whole operands
  std::vector<std::string> in = {}, out = {};
  std::function<ir::Values(ir::Builder&, const ir::Values&)> body = {};
};

inline ir::Sharding sharding_of_spec(const std::string& text, int rank, const ir::MeshAtoms& atoms) {
  ir::Spec spec = *ir::parse_spec(text);
  spec.resize(rank);
  ir::Sharding s = ir::Sharding::replicated(rank);
  for (int d = 0; d < rank; ++d) s.dims[d] = atoms.of(spec[d].axes);
  return s;
}

/// The equation in b.
inline ir::Values emit_map(ir::Builder& b, const MapProgram& p, const ir::Values& operands) {
  const ir::MeshAtoms atoms(*ir::Mesh::parse(p.mesh));
  ir::Builder inner("body");
  ir::Values params;
  for (std::size_t k = 0; k < p.types.size(); ++k) {
    ir::Axes named;
    const ir::Spec spec = *ir::parse_spec(p.in[k]);
    for (const ir::DimSpec& dim : spec) named = ir::joined(named, dim.axes);
    const ir::Sharding s = sharding_of_spec(p.in[k], p.types[k].rank(), atoms);
    params.push_back(inner.param(ir::local_type(p.types[k], atoms, s).with_varying(named)));
  }
  const ir::Values results = p.body(inner, params);
  ir::ops::ShardMap attrs{.mesh = p.mesh, .in = p.in, .out = p.out};
  for (const ir::MeshAxis& axis : atoms.mesh().axes()) attrs.manual.push_back(axis.name);
  return b.emit_all(&ir::ops::shard_map, operands, std::make_shared<const ir::ops::ShardMap>(attrs),
                    {inner.finish(results)});
}

inline ir::Literals run_map(const ir::Eqn& e, const ir::Literals& operands) {
  const auto& a = e.attrs<ir::ops::ShardMap>();
  const ir::Mesh mesh = *ir::Mesh::parse(a.mesh);
  const ir::MeshAtoms atoms(mesh);
  std::vector<ir::Sharding> in, out;
  std::vector<ir::Type> results;
  for (int k = 0; k < e.num_in(); ++k) in.push_back(sharding_of_spec(a.in[k], e.in(k).rank(), atoms));
  for (int j = 0; j < e.num_out(); ++j) {
    out.push_back(sharding_of_spec(a.out[j], e.out(j).rank(), atoms));
    results.push_back(e.out(j).type());
  }
  const std::vector<ir::Literals> inputs = parts_of(operands, in, atoms);
  return whole_of(ir::eval_spmd(passes::inline_calls(e.regions[0])->on_mesh(mesh), inputs), results, out, atoms);
}

inline ir::Literals run_maps(const ir::Function& f, const ir::Literals& inputs) {
  ir::ValueTable<ir::Literal> values(f, ir::Literal(ir::Type(DType::f32, {})));
  for (std::size_t i = 0; i < inputs.size(); ++i) values[f.params()[i]] = inputs[i];
  for (const ir::Eqn* e : f.eqns()) {
    ir::Literals operands, outs;
    for (const ir::Value v : e->operands) operands.push_back(values[v]);
    if (e->op == &ir::ops::shard_map) {
      outs = run_map(*e, operands);
    } else if (e->op == &ir::ops::call) {
      outs = run_maps(*e->regions[0], operands);
    } else {
      ir::Builder one("one");
      ir::Values args;
      for (const ir::Value v : e->operands) args.push_back(one.param(v.type()));
      outs = ir::eval(*one.finish(one.clone(*e, args)), operands);
    }
    for (int j = 0; j < e->num_out(); ++j) values[e->out(j)] = outs[j];
  }
  ir::Literals results;
  for (const ir::Value r : f.results()) results.push_back(values[r]);
  return results;
}

/// How often the op occurs, in regions too.
inline int count_op(const ir::Function& f, const ir::OpDef& op) {
  int n = 0;
  for (const ir::Eqn* e : f.eqns()) {
    n += e->op == &op;
    for (const ir::FunctionRef& r : e->regions) n += count_op(*r, op);
  }
  return n;
}

}  // namespace sheaf::tests
