// The index structure of an op, as factors: which dims of which operands and results are the same index, which are
// reduced, which must stay whole. One rule per op drives shape inference, default batching, sharding propagation and
// partitioning (docs/design-notes.md); batching is checked against the rule itself.
#pragma once

#include <absl/status/statusor.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "ir/type.h"

namespace sheaf::ir {

// P: a pass-through index. R: reduced. M: may be split, with movement (halo, permute). N: must stay whole.
enum class FactorClass : std::uint8_t { P, R, M, N };
enum class Combine : std::uint8_t { none, sum, prod, max, min, and_, or_, custom };  // meaningful for R

struct Factor {
  std::int64_t size = 1;
  FactorClass cls = FactorClass::P;
  Combine combine = Combine::none;
  bool absolute = false;  // values depend on the global position along it: needs OpDef::localize when split
  bool operator==(const Factor&) const = default;
};

using FactorList = std::vector<int>;              // of one dim, major to minor
using TensorFactors = std::vector<FactorList>;    // per dim

struct Factors {
  std::vector<Factor> factors;
  std::vector<TensorFactors> in, out;
  std::uint32_t additive = 0;  // operands that enter the result additively without carrying an R factor
  // Factors of class M, an operand's and a result's, that are one stretch of space: split alike, and what lies beyond a
  // device's part comes from its neighbours.
  std::vector<std::pair<int, int>> neighbours = {};

  int add(std::int64_t size, FactorClass cls = FactorClass::P, Combine combine = Combine::none, bool absolute = false) {
    factors.push_back({size, cls, combine, absolute});
    return static_cast<int>(factors.size()) - 1;
  }
  Shape dims(const TensorFactors& tensor) const;

  /// All operands and `results` results share every index. Operands of rank 0 beside larger ones carry none.
  /// Error when two operands of full rank differ.
  static absl::StatusOr<Factors> pointwise(const std::vector<Type>& operands, int results = 1);

  /// Equal up to renumbering by first appearance over in, then out.
  bool same_structure(const Factors& other) const;
  /// One fresh P factor of `size` inserted at in_pos[k] of operand k and out_pos[j] of result j; -1: not carried.
  Factors with_fresh(std::int64_t size, const std::vector<int>& in_pos, const std::vector<int>& out_pos) const;
};

/// "(i j, j k) -> (i k)  j:R-sum": for tests and messages.
std::string to_string(const Factors& f);

}  // namespace sheaf::ir
