// What grouping knows of a group while it grows, and of how an equation takes part in one.
#pragma once

#include <absl/container/flat_hash_set.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ir/op.h"

namespace sheaf::passes {

/// free: constants and pure index maps. map: elementwise. indexed: reads operands at other positions than its own.
/// hero: a kernel of its own. host: no kernel, but a step of its own that gives all its results.
enum class Kind { free, map, indexed, reduce, hero, host };
Kind kind_of(const ir::Lowering& l);

/// full: an element for each of the group's space; row: for each of its kept dims; inner: never stored.
enum class Role { none, full, row, inner };

struct OpenGroup {
  Shape full;                         // the iteration space
  std::vector<std::int64_t> reduced;  // dims of it, once there is a reduction
  bool has_reduce = false;            // other than of a product's columns, which nothing of its rows waits for
  bool is_closed = false;             // heroes take no company
  bool is_contraction = false;        // but this one: what follows elementwise is done to its sums as they leave
  const ir::Eqn* first = nullptr;     // that the group was made for
  std::int64_t ways = 1;              // in which what was first in it is read by what is last
  bool is_expensive = false;          // holds more than a few operations an element: not to be recomputed
  std::vector<const ir::Eqn*> members;
  absl::flat_hash_set<int> sources, readers;  // groups whose values it reads, and that read its values

  Shape row() const;
  /// The reduced dims are the last ones and a row fits in cache.
  bool has_rows() const;
  std::ptrdiff_t count_reductions() const;
  /// The same space, of nobody yet.
  OpenGroup space() const;
};

Shape without_ones(const Shape& dims);
/// In ascending order.
std::vector<std::int64_t> reduced_by(const ir::Eqn& reduce);
/// Pads with zeros, at the ends alone.
bool surrounds_with_zeros(const ir::Eqn& pad);
/// How many operations an element takes, of which a division, a root or a remainder counts as `slow`.
int operations_of(const ir::ScalarFn& fn, int slow);

}  // namespace sheaf::passes
