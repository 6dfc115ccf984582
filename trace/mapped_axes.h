// Which axis of each leaf a function is mapped over, as the user says per argument and per result: what vmap and pmap
// share. Every disagreement between axes and shapes is told in the name of `who`.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "sheaf/vmap.h"
#include "trace/trace_call.h"

namespace sheaf {

using ResultCounts = std::vector<std::size_t> (*)(const detail::Structure&);

/// Of each leaf, -1 for none. `in` has an axis per argument; empty: all 0.
std::vector<int> leaf_axes(const std::string& who, const detail::FlatCall& call, const std::vector<Axis>& in,
                           std::span<const LeafType> types, Loc loc);
/// The size all mapped axes have, or `given`.
std::int64_t mapped_size(const std::string& who, const detail::FlatCall& call, std::optional<std::int64_t> given,
                         std::span<const LeafType> types, std::span<const int> axes, Loc loc);
/// The leaves of one example.
std::vector<LeafType> without_axes(std::vector<LeafType> types, std::span<const int> axes);
/// Of each result leaf, -1 for none. `out` has an axis per element of a tuple, or one; empty: 0.
std::vector<int> result_axes(const std::string& who, const std::vector<Axis>& out, const Traced& t,
                             const std::vector<std::size_t>& counts, Loc loc);

}  // namespace sheaf
