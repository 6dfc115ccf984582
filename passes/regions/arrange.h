// Rearranging the parameters and results of transformed functions. A transform appends (primals, then tangents); a
// region op wants its roles contiguous (consts with their tangents, then carries with theirs). Equations are shared,
// not copied.
#pragma once

#include <vector>

#include "passes/emit.h"
#include "passes/regions.h"

namespace sheaf::passes {

using Order = std::vector<int>;

template <class List>
List slice(const List& v, std::size_t from, std::size_t count) {
  return {v.begin() + static_cast<std::ptrdiff_t>(from), v.begin() + static_cast<std::ptrdiff_t>(from + count)};
}

inline Mask operator|(Mask a, const Mask& b) {
  for (std::size_t i = 0; i < a.size(); ++i) a[i] = a[i] || b[i];
  return a;
}
inline Mask join(Mask a, const Mask& b, const Mask& c = {}) {
  a.insert(a.end(), b.begin(), b.end());
  a.insert(a.end(), c.begin(), c.end());
  return a;
}

/// Which values are there.
Mask present(const ir::Values& values);
/// v[order[0]], v[order[1]], ...
template <class List>
List pick(const List& v, const Order& order) {
  List out;
  for (int i : order) out.push_back(v[i]);
  return out;
}

/// A list of primals in groups of the given sizes is followed by tangents of those in `nonzero`: the order that puts
/// each group's tangents right after it.
Order beside(const std::vector<int>& groups, const Mask& nonzero);

/// Parameter i of the answer is params[i] of f, result j is results[j]; f itself where that changes nothing.
ir::FunctionRef arranged(const ir::FunctionRef& f, const Order& params, const Order& results);

/// Values of f, emitted in b with only the equations they need; args: f's parameters in b, null where not needed.
ir::Values slice_into(ir::Builder& b, const ir::Function& f, const ir::Values& wanted, const ir::Values& args);

/// f with results as `have` says, made to have those in `want` too: zeros of `types`.
ir::FunctionRef with_zeros(const ir::FunctionRef& f, const Mask& have, const Mask& want,
                           const std::vector<ir::Type>& types);

/// What dce left of `original`, with all parameters in `kept`, those it no longer reads too.
ir::FunctionRef with_params_kept(const Dce& shrunk, const Mask& kept, const ir::FunctionRef& original);

/// The value with its batch dim at `to`: moved there, or broadcast.
ir::Value place_dim(ir::Builder& b, ir::Batched x, int to, const MappedAxis& axis);

/// Remembers that partial evaluation of f with the parameters in `known` has nothing to move.
void mark_split(const ir::FunctionRef& f, const Mask& known);

/// Throws the user's error at e's line.
[[noreturn]] void refuse(const ir::Eqn& e, const std::string& why);

}  // namespace sheaf::passes
