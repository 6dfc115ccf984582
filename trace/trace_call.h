// Tracing one call of a user's function: the step jit, grad, vmap and the other transforms share.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "ir/graph.h"
#include "sheaf/call.h"
#include "trace/array_node.h"

namespace sheaf {

/// What a traced function is told about a leaf.
struct LeafType {
  ir::Type type;
  bool is_weak = false;
  bool operator==(const LeafType&) const = default;
};
LeafType leaf_type(const Array& x, Loc loc);
std::vector<LeafType> leaf_types(const detail::FlatCall& call);

struct Tracing {
  std::string what;                    // "jit step", for messages
  std::string name;                    // of the Function
  std::vector<std::string> args = {};  // the user's names of the arguments
  Loc loc;
  bool precise = false;                // weak floats are passed as f64
  bool is_kept = false;                // for later calls: checked for purity even inside another trace
};

struct Traced {
  ir::FunctionRef function;            // parameters: leaves, then what was captured
  std::vector<Array> captured;
  detail::Structure structure;
  std::vector<LeafType> results;
};

/// Traces the call on leaves of the given types; with SHEAF_CHECK_PURE=1 twice, throwing PurityError where the programs
/// differ. Inside another trace once is enough, because that one is run twice.
Traced trace_call(const detail::FlatCall& call, const Tracing& how, std::span<const LeafType> leaves);

/// "argument 1 (strike)", by the user's names of the arguments; "argument 1" where there is none.
std::string argument_place(std::size_t k, const std::vector<std::string>& names);
/// "argument 0 .out.W", one per leaf; `names`: the user's of the arguments.
std::vector<std::string> leaf_places(const detail::FlatCall& call, const std::vector<std::string>& names = {});

/// The leaves of the call, then what was captured.
std::vector<Array> inputs_of(const detail::FlatCall& call, const Traced& traced);

/// "mlp.cpp:30" as a name for a function: "mlp_30".
std::string name_from(Loc loc);

}  // namespace sheaf
