// One device's share of an equation, which partitioning asks an op for (OpDef::localize) where that is not the op on
// shares of its operands: where a value depends on its position in the whole, or needs what a neighbour holds.
// Invariant: a factor is split only where the factors major to it in every dim are split to the last.
#pragma once

#include <memory>

#include "ir/builder.h"
#include "ir/factors.h"
#include "ir/sharding.h"

namespace sheaf::ir {

/// i32, or i64 where that does not hold every position in a dim of n.
DType position_dtype(std::int64_t n);

struct Shard {
  Builder& b;
  const Eqn& whole;  // before partitioning: take types and attributes from it
  const Factors& factors;  // of `whole`
  const MeshAtoms& mesh;
  std::vector<Atoms> atoms;  // per factor: what it is split over, major to minor
  Values operands;  // what this device holds of them
  std::shared_ptr<const void> attributes;  // of the op on local shapes, for `emit`

  bool is_split(int factor) const { return !atoms[factor].empty(); }
  std::int64_t ways(int factor) const { return mesh.size(atoms[factor]); }
  std::int64_t local_size(int factor) const { return factors.factors[factor].size / ways(factor); }
  /// Its axes by name, for collectives: devices that differ in these alone hold the other parts.
  Axes axes(int factor) const { return mesh.names(atoms[factor]); }

  /// Which part of the factor is here, 0 <= . < ways: i32, rank 0.
  Value part(int factor) const;
  /// Where this device's part begins along a dim of the factors `dim` (of factors.in[k][d] or factors.out[j][d]): rank
  /// 0, of the dtype that holds every position in the dim.
  Value offset(const FactorList& dim) const;
  /// bool[]: whether this is the first of the devices that differ in parts of these factors alone.
  Value is_first(const std::vector<int>& among) const;
  std::int64_t size_of(const FactorList& dim) const;  // in the whole
  std::int64_t local_size(const FactorList& dim) const;
  Shape local_dims(const TensorFactors& tensor) const;

  /// All parts of the factor, one after another along `dim` of x: of each device's x.
  Value all_parts(Value x, int factor, std::int64_t dim) const;

  /// The op itself on the local operands, or on others.
  Values emit() const { return emit(operands); }
  Values emit(Values of) const { return b.emit_all(whole.op, std::move(of), attributes); }
};

}  // namespace sheaf::ir
