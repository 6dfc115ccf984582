// Dims are moved to the front before and back behind, which fusion makes part of the kernels there; values that NCCL
// would combine otherwise travel as integers in the same order, or as wider ones.
#include "ir/ops/collective_expand.h"

#include <cmath>

#include "ir/ops/attrs.h"
#include "ir/ops/rules.h"

namespace sheaf::ir::ops {
namespace {

/// Parts along `dim` are each in one piece.
bool is_outermost(const Shape& dims, std::int64_t dim) {
  std::int64_t rows = 1;
  for (std::int64_t d = 0; d < dim; ++d) rows *= dims[d];
  return rows <= 1;
}

/// It has no integers of 16 bits, and its extremes of floats know nothing of NaN.
bool combines(DType dtype, ReduceKind kind) {
  if (dtype == DType::i16 || dtype == DType::u16) return false;
  return !is_float(dtype) || kind == ReduceKind::sum || kind == ReduceKind::prod;
}

/// What x is combined as; the same dtype for what is to be in order.
DType wider(DType dtype) {
  switch (dtype) {
    case DType::i16: return DType::i32;
    case DType::u16: return DType::u32;
    case DType::f16:
    case DType::bf16: return DType::f32;
    default: return dtype;
  }
}

Value shifted(const OpDef& shift, Value x, int bits) { return x.builder().emit(shift, {x, number(x, bits)}); }

/// Bits of a float and an integer in the same order, each made of the other: of a negative one all but the sign is
/// turned around.
Value turned(Value x) {
  const Value sign = shifted(shr_arith, x, static_cast<int>(8 * size_bytes(x.dtype())) - 1);
  return x.builder().emit(xor_, {x, shifted(shr_logical, sign, 1)});
}

/// Integers in the order of floats, -0 below 0; a NaN wins.
Value in_order(Value x, ReduceKind kind) {
  const bool is_wide = x.dtype() == DType::f64;
  const Value key = turned(x.builder().emit(bitcast, {x}, Bitcast{is_wide ? DType::i64 : DType::i32}));
  constexpr std::int64_t kNan = 0x7fc00000, kWideNan = 0x7ff8000000000000;
  const double last = static_cast<double>(is_wide ? kWideNan : kNan), first = -std::ldexp(1, is_wide ? 63 : 31);
  const Value winner = number(key, kind == ReduceKind::max ? last : first);
  return where(x.builder().emit(ne, {x, x}), broadcast_to(winner, key.dims(), {}), key);
}

Value from_order(Value key, DType dtype) { return key.builder().emit(bitcast, {turned(key)}, Bitcast{dtype}); }

/// `reduce` of x by something that NCCL combines.
template <class Reduce>
Value combined(Value x, ReduceKind kind, Reduce reduce) {
  const DType dtype = x.dtype(), wide = wider(dtype);
  if (wide != dtype) return convert_to(reduce(convert_to(x, wide)), dtype);
  return from_order(reduce(in_order(x, kind)), dtype);
}

}  // namespace

Value move_dim(Value x, std::int64_t from, std::int64_t to) {
  DimList perm;
  for (int d = 0; d < x.rank(); ++d)
    if (d != from) perm.push_back(d);
  perm.insert(perm.begin() + to, from);
  return permute(x, perm);
}

Value split_dim(Value x, std::int64_t at, std::int64_t n) {
  Shape dims = x.dims();
  dims.insert(dims.begin() + at, n);
  dims[at + 1] /= n;
  return reshape_to(x, dims);
}

Value merge_dims(Value x, std::int64_t at) {
  Shape dims = x.dims();
  dims[at] *= dims[at + 1];
  dims.erase(dims.begin() + at + 1);
  return reshape_to(x, dims);
}

bool has_all_reduce(const Eqn& e, const Target& target) {
  return !target.is_gpu() || combines(e.in(0).dtype(), e.attrs<AllReduce>().kind);
}

Values expand_all_reduce(Builder& b, const Eqn& e, const Values& operands) {
  const AllReduce& a = e.attrs<AllReduce>();
  return {combined(operands[0], a.kind, [&](Value x) { return b.emit(all_reduce, {x}, a); })};
}

bool has_reduce_scatter(const Eqn& e, const Target& target) {
  const ReduceScatter& a = e.attrs<ReduceScatter>();
  return !target.is_gpu() || (combines(e.in(0).dtype(), a.kind) && is_outermost(e.in(0).dims(), a.dim));
}

Values expand_reduce_scatter(Builder& b, const Eqn& e, const Values& operands) {
  ReduceScatter a = e.attrs<ReduceScatter>();
  if (!combines(e.in(0).dtype(), a.kind))
    return {combined(operands[0], a.kind, [&](Value x) { return b.emit(reduce_scatter, {x}, a); })};
  const Value parts = a.tiled ? split_dim(operands[0], a.dim, a.size) : operands[0];
  const Value in_front = move_dim(parts, std::exchange(a.dim, 0), 0);
  a.tiled = false;
  return {b.emit(reduce_scatter, {in_front}, a)};
}

bool has_all_gather(const Eqn& e, const Target& target) {
  return !target.is_gpu() || is_outermost(e.out().dims(), e.attrs<AllGather>().dim);
}

Values expand_all_gather(Builder& b, const Eqn& e, const Values& operands) {
  AllGather a = e.attrs<AllGather>();
  const bool is_tiled = std::exchange(a.tiled, false);
  const std::int64_t dim = std::exchange(a.dim, 0);
  const Value all = move_dim(b.emit(all_gather, {operands[0]}, a), 0, dim);
  return {is_tiled ? merge_dims(all, dim) : all};
}

bool has_all_to_all(const Eqn& e, const Target& target) {
  const AllToAll& a = e.attrs<AllToAll>();
  return !target.is_gpu() || (is_outermost(e.in(0).dims(), a.split) && is_outermost(e.out().dims(), a.concat));
}

Values expand_all_to_all(Builder& b, const Eqn& e, const Values& operands) {
  AllToAll a = e.attrs<AllToAll>();
  const bool is_tiled = std::exchange(a.tiled, false);
  const std::int64_t split = std::exchange(a.split, 0), concat = std::exchange(a.concat, 0);
  const Value parts = is_tiled ? split_dim(operands[0], split, a.size) : operands[0];
  const Value all = move_dim(b.emit(all_to_all, {move_dim(parts, split, 0)}, a), 0, concat);
  return {is_tiled ? merge_dims(all, concat) : all};
}

}  // namespace sheaf::ir::ops
