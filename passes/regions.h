// How the transforms go through the regions of an op. One `RegionRules` per region op, in passes/regions/<op>.cpp,
// holds all of them, because they must agree on the roles of operands; the transforms look rules up and know no op by
// name. Algorithms: docs/design-notes.md, section 2; before and after: docs/regions.md.
#pragma once

#include <span>
#include <vector>

#include "ir/builder.h"
#include "ir/op.h"
#include "passes/partial_eval.h"
#include "passes/transforms.h"

namespace sheaf::passes {

/// Primal results, and their tangents: null where zero.
struct Dual {
  ir::Values primals, tangents;
};

/// Partial evaluation at one equation: both halves under construction, and what each knows of the original's values.
class Halves {
 public:
  virtual ir::Builder& known_half() = 0;
  virtual ir::Builder& unknown_half() = 0;
  /// v in the known half; null if it is unknown.
  virtual ir::Value known(ir::Value v) const = 0;
  /// v in the unknown half: computed there, or a residual, or a constant made again.
  virtual ir::Value unknown(ir::Value v) = 0;
  /// A value of the known half as the unknown half receives it.
  virtual ir::Value residual(ir::Value of_known_half) = 0;
  virtual void set_known(ir::Value v, ir::Value in_known_half) = 0;
  virtual void set_unknown(ir::Value v, ir::Value in_unknown_half) = 0;

 protected:
  ~Halves() = default;
};

/// An equation without what nobody reads: which operands and results stay, and what it is then.
struct Shrunk {
  Mask operands, results;
  std::shared_ptr<const void> attributes;
  std::vector<ir::FunctionRef> regions;
};

/// All rules emit in the builder they are given, whose line is already that of `e`; `e` is of the original function.
struct RegionRules {
  ir::Op op = nullptr;
  /// operands: the primals in b; tangents: at least one, null where zero.
  Dual (*jvp)(ir::Builder& b, const ir::Eqn& e, const ir::Values& operands, const ir::Values& tangents) = nullptr;
  /// known: per operand; neither all nor, but for effects, none.
  void (*partial_eval)(Halves& halves, const ir::Eqn& e, const Mask& known) = nullptr;
  /// operands: null where linear; cts: null where zero. The cotangents of the linear operands, null where zero.
  ir::Values (*transpose)(ir::Builder& b, const ir::Eqn& e, const ir::Values& operands,
                          const ir::Values& cts) = nullptr;
  std::vector<ir::Batched> (*batch)(ir::Builder& b, const ir::Eqn& e, std::span<const ir::Batched> operands,
                                    const MappedAxis& axis) = nullptr;
  /// Null: every operand and result stays.
  Shrunk (*shrink)(const ir::Eqn& e, const Mask& used) = nullptr;
  /// The equation on operands in b and regions already improved, with what need not be done at each step done once;
  /// null: there is nothing to gain (passes/loops.h).
  ir::Values (*improve)(ir::Builder& b, const ir::Eqn& e, std::vector<ir::FunctionRef> regions,
                        ir::Values operands) = nullptr;
  /// What takes the equation's place when the transforms are done; null: it is a step of the plan.
  ir::Values (*expand)(ir::Builder& b, const ir::Eqn& e, const ir::Values& operands) = nullptr;
};

/// Null for an op without regions.
const RegionRules* region_rules(ir::Op op);

extern const RegionRules call_rules, cond_rules, scan_rules, while_rules, checkpoint_rules, custom_jvp_rules,
    custom_vjp_rules, custom_linear_rules, custom_linear_solve_rules, shard_map_rules;

}  // namespace sheaf::passes
