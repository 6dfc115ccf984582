// What elementwise data sheets share: their factors, their scalar DAGs, their reference loops, and the adjoint of
// reading a rank-0 operand everywhere.
#pragma once

#include "ir/ops/rules.h"

namespace sheaf::ir::ops {

inline absl::StatusOr<Factors> elementwise_factors(const Eqn& e) { return Factors::pointwise(e.in_types()); }

/// The scalar DAG of an elementwise equation: `body` gets the operands in their compute dtypes; its value is rounded to
/// the result's dtype.
template <class Body>
Lowering map_of(const Eqn& e, Body body) {
  ScalarBuilder s;
  std::vector<ScalarRef> in;
  for (int k = 0; k < e.num_in(); ++k)
    in.push_back(s.convert(s.arg(k, e.in(k).dtype()), compute_dtype(e.in(k).dtype())));
  return lowering::Map{s.finish(s.convert(body(s, in), e.out().dtype()))};
}

template <ScalarOp Op>
Lowering map_primitive(const Eqn& e) {
  return map_of(e, [](ScalarBuilder& s, const std::vector<ScalarRef>& in) {
    return s.emit(Op, in[0], in.size() > 1 ? in[1] : ScalarRef{}, in.size() > 2 ? in[2] : ScalarRef{});
  });
}

/// Exact ops: the DAG is the definition.
inline void eval_map(const Eqn& e, std::span<const Literal> in, std::span<Literal> out) {
  const ScalarFn fn = std::get<lowering::Map>(e.op->lower(e)).fn;
  std::vector<std::uint64_t> args(in.size());
  for (std::int64_t i = 0; i < out[0].size(); ++i) {
    for (std::size_t k = 0; k < in.size(); ++k) args[k] = in[k].bits(in[k].dims().empty() ? 0 : i);
    out[0].set_bits(i, sheaf::ir::eval(fn, args));
  }
}

/// v, broadcast to `type` if it is of rank 0 beside it.
inline Value broadcast_scalar(Value v, Type type) {
  return v.rank() == type.rank() ? v : broadcast_to(v, type.dims(), {});
}

/// A tangent as wide as the result of e: a lone rank-0 operand's has to be widened. Absent ones stay absent.
inline Value widened(const Eqn& e, Value tangent) {
  return tangent ? broadcast_scalar(tangent, e.out().type()) : tangent;
}

/// a + b, where either may be absent.
inline Value sum_of(Value a, Value b) { return !a ? b : !b ? a : a + b; }

/// x, or zeros of that type where it is absent.
inline Value or_zeros(Builder& b, Value x, Type type) { return x ? x : b.zeros(type); }

/// The adjoint: a cotangent summed to rank 0 if the operand was.
inline Value unbroadcast(Value ct, Type operand) {
  return operand.rank() == ct.rank() ? ct : reduce_dims(ct, ReduceKind::sum, dim_range(0, ct.rank()));
}

constexpr OpDef elementwise(OpDef d, int arity) {
  d.arity = arity;
  d.is_elementwise = true;
  d.factors = elementwise_factors;
  if (!d.eval) d.eval = eval_map;
  return d;
}
constexpr OpDef unary(OpDef d) { return elementwise(d, 1); }
constexpr OpDef binary(OpDef d) { return elementwise(d, 2); }

}  // namespace sheaf::ir::ops
