// Where every equation of a function takes its operands and leaves its results, decided before anything is emitted:
// whoever emits a value knows all the layouts that will be asked of it. Sums that are not made yet flow through linear
// equations up to where making them is cheapest.
#pragma once

#include <vector>

#include "passes/sharding/choice.h"
#include "passes/sharding/cut.h"

namespace sheaf::passes {

/// A layout that somebody takes a value in.
struct Use {
  const ir::Eqn* user = nullptr;  // null: the function returns it
  int operand = 0;
  ir::Sharding layout;
  bool backward = false;  // for a derivative: gathers of the forward pass are not kept for it
};

/// Of one equation.
struct Decision {
  Choice choice = {};  // of equations that are split by their factors
  std::vector<ir::Sharding> in = {}, out = {};
  bool is_backward = false;
};

/// How a sum comes to be whole in all the layouts that are asked of it.
struct Settlement {
  const ir::Sharding* first = nullptr;  // made in this one, from which the others come; null: in each by itself
  double seconds = 0;
};

/// Whether values of the first layout are gathered to be in the second.
bool is_gathered(const ir::Sharding& from, const ir::Sharding& to);
/// The layout, each dim split only as far as the whole divides.
ir::Sharding cut_to_dividing(ir::Sharding s, const Shape& dims, const ir::MeshAtoms& mesh);
/// Where a value was wanted by propagation.
ir::Sharding wanted_layout(ir::Value v, const ir::MeshAtoms& mesh);
/// Whether the equation takes operand k as it is and gives it as result k: barrier, with_sharding, pcast.
bool is_edge(const ir::Eqn& e);

class Decisions {
 public:
  Decisions(const ir::Function& f, std::vector<ir::Sharding> params, const std::vector<ir::Sharding>& results,
            const ir::MeshAtoms& mesh, Chooser& chooser);

  const Decision& of(const ir::Eqn& e) const { return decisions_.at(&e); }
  /// As computed, or as the parameter comes.
  const ir::Sharding& made(ir::Value v) const { return made_[v]; }
  const std::vector<Use>& uses(ir::Value v) const { return uses_[v]; }
  /// Of a sum.
  Settlement settlement(ir::Value v) const;
  /// Computed again for a derivative: what is gathered of it serves both, being of the backward pass anyway.
  bool is_made_again(ir::Value v) const { return is_made_again_[v]; }

 private:
  void decide_all(const ir::Function& f, const std::vector<ir::Sharding>& results);
  void decide(const ir::Eqn& e);
  Decision by_factors(const ir::Eqn& e) const;
  Question question(const ir::Eqn& e, const ir::Factors& f, bool is_backward) const;
  void keep_sums(Question q, Choice& best) const;
  void record(const ir::Eqn& e, Decision d);
  bool find_sums_to_make(const ir::Function& f);
  std::vector<UnmadeSum> unmade_sums(const ir::Function& f, const ir::Values& sums) const;
  std::vector<ir::Sharding> available(ir::Value v, bool is_backward) const;

  const ir::MeshAtoms& mesh_;
  Chooser& chooser_;
  ir::ValueTable<ir::Sharding> made_;
  ir::ValueTable<std::vector<Use>> uses_;
  ir::ValueTable<bool> is_made_again_;
  ir::ValueTable<bool> is_summed_;  // nobody takes it as a sum that is not made yet
  absl::flat_hash_map<const ir::Eqn*, Decision> decisions_;
};

}  // namespace sheaf::passes
