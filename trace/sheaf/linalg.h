// Linear algebra. Matrices are the last two dims of an array, all dims before them a batch; f32 and f64, integers
// become f32. What a matrix does not have is NaN, never an exception, because it depends on values; docs/numerics.md
// lists the special points. Everything is differentiable to any order, forward and backward.
#pragma once

#include "sheaf/ops.h"

namespace sheaf::linalg {

/// The lower triangular L with L L^T = (x + x^T) / 2; NaN throughout where that is not positive definite.
Array cholesky(Operand x);

struct Triangular {
  using IsLeftOut = void;
  bool lower = true;           // the triangle of a that is read
  bool transposed = false;     // solve with a's transpose
  bool unit_diagonal = false;  // a's diagonal is taken to be 1 and not read
};
/// The x with a x = b, or a^T x = b.  a: [.., n, n], b: [n] or [.., n, m]; batch dims broadcast.
Array triangular_solve(Operand a, Operand b, const Triangular& options = {});

/// L U = x[permutation]: L (unit diagonal, not stored) and U in one matrix; the row each step swapped with its own.
struct Lu {
  Array lu, pivots, permutation;
};
Lu lu(Operand x);

/// x = q r, with as many columns in q as x's shorter extent.
struct Qr {
  Array q, r;
};
Qr qr(Operand x);

/// x = u diag(s) vt, s descending, as many as x's shorter extent. The first component of each column of u of at least
/// 0.3 times its largest magnitude is positive. Derivatives of u and vt are infinite or NaN where singular values are
/// equal.
struct Svd {
  Array u, s, vt;
};
Svd svd(Operand x);

/// Eigenvalues, ascending, and eigenvectors, in columns, of (x + x^T) / 2, with the signs of svd's u. Derivatives of
/// vectors are infinite or NaN where values are equal.
struct Eigh {
  Array values, vectors;
};
Eigh eigh(Operand x);

/// The x with a x = b, by LU.  a: [.., n, n], b: [n] or [.., n, m]; batch dims broadcast. Of a singular matrix:
/// infinite or NaN. Derivatives solve with the same factors.
Array solve(Operand a, Operand b);
Array inv(Operand x);
/// Of a singular matrix 0, with a derivative of NaN.
Array det(Operand x);
/// sign * exp(logdet) is the determinant; 0 and -inf of a singular matrix.
struct Slogdet {
  Array sign, logdet;
};
Slogdet slogdet(Operand x);
/// The Moore-Penrose inverse; singular values of at most `cutoff` times the largest count as 0 (default: 10 times the
/// larger extent times the dtype's epsilon). First and second derivatives take the rank to be constant.
Array pinv(Operand x, std::optional<double> cutoff = {});
/// The x of least length among those with the least |a x - b|: pinv(a) b.  a: [.., m, n], b: [m] or [.., m, k].
Array lstsq(Operand a, Operand b, std::optional<double> cutoff = {});
/// x multiplied with itself; the inverse's powers for a negative exponent.
Array matrix_power(Operand x, int exponent);

/// What `norm` measures: the Euclidean length (of a matrix: Frobenius), the largest column sum or sum, the largest
/// singular value or Euclidean length, the largest row sum or magnitude.
enum class Norm { frobenius, one, two, inf };
struct NormOptions {
  using IsLeftOut = void;
  Norm kind = Norm::frobenius;
  std::vector<std::int64_t> axes = {};  // one: of vectors; two: of matrices; none: all of x, as one vector if frobenius
  bool keepdims = false;
};
/// The gradient at 0 is 0.
Array norm(Operand x, const NormOptions& options = {});

}  // namespace sheaf::linalg
