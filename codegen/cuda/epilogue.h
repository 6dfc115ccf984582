// How each sum of a contraction leaves its kernel: converted and stored, or through the kernel's epilogue, whose
// statements stand where the sum is still in a register.
#pragma once

#include <string>

#include "codegen/kir/kir.h"

namespace sheaf::codegen {

class Epilogue {
 public:
  explicit Epilogue(const kir::Kernel& kernel) : kernel_(kernel) {}

  /// Statements of the element at `batch`, `row` and `column` of the contraction, which are names of integers; `sum` is
  /// a name of its accumulated dtype.
  std::string store(const std::string& batch, const std::string& row, const std::string& column,
                    const std::string& sum) const;

 private:
  const kir::Kernel& kernel_;
};

}  // namespace sheaf::codegen
