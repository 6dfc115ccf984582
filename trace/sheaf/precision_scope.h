// The precision of the products that do not say theirs:
//   { PrecisionScope scope(Precision::tf32);  y = step(params, x); }
// It holds for what this thread computes or traces meanwhile, so also for the gradients of that, wherever they are
// taken; a function that `jit` has traced under another one is traced anew.
#pragma once

#include "sheaf/precision.h"

namespace sheaf {

class PrecisionScope {
 public:
  explicit PrecisionScope(Precision precision);
  ~PrecisionScope();
  PrecisionScope(const PrecisionScope&) = delete;
  PrecisionScope& operator=(const PrecisionScope&) = delete;

 private:
  Precision before_;
};

}  // namespace sheaf
