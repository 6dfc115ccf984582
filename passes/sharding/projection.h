// One rule of propagation: axes of tensors become axes of the factors they share, spread from tensor to tensor along
// each factor, and become axes of dims again. Invariant: axes are only ever added behind those a dim already has.
#pragma once

#include <algorithm>
#include <vector>

#include "ir/factors.h"
#include "ir/sharding.h"

namespace sheaf::passes {

/// Where a dim lies: on these atoms, and on more behind them if it is open.
struct PlacedDim {
  ir::Atoms atoms = {};
  bool open = true;
};

struct Placement {
  std::vector<PlacedDim> dims;
  ir::Atoms taken = {};  // atoms that no dim may have: partial sums over them, or they belong to a shard_map around
};

inline bool is_prefix(const ir::Atoms& a, const ir::Atoms& b) {
  return a.size() <= b.size() && std::equal(a.begin(), a.end(), b.begin());
}

enum class Direction : std::uint8_t { none, forward, backward, both };  // forward: from operands to results

/// A factor of one tensor: the atoms on it. `overflow` are those behind it that no factor can have.
struct FactorAtoms {
  int factor = 0;
  ir::Atoms atoms = {}, overflow = {};
  bool closed = false;
};

/// A tensor's placement by factors, in the order of its dims.
struct Projected {
  std::vector<FactorAtoms> factors;
  const ir::Atoms* taken = nullptr;
  double elements = 1;  // of its factors
  bool changed = false;

  const FactorAtoms* find(int factor) const;
};

Projected project(const Placement& placement, const ir::TensorFactors& dims, const std::vector<ir::Factor>& factors,
                  const ir::MeshAtoms& atoms);
/// The atoms per dim: those of its factors up to the first that is not split all the way, beyond which a part of the
/// dim would not be one piece.
std::vector<ir::Atoms> unproject(const Projected& tensor, const ir::TensorFactors& dims,
                                 const std::vector<ir::Factor>& factors, const ir::MeshAtoms& atoms);

/// basic: what tensors disagree on goes nowhere. aggressive: each tensor takes what fits it, first from the largest.
enum class Strategy : std::uint8_t { basic, aggressive };

/// Tensors of one equation or edge: the first `operands` are its operands.
struct Meeting {
  const std::vector<ir::Factor>& factors;
  const std::vector<Direction>& directions;  // per factor
  std::vector<Projected>& tensors;
  int operands = 0;
  bool is_pointwise = false;  // all tensors have all factors
};

/// Per factor, the tensor whose atoms were spread along it; -1: none.
std::vector<int> spread(const Meeting& meeting, Strategy strategy, const ir::MeshAtoms& atoms);

}  // namespace sheaf::passes
