// From a group and its plan to a kernel: the template that the plan names, and the order of phases. Nothing is chosen
// here; a plan that does not fit its group is refused.
#include <algorithm>
#include <map>

#include "codegen/kir/reduction.h"
#include "codegen/kir/templates/template.h"
#include "ir/check.h"

namespace sheaf::kir {
namespace {

namespace low = ir::lowering;
using ir::Schedule;

class GroupCompiler {
 public:
  GroupCompiler(const Group& group, const ir::ops::Kernel& plan, const Grain& grain)
      : g_(group), plan_(plan), k_(group, plan.in_place, grain), is_done_(group.results.size(), false) {}

  Kernel compile() {
    switch (plan_.schedule) {
      case Schedule::map:
      case Schedule::tile_transpose:
      case Schedule::reduce:
      case Schedule::sort:
      case Schedule::scatter:
      case Schedule::recurrence:
        for (int node = g_.num_inputs; node < std::ssize(g_.nodes); ++node) compile_hero(node);
        map_the_rest();
        break;
      case Schedule::row: row_template(k_, results()); break;
      case Schedule::update: compile_update(); break;
      case Schedule::none:
      case Schedule::host:
      case Schedule::contract:
      case Schedule::attention: SHEAF_CHECK(false, plan_.name + ": the plan names no template of loop nests");
    }
    return k_.finish(plan_.name);
  }

 private:
  std::vector<Target> results() const {
    std::vector<Target> targets;
    for (int j = 0; j < std::ssize(g_.results); ++j) targets.push_back({g_.results[j], k_.output(j)});
    return targets;
  }

  /// Where a hero's value goes: straight to the first result it is, else to a temporary.
  Target target_of(int node) {
    for (std::size_t j = 0; j < g_.results.size(); ++j) {
      if (g_.results[j] != node) continue;
      is_done_[j] = true;
      return {node, k_.output(static_cast<int>(j))};
    }
    return {node, k_.temporary(g_.dtype(node), g_.nodes[node].type.num_elements())};
  }

  bool is_in_place(BufferId buffer, int operand) const {
    return operand < g_.num_inputs && buffer >= g_.num_inputs &&
           buffer < g_.num_inputs + static_cast<int>(g_.results.size()) &&
           k_.in_place(buffer - g_.num_inputs) == operand;
  }

  void require(Schedule schedule) const {
    SHEAF_CHECK(plan_.schedule == schedule, plan_.name + ": the group holds a nest that its schedule has no place for");
  }

  bool is_reduction(int node) const { return g_.as<low::Reduce>(node) || g_.as<low::ArgReduce>(node); }
  bool is_made(int node) const { return k_.buffers[node] >= 0 || is_inlinable(g_, node); }

  /// The reduction `node`, and those of other values of its dims over the same dims, which need not wait for it.
  std::vector<int> reduced_with(int node) const {
    const auto dims = [&](int n) -> const Shape& { return g_.dims(g_.nodes[n].operands[0]); };
    std::vector<int> nodes;
    std::vector<bool> is_ready;  // by node: can be computed of what has been made
    for (int n = 0; n < std::ssize(g_.nodes); ++n) {
      const std::vector<int>& operands = g_.nodes[n].operands;
      const bool reads_ready = std::all_of(operands.begin(), operands.end(), [&](int o) { return is_ready[o]; });
      is_ready.push_back(k_.buffers[n] >= 0 || (is_made(n) && reads_ready));
      if (is_reduction(n) && !is_made(n) && reads_ready && dims(n) == dims(node) &&
          reduced_dims_of(g_, n) == reduced_dims_of(g_, node))
        nodes.push_back(n);
    }
    return nodes;
  }

  void compile_hero(int node) {
    if (is_inlinable(g_, node) || k_.buffers[node] >= 0) return;
    std::vector<Target> targets;
    if (g_.as<low::Sort>(node)) {
      require(Schedule::sort);
      for (int n = node; n < std::ssize(g_.nodes) && g_.nodes[n].first == node; ++n) targets.push_back(target_of(n));
      sort_template(k_, targets);
    } else if (g_.as<low::Scatter>(node)) {
      require(Schedule::scatter);
      targets.push_back(target_of(node));
      scatter_template(k_, targets[0], is_in_place(targets[0].buffer, g_.nodes[node].operands[0]));
    } else if (g_.as<low::Recurrence>(node)) {
      require(Schedule::recurrence);
      targets.push_back(target_of(node));
      recurrence_template(k_, targets[0]);
    } else {
      require(Schedule::reduce);
      SHEAF_CHECK(is_reduction(node), "a hero without a template");
      for (int n : reduced_with(node)) targets.push_back(target_of(n));
      reduce_template(k_, targets);
    }
    for (const Target& t : targets) k_.buffers[t.node] = t.buffer;
  }

  void compile_update() {
    const int node = g_.results[0];
    SHEAF_CHECK(g_.results.size() == 1 && g_.as<low::UpdateSlice>(node), plan_.name + ": an update of what is none");
    const int operand = g_.nodes[node].operands[0];
    SHEAF_CHECK(operand < g_.num_inputs, plan_.name + ": an update of what is in no buffer");
    update_template(k_, {node, k_.output(0)}, is_in_place(k_.output(0), operand));
  }

  void map_the_rest() {
    std::map<Shape, std::vector<Target>> by_dims;
    for (const Target& t : results()) {
      if (!is_done_[t.buffer - g_.num_inputs]) by_dims[g_.dims(t.node)].push_back(t);
    }
    for (const auto& [dims, targets] : by_dims) map_template(k_, targets, plan_.tile);
  }

  const Group& g_;
  const ir::ops::Kernel& plan_;
  KernelBuilder k_;
  std::vector<bool> is_done_;
};

}  // namespace

Kernel build_kernel(const Group& group, const ir::ops::Kernel& plan, const Grain& grain) {
  return GroupCompiler(group, plan, grain).compile();
}

}  // namespace sheaf::kir
