// The table of region ops.
#include <array>

#include "passes/regions.h"

namespace sheaf::passes {

const RegionRules* region_rules(ir::Op op) {
  static constexpr std::array all{&call_rules,       &cond_rules,          &scan_rules,
                                  &while_rules,      &checkpoint_rules,    &custom_jvp_rules,
                                  &custom_vjp_rules, &custom_linear_rules, &custom_linear_solve_rules,
                                  &shard_map_rules};
  for (const RegionRules* rules : all)
    if (rules->op == op) return rules;
  return nullptr;
}

}  // namespace sheaf::passes
