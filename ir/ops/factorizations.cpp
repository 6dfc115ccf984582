// Factors by elimination: Cholesky, LU, and solving with a triangle. Matrices are the last two dims; a matrix that has
// no such factors gives NaN throughout, and no error, because one bad matrix of a batch must not cost the others.
#include "ir/ops/dense.h"
#include "ir/ops/matrices.h"

namespace sheaf::ir::ops {
namespace {

using lowering::Library;

// --- cholesky --------------------------------------------------------------------------------------------------------

absl::StatusOr<Factors> cholesky_factors(const Eqn& e) {
  if (absl::Status s = check_square(e.in(0).type()); !s.ok()) return s;
  MatrixFactors m(e.in(0).type());
  m.rule.out = m.rule.in;
  return m.rule;
}

// dL = L phi(L^-1 dA L^-T), phi keeping the lower triangle and half the diagonal (Murray, arXiv:1602.07527, eq. 8).
Values cholesky_jvp(Builder& b, const Eqn& e, const Values& tangents) {
  const Value factor = e.out();
  const TriangularSolve lower{.lower = true};
  const Value left = solve_triangular(factor, symmetric_of_lower(tangents[0]), lower);
  const Value both = solve_triangular_right(factor, left, {.lower = true, .transposed = true});
  const Value diagonal = where_or_zero(positions(both, eq), both * 0.5);
  return {matmul(factor, b.emit(select, {positions(both, gt), both, diagonal}))};
}

Dense cholesky_of(const Dense& a) {
  const std::int64_t n = a.rows();
  Dense factor(n, n);
  for (std::int64_t i = 0; i < n; ++i) {
    for (std::int64_t j = 0; j <= i; ++j) {
      double sum = a(i, j);
      for (std::int64_t k = 0; k < j; ++k) sum -= factor(i, k) * factor(j, k);
      if (i == j && !(sum > 0)) {
        factor.fill(kNan);
        return factor;
      }
      factor(i, j) = i == j ? std::sqrt(sum) : sum / factor(j, j);
    }
  }
  return factor;
}

void eval_cholesky(const Eqn& e, std::span<const Literal> in, std::span<Literal> out) {
  const std::int64_t n = rows_of(e.in(0).type());
  for (std::int64_t i = 0; i < batch_of(e.in(0).type()); ++i) cholesky_of(Dense(in[0], n, n, i)).write(out[0], i);
}

// --- triangular_solve ------------------------------------------------------------------------------------------------

absl::StatusOr<std::vector<DType>> solve_dtypes(const Eqn& e) {
  if (e.in(0).dtype() != e.in(1).dtype())
    return absl::InvalidArgumentError(fmt::format("matrix ({}) and right-hand side ({}) must have the same dtype",
                                                  to_string(e.in(0).type()), to_string(e.in(1).type())));
  return same_dtype(e);
}

absl::StatusOr<Factors> solve_factors(const Eqn& e) {
  const Type a = e.in(0).type(), b = e.in(1).type();
  if (absl::Status s = check_square(a); !s.ok()) return s;
  if (absl::Status s = check_rank(b); !s.ok()) return s;
  const bool fits = a.rank() == b.rank() && std::equal(a.dims().begin(), a.dims().end() - 1, b.dims().begin());
  if (!fits)
    return absl::InvalidArgumentError(fmt::format(
        "matrix ({}) and right-hand side ({}) must agree in all dims but the last", to_string(a), to_string(b)));
  MatrixFactors m(a);
  const int columns = m.rule.add(columns_of(b), FactorClass::N);
  m.rule.in.push_back(m.of({m.rows, {columns}}));
  m.rule.out = {m.rule.in[1]};
  return m.rule;
}

// The triangle that is read.
Value triangle(Value a, const TriangularSolve& how) {
  if (how.unit_diagonal) return how.lower ? strictly_lower(a) : strictly_upper(a);
  return how.lower ? lower_triangle(a) : upper_triangle(a);
}

// op(a) x = b gives dx = op(a)^-1 (db - op(da) x).
Values solve_jvp(Builder&, const Eqn& e, const Values& tangents) {
  const TriangularSolve& how = e.attrs<TriangularSolve>();
  Value rhs = tangents[1];
  if (tangents[0]) {
    const Value da = triangle(tangents[0], how);
    const Value moved = matmul(how.transposed ? matrix_transpose(da) : da, e.out());
    rhs = rhs ? rhs - moved : -moved;
  }
  return {solve_triangular(e.in(0), rhs, how)};
}

Values solve_transpose(Builder&, const Eqn& e, const Values& operands, const Values& cts) {
  TriangularSolve how = e.attrs<TriangularSolve>();
  how.transposed = !how.transposed;
  return {Value(), solve_triangular(operands[0], cts[0], how)};
}

void solve_in_place(const Dense& a, const TriangularSolve& how, Dense& x) {
  const std::int64_t n = a.rows();
  const bool forward = how.lower != how.transposed;
  for (std::int64_t column = 0; column < x.columns(); ++column) {
    for (std::int64_t step = 0; step < n; ++step) {
      const std::int64_t i = forward ? step : n - 1 - step;
      double sum = x(i, column);
      for (std::int64_t k = forward ? 0 : i + 1; k < (forward ? i : n); ++k)
        sum -= (how.transposed ? a(k, i) : a(i, k)) * x(k, column);
      x(i, column) = how.unit_diagonal ? sum : sum / a(i, i);
    }
  }
}

void eval_solve(const Eqn& e, std::span<const Literal> in, std::span<Literal> out) {
  const std::int64_t n = rows_of(e.in(1).type()), m = columns_of(e.in(1).type());
  for (std::int64_t i = 0; i < batch_of(e.in(1).type()); ++i) {
    Dense x(in[1], n, m, i);
    solve_in_place(Dense(in[0], n, n, i), e.attrs<TriangularSolve>(), x);
    x.write(out[0], i);
  }
}

// --- lu --------------------------------------------------------------------------------------------------------------

absl::StatusOr<std::vector<DType>> lu_dtypes(const Eqn& e) {
  if (absl::Status s = check_matrix_dtypes(e); !s.ok()) return s;
  return std::vector<DType>{e.in(0).dtype(), DType::i32, DType::i32};
}

absl::StatusOr<Factors> lu_factors(const Eqn& e) {
  const Type a = e.in(0).type();
  if (absl::Status s = check_rank(a); !s.ok()) return s;
  MatrixFactors m(a);
  const int pivots = m.rule.add(std::min(rows_of(a), columns_of(a)), FactorClass::N);
  m.rule.out = {m.rule.in[0], m.of({{pivots}}), m.of({m.rows})};
  return m.rule;
}

// Cropped, or filled up with zeros.
Value resized(Value x, std::int64_t rows, std::int64_t columns) {
  const int rank = x.rank();
  const DimList zeros(rank, 0);
  Pad change{.low = zeros, .high = zeros, .interior = zeros};
  change.high[rank - 2] = rows - rows_of(x.type());
  change.high[rank - 1] = columns - columns_of(x.type());
  return x.builder().emit(pad, {x, x.builder().constant(x.dtype(), 0)}, std::move(change));
}

// The identity from row `first` on, zero above.
Value identity_from(Value like, std::int64_t first) {
  Builder& b = like.builder();
  const Value row = b.emit(iota, {}, Iota{.shape = like.dims(), .dim = {like.rank() - 2}, .dtype = DType::i64});
  return where_or_zero(b.emit(ge, {row, b.full(row.type(), static_cast<double>(first))}), identity_like(like));
}

// With P A = L U and F = L^-1 P dA U^-1: dL = L tril(F, -1), dU = triu(F) U (de Hoog et al., J. Comput. Appl. Math.
// 2011, "The derivative of the LU factorization"); what a rectangular factor lacks to be square is taken from the
// identity.
Values lu_jvp(Builder&, const Eqn& e, const Values& tangents) {
  const Type a = e.in(0).type();
  if (a.num_elements() == 0) return {tangents[0], Value(), Value()};
  const std::int64_t m = rows_of(a), n = columns_of(a);
  const Value below = resized(strictly_lower(e.out(0)), m, m), above = resized(upper_triangle(e.out(0)), n, n);
  const Value lower = below + identity_like(below);
  const Value upper = m < n ? above + identity_from(above, m) : above;
  const Value left =
      solve_triangular(lower, permuted_rows(tangents[0], e.out(2)), {.lower = true, .unit_diagonal = true});
  const Value both = solve_triangular_right(upper, left, {.lower = false});
  return {matmul(lower, strictly_lower(both)) + matmul(upper_triangle(both), upper), Value(), Value()};
}

// Gaussian elimination with the first largest element of each column as its pivot.
struct Eliminated {
  Dense factors;
  std::vector<std::int64_t> pivots, permutation;
};
Eliminated eliminate(Dense a) {
  const std::int64_t m = a.rows(), n = a.columns();
  Eliminated r{.factors = std::move(a), .pivots = {}, .permutation = dim_range(0, static_cast<int>(m))};
  Dense& f = r.factors;
  for (std::int64_t k = 0; k < std::min(m, n); ++k) {
    std::int64_t pivot = k;
    for (std::int64_t i = k + 1; i < m; ++i)
      if (std::abs(f(i, k)) > std::abs(f(pivot, k))) pivot = i;
    r.pivots.push_back(pivot);
    std::swap(r.permutation[k], r.permutation[pivot]);
    f.swap_rows(k, pivot);
    if (f(k, k) == 0) continue;  // nothing to eliminate: the column is zero from here on
    for (std::int64_t i = k + 1; i < m; ++i) {
      f(i, k) /= f(k, k);
      for (std::int64_t j = k + 1; j < n; ++j) f(i, j) -= f(i, k) * f(k, j);
    }
  }
  return r;
}

void eval_lu(const Eqn& e, std::span<const Literal> in, std::span<Literal> out) {
  const std::int64_t m = rows_of(e.in(0).type()), n = columns_of(e.in(0).type()), k = std::min(m, n);
  for (std::int64_t i = 0; i < batch_of(e.in(0).type()); ++i) {
    const Eliminated r = eliminate(Dense(in[0], m, n, i));
    r.factors.write(out[0], i);
    for (std::int64_t j = 0; j < k; ++j) out[1].set_int(i * k + j, r.pivots[j]);
    for (std::int64_t j = 0; j < m; ++j) out[2].set_int(i * m + j, r.permutation[j]);
  }
}

}  // namespace

constinit const OpDef cholesky = {
    .name = "cholesky",
    .doc =
        "The lower triangular L with L L^T = x. Only the lower triangle of x is read, as that of a symmetric matrix; a "
        "matrix that is not positive definite gives NaN throughout.",
    .arity = 1,
    .factors = cholesky_factors,
    .dtypes = same_dtype,
    .jvp = cholesky_jvp,
    .lower = [](const Eqn& e) -> Lowering { return library(Library::Routine::cholesky, e.in(0).type()); },
    .eval = eval_cholesky,
    .cost =
        [](const Eqn& e) {
          return with_flops(e, static_cast<double>(batch_of(e.in(0).type())) * cube(rows_of(e.in(0).type())) / 3);
        },
    .ulp = 32,
    .samples =
        [] {
          return Samples{"cholesky f64[3, 3] in definite",
                         "cholesky f32[2, 4, 4] in definite",
                         "cholesky f32[2, 2] in (-2, -1)",
                         "cholesky f64[1, 1] in (1, 2)",
                         "cholesky f32[0, 0]",
                         "cholesky f32[0, 2, 2]",
                         "cholesky f64[2, 3, 2, 2] in definite"};
        },
};

constinit const OpDef triangular_solve = {
    .name = "triangular_solve",
    .doc =
        "The x with op(a) x = b for the lower or upper triangle of a, or its transpose; the rest of a is not read, nor "
        "the diagonal where it is taken to be 1. A zero on the diagonal divides: infinities and NaN.",
    .arity = 2,
    .attrs = attrs_of<TriangularSolve>(),
    .factors = solve_factors,
    .dtypes = solve_dtypes,
    .linear = jointly(0b10),
    .jvp = solve_jvp,
    .transpose = solve_transpose,
    .lower = [](const Eqn& e) -> Lowering {
      const TriangularSolve& how = e.attrs<TriangularSolve>();
      Library what = library(Library::Routine::triangular_solve, e.in(1).type());
      what.lower = how.lower;
      what.transposed = how.transposed;
      what.unit_diagonal = how.unit_diagonal;
      return what;
    },
    .eval = eval_solve,
    .cost =
        [](const Eqn& e) {
          return with_flops(
              e, static_cast<double>(e.in(1).type().num_elements()) * static_cast<double>(rows_of(e.in(1).type())));
        },
    .ulp = 32,
    .samples =
        [] {
          return Samples{"triangular_solve f64[3, 3] in (1, 2), f64[3, 2]",
                         "triangular_solve f64[3, 3] in (1, 2), f64[3, 2] {transposed=true}",
                         "triangular_solve f64[3, 3] in (1, 2), f64[3, 1] {lower=false}",
                         "triangular_solve f64[3, 3], f64[3, 2] {lower=false, transposed=true, unit_diagonal=true}",
                         "triangular_solve f32[2, 3, 3] in (1, 2), f32[2, 3, 4] {unit_diagonal=true}",
                         "triangular_solve f32[1, 1] in (1, 2), f32[1, 1]",
                         "triangular_solve f32[0, 0], f32[0, 3]",
                         "triangular_solve f32[2, 2], f32[2, 0]"};
        },
};

constinit const OpDef lu = {
    .name = "lu",
    .doc =
        "L U = P x with partial pivoting: both factors in one matrix, L's unit diagonal left out; the row each step "
        "swapped with its own; and the permutation, result row i being row permutation[i] of x. A singular matrix has a "
        "zero on U's diagonal.",
    .arity = 1,
    .num_results = 3,
    .factors = lu_factors,
    .dtypes = lu_dtypes,
    .jvp = lu_jvp,
    .lower = [](const Eqn& e) -> Lowering { return library(Library::Routine::lu, e.in(0).type()); },
    .eval = eval_lu,
    .cost =
        [](const Eqn& e) {
          const Type a = e.in(0).type();
          return with_flops(
              e, static_cast<double>(a.num_elements()) * static_cast<double>(std::min(rows_of(a), columns_of(a))));
        },
    .ulp = 32,
    .samples =
        [] {
          return Samples{"lu f64[3, 3]", "lu f32[2, 4, 4]", "lu f64[4, 2]", "lu f64[2, 4]",
                         "lu f32[1, 1]", "lu f32[0, 0]",    "lu f32[3, 0]", "lu f64[2, 2, 2]"};
        },
};

}  // namespace sheaf::ir::ops
