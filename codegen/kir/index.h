// Index algebra: integers that are sums of coefficient x atom, where an atom is a loop axis, a loaded i64 value, or a
// floor-division or remainder by a constant. Invariant: nodes are interned in canonical form with a proven range, so
// equal maps are the same node, and strides, masks and index widths are read off instead of guessed.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"

namespace sheaf::kir {

using AxisId = int;
using ValueId = int;  // an SSA value of a phase

/// A handle into the IndexPool that made it.
struct Index {
  int node = -1;
  auto operator<=>(const Index&) const = default;
};

struct Range {
  std::int64_t lo = 0, hi = 0;  // inclusive
  bool operator==(const Range&) const = default;
};

struct Atom {
  enum class Kind : std::uint8_t { axis, value, floor_div, mod };
  Kind kind = Kind::axis;
  int id = -1;               // axis: AxisId; value: ValueId of dtype i64
  Index operand;             // floor_div, mod
  std::int64_t divisor = 1;  // floor_div, mod: > 0
  bool operator==(const Atom&) const = default;
};

struct Term {
  std::int64_t coefficient = 0;  // never zero
  int atom = -1;                 // IndexPool::atom
  bool operator==(const Term&) const = default;
};

class IndexPool {
 public:
  Index constant(std::int64_t value);
  /// A loop axis, 0 <= axis < extent. An axis keeps the extent of its first use.
  Index axis(AxisId axis, std::int64_t extent);
  /// A loaded or computed i64 known to lie in `range`.
  Index value(ValueId value, Range range);
  Index add(Index a, Index b);
  Index scale(Index a, std::int64_t factor);
  Index sub(Index a, Index b) { return add(a, scale(b, -1)); }
  Index add(Index a, std::int64_t b) { return add(a, constant(b)); }
  Index floor_div(Index a, std::int64_t divisor);  // rounds toward -inf; divisor > 0
  Index mod(Index a, std::int64_t divisor);        // in [0, divisor)

  /// In an order that depends on what the terms say, never on when they were made: by the outermost axis they mention,
  /// values last; then by kind.
  std::span<const Term> terms(Index a) const { return sums_[a.node].terms; }
  std::int64_t offset(Index a) const { return sums_[a.node].offset; }
  Range range(Index a) const { return sums_[a.node].range; }
  const Atom& atom(int id) const { return atoms_[id]; }
  Range atom_range(int id) const { return atom_ranges_[id]; }
  bool is_constant(Index a) const { return terms(a).empty(); }

  bool depends_on(Index a, AxisId axis) const;
  bool depends_on_value(Index a) const;
  /// The step of `a` per step of `axis`: 0 if independent, nullopt if the axis sits under a division or remainder.
  std::optional<std::int64_t> stride(Index a, AxisId axis) const;
  /// `a` with every axis and value replaced by `leaf(atom)`; a leaf that returns nullopt stays.
  Index substitute(Index a, const std::function<std::optional<Index>(const Atom&)>& leaf);
  /// `a` of another pool, its values renamed.
  Index copy(const IndexPool& from, Index a, const std::function<ValueId(ValueId)>& renamed);
  /// The value of `a` when each axis and value atom has the value `leaf(atom)`.
  std::int64_t evaluate(Index a, const std::function<std::int64_t(const Atom&)>& leaf) const;

 private:
  struct Sum {
    std::vector<Term> terms;
    std::int64_t offset = 0;
    Range range;
  };
  Index intern(std::vector<Term> terms, std::int64_t offset);
  Index leaf(Atom atom, Range range);
  Index normalise(std::vector<Term> terms, std::int64_t offset);
  AxisId outermost_axis(Index a) const;
  void merge(std::vector<Term>& terms) const;
  std::strong_ordering order(int atom, int other) const;
  std::strong_ordering order(const Term& a, const Term& b) const;
  Index divide_exactly(Index a, std::int64_t g);
  std::optional<std::pair<Index, Index>> split_without_carry(Index a, std::int64_t divisor);
  Range range_of(const std::vector<Term>& terms, std::int64_t offset) const;

  std::vector<Atom> atoms_;
  std::vector<Range> atom_ranges_;
  std::vector<AxisId> outermost_axes_;  // by atom; INT_MAX where it mentions none
  std::vector<Sum> sums_;
  absl::flat_hash_map<std::uint64_t, std::vector<int>> atom_ids_, sum_ids_;  // by hash
};

}  // namespace sheaf::kir
