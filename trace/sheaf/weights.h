// The policy of fully sharded training: weights are gathered where they are used, and activations stay where they are.
//   #include <sheaf/weights.h>
//   w = gather_weights(w, mesh);  y = dot(x, w);
#pragma once

#include "sheaf/sharding.h"

namespace sheaf {
namespace detail {

std::vector<Array> marked_as_weights(std::span<const Array* const> leaves, const Mesh& mesh, Loc loc);

}  // namespace detail

/// The tree, whose leaves are weights: where one meets values that are split over its axes in another way, the compiler
/// gathers the weight and leaves those where they are, forward and backward, and it scatters the weight's gradient;
/// without this it moves whatever is least. Values stay what they are; outside traced functions it is the tree itself.
template <class T>
T gather_weights(const T& tree, const Mesh& mesh, Loc loc = Loc::current()) {
  detail::Flat flat;
  detail::walk(tree, flat);
  return tree_with_leaves(tree, detail::marked_as_weights(flat.leaves.span(), mesh, loc));
}

}  // namespace sheaf
