// The reference interpreter: slow, obvious, the oracle for everything else.
#pragma once

#include <span>

#include "ir/graph.h"
#include "ir/literal.h"

namespace sheaf::ir {

/// Runs f on `inputs` (one literal per parameter, of its type).
Literals eval(const Function& f, std::span<const Literal> inputs);
/// Runs f, which holds nothing complex: of eval, the part that a loop repeats.
Literals eval_real(const Function& f, std::span<const Literal> inputs);
/// Runs one equation.
Literals eval(const Eqn& e, std::span<const Literal> inputs);

/// Sees what eval does on this thread.
class EvalObserver {
 public:
  /// A loop begins step t; when it is done, it is left.
  virtual void step(const Eqn& loop, std::int64_t t) = 0;
  virtual void left(const Eqn& loop) = 0;
  /// What is seen next is of this device of a mesh.
  virtual void device(int) {}
  /// `in`: of a collective, the operands of all devices of the group.
  virtual void equation(const Eqn& e, std::span<const Literal> in, std::span<const Literal> out) = 0;

 protected:
  ~EvalObserver() = default;
};

/// Has `observer` see everything until the end of the scope.
class Observed {
 public:
  explicit Observed(EvalObserver& observer);
  ~Observed();
  Observed(const Observed&) = delete;
  Observed& operator=(const Observed&) = delete;
  /// Null outside all scopes.
  static EvalObserver* current();

 private:
  EvalObserver* outer_;
};

}  // namespace sheaf::ir
