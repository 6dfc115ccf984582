// The call is one branch of a cond on the device's number. Its results reach the others as a sum of bits, to which the
// others give zeros, so that every value arrives as it is, -0 and NaN too.
#include "passes/sharding/host_calls.h"

#include "ir/ops/attrs.h"
#include "ir/ops/rules.h"

namespace sheaf::passes {

using namespace ir;

namespace {

/// The unsigned integer of a float's size; any other dtype itself.
DType bits_of(DType t) {
  if (!is_float(t)) return t;
  switch (size_bytes(t)) {
    case 1: return DType::u8;
    case 2: return DType::u16;
    case 4: return DType::u32;
    default: return DType::u64;
  }
}

Value as(Value x, DType t) { return x.dtype() == t ? x : x.builder().emit(ops::bitcast, {x}, ops::Bitcast{.to = t}); }

FunctionRef calling(const Eqn& e) {
  Builder b("first");
  b.set_loc(e.loc, e.how);
  Values params;
  for (const Value v : e.operands) params.push_back(b.param(without_sharding(v.type()).with_manual({})));
  Values results;
  for (const Value v : b.clone(e, std::move(params)))
    if (v.dtype() != DType::token) results.push_back(as(v, bits_of(v.dtype())));
  if (results.empty()) results.push_back(b.constant(DType::i32, 0));  // so that the cond has a result
  return b.finish(std::move(results));
}

FunctionRef waiting(const Eqn& e, const std::vector<Type>& results) {
  Builder b("others");
  for (const Value v : e.operands) b.param(without_sharding(v.type()).with_manual({}));
  Values zeros;
  for (const Type t : results) zeros.push_back(b.zeros(t));
  return b.finish(std::move(zeros));
}

}  // namespace

Values emit_callback(Builder& b, const Eqn& e, const MeshAtoms& mesh, const Axes& apart, Values operands) {
  if (e.effects == Effects::none || mesh.count() == 0) return b.clone(e, std::move(operands));
  Axes all;
  for (const MeshAxis& axis : mesh.mesh().axes()) all.push_back(axis.name);
  all = without(all, joined(e.out().type().varying(), apart));  // along those the user's devices call for themselves
  if (all.empty()) return b.clone(e, std::move(operands));
  operands.insert(operands.begin(), b.emit(ops::axis_index, {}, ops::AxisIndex{.axes = all}));
  const FunctionRef first = calling(e);
  Values results = b.emit_all(&ops::cond, std::move(operands), nullptr, {first, waiting(e, first->result_types())});
  if (e.out().dtype() == DType::token) return {Value()};
  for (int j = 0; j < e.num_out(); ++j) {
    const ReduceKind kind = results[j].dtype() == DType::bool_ ? ReduceKind::or_ : ReduceKind::sum;
    results[j] = as(b.emit(ops::all_reduce, {results[j]}, ops::AllReduce{.axes = all, .kind = kind}), e.out(j).dtype());
  }
  return results;
}

}  // namespace sheaf::passes
