// Programs as users write them, laid out on a mesh and partitioned: which collectives are left, as an exact multiset,
// and whether all devices together compute what one does. Invariant: a program is counted at a size at which tokens far
// outnumber features, and run at a small one.
#pragma once

#include <doctest/doctest.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "ir/graph.h"
#include "ir/mesh.h"
#include "passes/sharding/partition.h"
#include "sheaf/sheaf.h"
#include "trace/trace_call.h"

namespace sheaf::acceptance {

/// The program of f for arguments of these types, which it calls by these names.
template <class F, class... A>
ir::FunctionRef program(const std::vector<std::string>& names, const F& f, const A&... arguments) {
  const detail::CallOf<F, A...> call(f, Loc{}, arguments...);
  return trace_call(call, {.what = "jit step", .name = "step", .args = names, .loc = {}}, leaf_types(call)).function;
}

/// What a user says: the mesh, where arguments lie, and where results are wanted.
struct Layout {
  std::string mesh;  // "d=2, t=4"
  std::map<std::string, std::string> params;  // by name, for all leaves: "d,_"; other arguments are replicated
  std::vector<std::pair<int, std::string>> results = {};  // by position, from the end if negative; others as they come
};

ir::Mesh mesh_of(const std::string& axes);
/// With layouts in all types, the local program, and the same after what makes collectives fewer.
struct Partitioned {
  ir::FunctionRef whole, local, improved;
  std::int64_t visits = 0;  // of propagation
  passes::PartitionWork work = {};
};
Partitioned partitioned(const ir::FunctionRef& traced, const Layout& layout);

/// `count` collectives of an op over axes, with so many bytes of payload on these axes: the operand of one device, of
/// an all_gather the result. In a loop: of one of its `steps`.
struct Expected {
  std::string op, axes;
  std::int64_t bytes = 0;
  int count = 1;
  std::int64_t steps = 1;
  bool combines = false;  // it travels with all others of its op and axes that say so
  bool is_behind_loops = false;  // once, for all steps
};
/// Nobody waits for it before the end of the program, or of a step of its loop: it travels with all others like it.
Expected combining(Expected e);
Expected behind_loops(Expected e);
/// As many bytes of each op over each set of axes as expected, and those that combine as one.
void check_combined(const ir::Function& improved, const std::vector<Expected>& expected);
std::string listed(const std::vector<Expected>& all);
std::string collectives_of(const ir::Function& local);
/// Of any value that a device holds.
std::int64_t largest_value(const ir::Function& local);

/// The largest difference of a result on all devices, before or after collectives are made fewer, from that of a
/// function of the same arguments on one, relative to its largest element. All by the reference; where the process's
/// devices are GPUs, they have to agree.
double largest_difference(const Partitioned& p, const ir::Function& reference);

}  // namespace sheaf::acceptance
