// Fewer and cheaper collectives in the program of one device: what is summed to be cut is scattered, what is gathered
// again was never cut, a loop's sum is made once behind it, and small ones travel together. Invariant: all devices come
// to the same collectives in the same order, because the result depends on the program and the profile alone.
#pragma once

#include "ir/graph.h"
#include "passes/sharding/profile.h"

namespace sheaf::passes {

/// All of the following; of a program on no mesh, the program itself.
ir::FunctionRef improve_collectives(const ir::FunctionRef& local, const ir::Target& target);

///   slice(all_reduce(x)) at the own block                 = reduce_scatter(x)
///   slice(all_gather(x)) at the own block                 = x
///   all_gather(slice(x) at the own block)                 = x, where it is the same on all
///   scan from c { carry + all_reduce(x) }                 = c + all_reduce(scan from -0 { carry + x })
ir::FunctionRef simplify_collectives(const ir::FunctionRef& local);

/// Small collectives of one op, dtype and set of axes that do not wait for each other are one (bundle.h), where that
/// saves more latency than it costs copying. Gathers are not combined with the first one.
ir::FunctionRef combine_collectives(const ir::FunctionRef& local, const Profile& profile);

}  // namespace sheaf::passes
