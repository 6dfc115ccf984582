// Partitioning of equations with regions: what flows along their edges keeps one layout, so that a body is partitioned
// once and reshards happen where a value enters or leaves.
#pragma once

#include "passes/sharding/decide.h"

namespace sheaf::passes {

/// Makes functions of one device; regions of equations are made through it.
class Localizer {
 public:
  /// f with its parameters and results in these layouts. Whether it is run, or how often, is decided by what differs
  /// along `chosen_along`.
  virtual ir::FunctionRef localized(const ir::FunctionRef& f, const std::vector<ir::Sharding>& params,
                                    const std::vector<ir::Sharding>& results, const ir::Axes& chosen_along) = 0;
  /// The equations of f in b, on local arguments.
  virtual ir::Values inlined(ir::Builder& b, const ir::FunctionRef& f, const std::vector<ir::Sharding>& params,
                             const std::vector<ir::Sharding>& results, ir::Values args) = 0;
  virtual const ir::MeshAtoms& mesh() const = 0;
  /// Along these the devices may not all get to the equations that are being made.
  virtual const ir::Axes& apart() const = 0;

 protected:
  ~Localizer() = default;
};

Decision decide_region(const ir::Eqn& e, const ir::MeshAtoms& mesh, Chooser& chooser);
ir::Values emit_region(Localizer& localizer, ir::Builder& b, const ir::Eqn& e, const Decision& d, ir::Values operands);

}  // namespace sheaf::passes
