// How near a result must be to JAX's, and the points where Sheaf gives another one on purpose.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tests/jax/golden.h"

namespace sheaf::tests {

/// One element of an elementwise row: what the operands are there.
struct Point {
  DType dtype;                   // of the last operand
  std::vector<double> operands;  // all zeros where the row is not elementwise
  std::string combine;           // "max", "prod" or the like, of rows whose op has a kind
  bool nan_in_row, infinity_in_row, zero_in_row;
  double got, want;
};

struct Difference {
  std::string_view ops;         // words; "*" for all
  std::string_view quantities;  // words: value, jvp, vjp, vmap
  bool (*at)(const Point&);
  std::string_view why;
};
std::span<const Difference> differences();

/// Checks result j of a quantity. An element that differs is right only if a difference says so.
void check_agrees(const Row& row, const Quantity& quantity, int j, const ir::Literal& got, const ir::Literal& want);

/// How many elements have used each difference so far: one that none uses is out of date.
std::span<const std::int64_t> uses_of_differences();

}  // namespace sheaf::tests
