// Golden rows of functions of the API: a row names a function of arrays, which is called, differentiated and batched
// through the user's own calls, so that promotion and composition are compared too, not single ops.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "sheaf/sheaf.h"
#include "tests/jax/golden.h"

namespace sheaf::tests {

using Arrays = std::vector<Array>;
using Function = std::function<Array(const Arrays& x)>;

/// Where Sheaf gives another value than JAX on purpose.
struct CallDifference {
  std::string_view name, quantities;  // words
  bool (*at)(const Row& row, std::int64_t i);
  std::string_view why;
  bool (*says)(double got, double want) = nullptr;  // what both give there, where that can be told
};
/// Element i of the first and the second operand, 0 where there is none.
double first(const Row& row, std::int64_t i);
double second(const Row& row, std::int64_t i);

/// Relative errors allowed to a result; of f16 and bf16, to 1/64.
struct Accuracy {
  double f32 = 4e-6, f64 = 1e-12;
};
void check_calls(const std::string& family, const std::function<Function(const std::string& name)>& find,
                 std::span<const CallDifference> differences, Accuracy accuracy = {});

}  // namespace sheaf::tests
