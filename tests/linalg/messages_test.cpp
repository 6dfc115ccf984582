// What linear algebra says about shapes and dtypes that it cannot take.
#include <doctest/doctest.h>

#include "sheaf/sheaf.h"
#include "tests/message.h"

using namespace sheaf;
using tests::message_here;

TEST_CASE("a matrix that is not square is refused with its extents") {
  CHECK(message_here<ShapeError>([] { linalg::cholesky(zeros({2, 3})); }) ==
        "HERE: cholesky: takes square matrices, not 2 x 3\n  operand: f32[2, 3]   (made at HERE)");
  CHECK(message_here<ShapeError>([] { linalg::det(zeros({4, 2, 3})); }) ==
        "HERE: det: takes square matrices, not 2 x 3\n  operand: f32[4, 2, 3]   (made at HERE)");
  CHECK(message_here<ShapeError>([] { linalg::svd(zeros({3})); }) ==
        "HERE: svd: takes matrices, of at least two dims\n  operand: f32[3]   (made at HERE)");
}

TEST_CASE("a right-hand side that does not fit is refused with both shapes") {
  CHECK(
      message_here<ShapeError>([] { linalg::solve(zeros({3, 3}), zeros({2})); }) ==
      "HERE: solve: a matrix of 3 rows and a right-hand side of 2\n  matrix: f32[3, 3]   (made at HERE)\n  right-hand side: f32[2]   (made at HERE)");
  CHECK(
      message_here<ShapeError>([] { linalg::solve(zeros({2, 3, 3}), zeros({4, 3, 1})); }) ==
      "HERE: solve: batch dims [2] and [4] cannot be broadcast together\n  matrix: f32[2, 3, 3]   (made at HERE)\n  right-hand side: f32[4, 3, 1]   (made at HERE)");
  CHECK(
      message_here<ShapeError>([] { linalg::lstsq(zeros({3, 2}), zeros({2})); }) ==
      "HERE: lstsq: a matrix of 3 rows and a right-hand side of 2\n  matrix: f32[3, 2]   (made at HERE)\n  right-hand side: f32[2]   (made at HERE)");
  CHECK(
      message_here<ShapeError>([] { linalg::triangular_solve(zeros({3, 3}), full({}, 1.0f)); }) ==
      "HERE: triangular_solve: the right-hand side must be a vector or matrices\n  matrix: f32[3, 3]   (made at HERE)\n  right-hand side: f32[]   (made at HERE)");
}

TEST_CASE("half precision is refused, and integers are not") {
  CHECK(message_here<TypeError>([] { linalg::inv(zeros({2, 2}, bf16)); }) ==
        "HERE: inv: takes f32 or f64, not bf16; convert it first\n  operand: bf16[2, 2]   (made at HERE)");
  CHECK(linalg::inv(array({{2, 0}, {0, 4}})).dtype() == f32);
}

TEST_CASE("a norm of three axes does not exist") {
  CHECK(message_here<ShapeError>([] { linalg::norm(zeros({2, 2, 2}), {.kind = linalg::Norm::one}); }) ==
        "HERE: norm: takes one axis, of vectors, or two, of matrices, not 3\n  operand: f32[2, 2, 2]   (made at HERE)");
}
