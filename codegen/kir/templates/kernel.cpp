// From a group to a kernel: the choice of templates, and the order of phases.
#include <algorithm>
#include <map>

#include "codegen/kir/templates/template.h"
#include "ir/check.h"

namespace sheaf::kir {
namespace {

namespace low = ir::lowering;

class GroupCompiler {
 public:
  GroupCompiler(const Group& group, const std::vector<std::int64_t>& in_place, const Schedule& schedule)
      : g_(group), k_(group, in_place, schedule), is_done_(group.results.size(), false) {}

  Kernel compile(const std::string& name) {
    std::vector<Target> results;
    for (std::size_t j = 0; j < g_.results.size(); ++j) results.push_back({g_.results[j], k_.output(static_cast<int>(j))});
    if (!row_template(k_, results)) {
      for (int node = g_.num_inputs; node < static_cast<int>(g_.nodes.size()); ++node) compile_hero(node);
      map_the_rest();
    }
    return k_.finish(name);
  }

 private:
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
           buffer < g_.num_inputs + static_cast<int>(g_.results.size()) && k_.in_place(buffer - g_.num_inputs) == operand;
  }

  void compile_hero(int node) {
    if (is_inlinable(g_, node) || k_.buffers[node] >= 0) return;
    std::vector<Target> targets;
    if (g_.as<low::Sort>(node)) {
      for (int n = node; n < static_cast<int>(g_.nodes.size()) && g_.nodes[n].first == node; ++n) {
        targets.push_back(target_of(n));
      }
      sort_template(k_, targets);
    } else {
      targets.push_back(target_of(node));
      if (g_.as<low::Scatter>(node)) {
        scatter_template(k_, targets[0], is_in_place(targets[0].buffer, g_.nodes[node].operands[0]));
      } else {
        SHEAF_CHECK(g_.as<low::Reduce>(node) || g_.as<low::ArgReduce>(node), "a hero without a template");
        reduce_template(k_, targets[0]);
      }
    }
    for (const Target& t : targets) k_.buffers[t.node] = t.buffer;
  }

  void map_the_rest() {
    std::map<Shape, std::vector<Target>> by_dims;
    for (std::size_t j = 0; j < g_.results.size(); ++j) {
      if (!is_done_[j]) by_dims[g_.dims(g_.results[j])].push_back({g_.results[j], k_.output(static_cast<int>(j))});
    }
    for (const auto& [dims, targets] : by_dims) map_template(k_, targets);
  }

  const Group& g_;
  KernelBuilder k_;
  std::vector<bool> is_done_;
};

}  // namespace

Kernel build_kernel(const Group& group, const std::string& name, const std::vector<std::int64_t>& in_place,
                    const Schedule& schedule) {
  return GroupCompiler(group, in_place, schedule).compile(name);
}

}  // namespace sheaf::kir
