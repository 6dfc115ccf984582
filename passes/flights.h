// Which steps of a plan run while a collective is under way: it starts where it stands and is waited for where its
// result is read. Invariant: memory plan, code generation and the report go by the same answer.
#pragma once

#include <optional>
#include <vector>

#include "ir/graph.h"
#include "ir/lowering.h"

namespace sheaf::passes {

/// What the devices meet for at this step of a plan, if they do.
std::optional<ir::lowering::Collective> collective_of(const ir::Eqn& e);

/// How many collectives of one kind are under way at most over one set of axes: gathered values and sums take memory,
/// while those that are passed on take none that the program does not.
constexpr int most_under_way(ir::lowering::Collective::Kind kind) {
  return kind == ir::lowering::Collective::Kind::ppermute ? 4 : 1;
}

/// Of a collective, by the numbers of equations.
struct Flight {
  int done = -1;  // before this one: the first that reads the result, or that would be one too many; or the end
  int lane = 0;   // those that are under way at once over one set of axes have different ones
};
/// Per equation of a plan or of a region in it; of what is no collective, the default.
std::vector<Flight> flights(const ir::Function& f);

}  // namespace sheaf::passes
