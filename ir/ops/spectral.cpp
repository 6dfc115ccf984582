// Factors with orthogonal matrices: QR, singular values, eigenvalues of symmetric matrices. Derivatives divide by the
// gaps between values, so they are infinite or NaN where two are equal and only the values are asked to be smooth
// there.
#include <algorithm>

#include "ir/ops/dense.h"
#include "ir/ops/matrices.h"
#include "ir/orientation.h"

namespace sheaf::ir::ops {
namespace {

using lowering::Library;

absl::StatusOr<MatrixFactors> matrix_factors(const Eqn& e) {
  if (absl::Status s = check_rank(e.in(0).type()); !s.ok()) return s;
  return MatrixFactors(e.in(0).type());
}

// The shorter of the two extents.
std::int64_t shorter(Type t) { return std::min(rows_of(t), columns_of(t)); }

// 1 / differences off the diagonal, 0 on it.
Value inverse_gaps(Value differences) {
  const Value identity = identity_like(differences);
  return 1.0 / (differences + identity) - identity;
}

// --- qr --------------------------------------------------------------------------------------------------------------

absl::StatusOr<Factors> qr_factors(const Eqn& e) {
  absl::StatusOr<MatrixFactors> m = matrix_factors(e);
  if (!m.ok()) return m.status();
  const int inner = m->rule.add(shorter(e.in(0).type()), FactorClass::N);
  m->rule.out = {m->of({m->rows, {inner}}), m->of({{inner}, m->columns})};
  return m->rule;
}

// With C = Q^T dA R^-1 and the skew W = tril(C, -1) - tril(C, -1)^T: dQ = Q (W - C) + dA R^-1, dR = (C - W) R (Walter
// and Lehmann, "Algorithmic differentiation of linear algebra functions", 2010). Of a wide A = [B, D], B = Q R as
// above, and R's other columns are Q^T D.
Values qr_jvp(Builder& b, const Eqn& e, const Values& tangents) {
  const Type a = e.in(0).type();
  if (a.num_elements() == 0) return {Value(), Value()};
  const int last = a.rank() - 1;
  const std::int64_t k = shorter(a), n = columns_of(a);
  const Value q = e.out(0), r = slice_dim(e.out(1), last, 0, k), da = slice_dim(tangents[0], last, 0, k);
  const Value over_r = solve_triangular_right(r, da, {.lower = false});
  const Value inner = matmul(matrix_transpose(q), over_r);
  const Value below = strictly_lower(inner);
  const Value rest = below - matrix_transpose(below) - inner;  // W - C
  const Value dq = matmul(q, rest) + over_r;
  const Value dr = -matmul(rest, r);
  if (k == n) return {dq, dr};
  const Value wide = slice_dim(e.in(0), last, k, n), dwide = slice_dim(tangents[0], last, k, n);
  const Value dr_wide = matmul(matrix_transpose(dq), wide) + matmul(matrix_transpose(q), dwide);
  return {dq, b.emit(concatenate, {dr, dr_wide}, Concatenate{.dim = {last}})};
}

// a -= tau v (v^T a) for the reflector in column k of `reflectors` below the diagonal, from row k on.
void reflect(const Dense& reflectors, std::int64_t k, double tau, Dense& a, std::int64_t first_column) {
  for (std::int64_t j = first_column; j < a.columns(); ++j) {
    double sum = a(k, j);
    for (std::int64_t i = k + 1; i < a.rows(); ++i) sum += reflectors(i, k) * a(i, j);
    a(k, j) -= tau * sum;
    for (std::int64_t i = k + 1; i < a.rows(); ++i) a(i, j) -= tau * reflectors(i, k) * sum;
  }
}

// Householder's method with LAPACK's signs: a reflector takes a column to minus its sign times its length, and a column
// that is zero below the diagonal stays as it is.
struct Orthogonalized {
  Dense q, r;
};
Orthogonalized orthogonalize(Dense a) {
  const std::int64_t m = a.rows(), n = a.columns(), k = std::min(m, n);
  std::vector<double> taus(static_cast<std::size_t>(k), 0.0);
  for (std::int64_t c = 0; c < k; ++c) {
    double length = 0;
    for (std::int64_t i = c + 1; i < m; ++i) length = std::hypot(length, a(i, c));
    if (length == 0) continue;
    const double alpha = a(c, c), beta = -std::copysign(std::hypot(alpha, length), alpha);
    taus[c] = (beta - alpha) / beta;
    for (std::int64_t i = c + 1; i < m; ++i) a(i, c) /= alpha - beta;
    reflect(a, c, taus[c], a, c + 1);
    a(c, c) = beta;
  }
  Orthogonalized f{.q = Dense(m, k), .r = Dense(k, n)};
  for (std::int64_t i = 0; i < k; ++i) f.q(i, i) = 1;
  for (std::int64_t c = k - 1; c >= 0; --c) reflect(a, c, taus[c], f.q, c);
  for (std::int64_t i = 0; i < k; ++i)
    for (std::int64_t j = i; j < n; ++j) f.r(i, j) = a(i, j);
  return f;
}

void eval_qr(const Eqn& e, std::span<const Literal> in, std::span<Literal> out) {
  const Type a = e.in(0).type();
  for (std::int64_t i = 0; i < batch_of(a); ++i) {
    const Orthogonalized f = orthogonalize(Dense(in[0], rows_of(a), columns_of(a), i));
    f.q.write(out[0], i);
    f.r.write(out[1], i);
  }
}

// --- svd -------------------------------------------------------------------------------------------------------------

absl::StatusOr<Factors> svd_factors(const Eqn& e) {
  absl::StatusOr<MatrixFactors> m = matrix_factors(e);
  if (!m.ok()) return m.status();
  const int inner = m->rule.add(shorter(e.in(0).type()), FactorClass::N);
  m->rule.out = {m->of({m->rows, {inner}}), m->of({{inner}}), m->of({{inner}, m->columns})};
  return m->rule;
}

// What dA adds to a factor outside the span of its columns: (I - Q Q^T) x / s.
Value outside(Value q, Value x, Value s) {
  return (x - matmul(q, matmul(matrix_transpose(q), x))) / along_columns(s, x.dims());
}

// With P = U^T dA V and F_ij = 1 / (s_j^2 - s_i^2): ds = diag(P), dU = U (F o (P S + S P^T)), dV = V (F o (S P + P^T
// S)), and what lies outside the spans (Townsend, "Differentiating the singular value decomposition", 2016).
Values svd_jvp(Builder&, const Eqn& e, const Values& tangents) {
  const Type a = e.in(0).type();
  if (a.num_elements() == 0) return {Value(), Value(), Value()};
  const Value u = e.out(0), s = e.out(1), v = matrix_transpose(e.out(2)), da = tangents[0];
  const Value inner = matmul(matmul(matrix_transpose(u), da), v);
  const Value row = along_rows(s, inner.dims()), column = along_columns(s, inner.dims());
  const Value gaps = inverse_gaps((column + row) * (column - row));
  const Value scaled = inner * column, turned = row * inner;
  Value du = matmul(u, gaps * (scaled + matrix_transpose(scaled)));
  Value dv = matmul(v, gaps * (turned + matrix_transpose(turned)));
  if (rows_of(a) > columns_of(a)) du = du + outside(u, matmul(da, v), s);
  if (rows_of(a) < columns_of(a)) dv = dv + outside(v, matmul(matrix_transpose(da), u), s);
  return {du, diagonal(inner), matrix_transpose(dv)};
}

double column_dot(const Dense& a, std::int64_t p, std::int64_t q) {
  double sum = 0;
  for (std::int64_t i = 0; i < a.rows(); ++i) sum += a(i, p) * a(i, q);
  return sum;
}

void rotate_columns(Dense& a, std::int64_t p, std::int64_t q, double cosine, double sine) {
  for (std::int64_t i = 0; i < a.rows(); ++i) {
    const double x = a(i, p), y = a(i, q);
    a(i, p) = cosine * x - sine * y;
    a(i, q) = sine * x + cosine * y;
  }
}

// The rotation that makes the symmetric [[app, apq], [apq, aqq]] diagonal (Rutishauser's formulas).
struct Rotation {
  double cosine = 1, sine = 0;
};
Rotation diagonalizing(double app, double apq, double aqq) {
  const double theta = (aqq - app) / (2 * apq);
  const double tangent = std::copysign(1.0, theta) / (std::abs(theta) + std::hypot(theta, 1.0));
  const double cosine = 1 / std::hypot(tangent, 1.0);
  return {cosine, tangent * cosine};
}

constexpr int kMaxSweeps = 60;  // Jacobi's methods need about ten
constexpr double kNegligible = 1e-18;

// The columns of `q` that are zero become unit vectors orthogonal to the others.
void complete(Dense& q) {
  for (std::int64_t c = 0; c < q.columns(); ++c) {
    for (std::int64_t unit = 0; unit < q.rows() && column_dot(q, c, c) == 0; ++unit) {
      q(unit, c) = 1;
      for (int twice = 0; twice < 2; ++twice)  // once loses orthogonality to rounding
        for (std::int64_t other = 0; other < q.columns(); ++other) {
          if (other == c) continue;
          const double along = column_dot(q, other, c);
          for (std::int64_t i = 0; i < q.rows(); ++i) q(i, c) -= along * q(i, other);
        }
      const double length = std::sqrt(column_dot(q, c, c));
      for (std::int64_t i = 0; i < q.rows(); ++i) q(i, c) = length > 1e-8 ? q(i, c) / length : 0;
    }
  }
}

// One-sided Jacobi (Hestenes, 1958): rotates pairs of columns of a tall matrix until all are orthogonal.
struct Singular {
  Dense u, v;
  std::vector<double> s;
};
Singular singular_of_tall(Dense a) {
  const std::int64_t n = a.columns();
  Dense v(n, n);
  for (std::int64_t i = 0; i < n; ++i) v(i, i) = 1;
  bool turned = true;
  for (int sweep = 0; sweep < kMaxSweeps && turned; ++sweep) {
    turned = false;
    for (std::int64_t p = 0; p < n; ++p) {
      for (std::int64_t q = p + 1; q < n; ++q) {
        const double app = column_dot(a, p, p), aqq = column_dot(a, q, q), apq = column_dot(a, p, q);
        if (std::abs(apq) <= 1e-16 * std::sqrt(app * aqq)) continue;
        const Rotation r = diagonalizing(app, apq, aqq);
        rotate_columns(a, p, q, r.cosine, r.sine);
        rotate_columns(v, p, q, r.cosine, r.sine);
        turned = true;
      }
    }
  }
  Singular f{.u = a, .v = v, .s = std::vector<double>(static_cast<std::size_t>(n))};
  std::vector<std::pair<double, std::int64_t>> order;
  for (std::int64_t j = 0; j < n; ++j) order.emplace_back(-std::sqrt(column_dot(a, j, j)), j);
  std::sort(order.begin(), order.end());
  for (std::int64_t j = 0; j < n; ++j) {
    f.s[j] = -order[j].first;
    for (std::int64_t i = 0; i < a.rows(); ++i) f.u(i, j) = f.s[j] == 0 ? 0 : a(i, order[j].second) / f.s[j];
    for (std::int64_t i = 0; i < n; ++i) f.v(i, j) = v(i, order[j].second);
  }
  complete(f.u);
  return f;
}

void negate_column(Dense& a, std::int64_t j) {
  for (std::int64_t i = 0; i < a.rows(); ++i) a(i, j) = -a(i, j);
}

Singular singular_of(const Dense& a) {
  Singular f = singular_of_tall(a.rows() >= a.columns() ? a : a.transposed());
  if (a.rows() < a.columns()) std::swap(f.u, f.v);
  for (std::int64_t j = 0; j < f.u.columns(); ++j) {
    if (!is_turned(f.u.rows(), [&](std::int64_t i) { return f.u(i, j); })) continue;
    negate_column(f.u, j);
    negate_column(f.v, j);
  }
  return f;
}

Singular nothing(const Dense& a) {
  const std::int64_t k = std::min(a.rows(), a.columns());
  Singular f{
      .u = Dense(a.rows(), k), .v = Dense(a.columns(), k), .s = std::vector<double>(static_cast<std::size_t>(k), kNan)};
  f.u.fill(kNan);
  f.v.fill(kNan);
  return f;
}

void eval_svd(const Eqn& e, std::span<const Literal> in, std::span<Literal> out) {
  const Type t = e.in(0).type();
  const std::int64_t k = shorter(t);
  for (std::int64_t i = 0; i < batch_of(t); ++i) {
    const Dense a(in[0], rows_of(t), columns_of(t), i);
    const Singular f = a.is_finite() ? singular_of(a) : nothing(a);
    f.u.write(out[0], i);
    for (std::int64_t j = 0; j < k; ++j) out[1].set(i * k + j, f.s[j]);
    f.v.transposed().write(out[2], i);
  }
}

// --- eigh ------------------------------------------------------------------------------------------------------------

absl::StatusOr<Factors> eigh_factors(const Eqn& e) {
  if (absl::Status s = check_square(e.in(0).type()); !s.ok()) return s;
  MatrixFactors m(e.in(0).type());
  m.rule.out = {m.of({m.rows}), m.rule.in[0]};
  return m.rule;
}

// With P = V^T dA V and F_ij = 1 / (w_j - w_i): dw = diag(P), dV = V (F o P) (Giles, "An extended collection of matrix
// derivative results", 2008, 3.1).
Values eigh_jvp(Builder&, const Eqn& e, const Values& tangents) {
  const Value w = e.out(0), v = e.out(1);
  if (v.type().num_elements() == 0) return {Value(), Value()};
  const Value inner = matmul(matmul(matrix_transpose(v), symmetric_of_lower(tangents[0])), v);
  const Value gaps = inverse_gaps(along_columns(w, inner.dims()) - along_rows(w, inner.dims()));
  return {diagonal(inner), matmul(v, gaps * inner)};
}

// Jacobi's method, by cyclic sweeps over the pairs.
struct Eigen {
  std::vector<double> w;
  Dense v;
};
Eigen eigen_of(Dense a) {
  const std::int64_t n = a.rows();
  Dense v(n, n);
  for (std::int64_t i = 0; i < n; ++i) v(i, i) = 1;
  double scale = 0;
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t j = 0; j < n; ++j) scale = std::max(scale, std::abs(a(i, j)));
  bool turned = true;
  for (int sweep = 0; sweep < kMaxSweeps && turned; ++sweep) {
    turned = false;
    for (std::int64_t p = 0; p < n; ++p) {
      for (std::int64_t q = p + 1; q < n; ++q) {
        if (std::abs(a(p, q)) <= kNegligible * scale) continue;
        const Rotation r = diagonalizing(a(p, p), a(p, q), a(q, q));
        rotate_columns(a, p, q, r.cosine, r.sine);
        a = a.transposed();
        rotate_columns(a, p, q, r.cosine, r.sine);
        rotate_columns(v, p, q, r.cosine, r.sine);
        turned = true;
      }
    }
  }
  std::vector<std::pair<double, std::int64_t>> order;
  for (std::int64_t j = 0; j < n; ++j) order.emplace_back(a(j, j), j);
  std::sort(order.begin(), order.end());
  Eigen f{.w = {}, .v = v};
  for (std::int64_t j = 0; j < n; ++j) {
    f.w.push_back(order[j].first);
    const std::int64_t from = order[j].second;
    const bool is_down = is_turned(n, [&](std::int64_t i) { return v(i, from); });
    for (std::int64_t i = 0; i < n; ++i) f.v(i, j) = is_down ? -v(i, from) : v(i, from);
  }
  return f;
}

void eval_eigh(const Eqn& e, std::span<const Literal> in, std::span<Literal> out) {
  const std::int64_t n = rows_of(e.in(0).type());
  for (std::int64_t i = 0; i < batch_of(e.in(0).type()); ++i) {
    Dense a(in[0], n, n, i);
    for (std::int64_t row = 0; row < n; ++row)
      for (std::int64_t column = row + 1; column < n; ++column) a(row, column) = a(column, row);
    Eigen f{.w = std::vector<double>(static_cast<std::size_t>(n), kNan), .v = a};
    if (a.is_finite()) f = eigen_of(a);
    else f.v.fill(kNan);
    for (std::int64_t j = 0; j < n; ++j) out[0].set(i * n + j, f.w[j]);
    f.v.write(out[1], i);
  }
}

}  // namespace

constinit const OpDef qr = {
    .name = "qr",
    .doc =
        "x = Q R with orthonormal columns in Q and an upper triangular R, as many columns and rows as x's shorter extent. "
        "The signs are those of Householder's method as in LAPACK: an entry of R's diagonal is minus the sign of what it "
        "replaces, unless nothing below that had to go.",
    .arity = 1,
    .num_results = 2,
    .factors = qr_factors,
    .dtypes = same_dtype,
    .jvp = qr_jvp,
    .lower = [](const Eqn& e) -> Lowering { return library(Library::Routine::qr, e.in(0).type()); },
    .eval = eval_qr,
    .cost =
        [](const Eqn& e) {
          const Type a = e.in(0).type();
          return with_flops(e, 4 * static_cast<double>(a.num_elements()) * static_cast<double>(shorter(a)));
        },
    .ulp = 64,
    .samples =
        [] {
          return Samples{"qr f64[3, 3]", "qr f64[4, 2]", "qr f64[2, 4]", "qr f32[2, 3, 3]", "qr f32[1, 1]",
                         "qr f32[0, 0]", "qr f32[3, 0]", "qr f32[0, 3]", "qr f64[2, 3, 2]"};
        },
};

constinit const OpDef svd = {
    .name = "svd",
    .doc =
        "x = U diag(s) Vt: s descending, U and V with orthonormal columns, as many as x's shorter extent. The first "
        "component of each column of U of at least 0.3 times its largest magnitude is positive. A matrix that is not "
        "finite gives NaN throughout.",
    .arity = 1,
    .num_results = 3,
    .factors = svd_factors,
    .dtypes = same_dtype,
    .jvp = svd_jvp,
    .lower = [](const Eqn& e) -> Lowering { return library(Library::Routine::svd, e.in(0).type()); },
    .eval = eval_svd,
    .cost =
        [](const Eqn& e) {
          const Type a = e.in(0).type();
          return with_flops(e, 20 * static_cast<double>(a.num_elements()) * static_cast<double>(shorter(a)));
        },
    .ulp = 64,
    .samples =
        [] {
          return Samples{"svd f64[3, 3]", "svd f64[4, 2]", "svd f64[2, 4]", "svd f32[2, 3, 3]",
                         "svd f32[1, 1]", "svd f32[0, 0]", "svd f32[3, 0]", "svd f64[2, 3, 2]"};
        },
};

constinit const OpDef eigh = {
    .name = "eigh",
    .doc =
        "Eigenvalues, ascending, and eigenvectors, in columns, of the symmetric matrix whose lower triangle x has. The first "
        "component of each eigenvector of at least 0.3 times its largest magnitude is positive. A matrix that is not "
        "finite gives NaN throughout.",
    .arity = 1,
    .num_results = 2,
    .factors = eigh_factors,
    .dtypes = same_dtype,
    .jvp = eigh_jvp,
    .lower = [](const Eqn& e) -> Lowering { return library(Library::Routine::eigh, e.in(0).type()); },
    .eval = eval_eigh,
    .cost =
        [](const Eqn& e) {
          return with_flops(e, 10 * static_cast<double>(batch_of(e.in(0).type())) * cube(rows_of(e.in(0).type())));
        },
    .ulp = 64,
    .samples =
        [] {
          return Samples{"eigh f64[3, 3]", "eigh f32[2, 3, 3]", "eigh f64[1, 1]", "eigh f32[0, 0]",
                         "eigh f64[2, 2, 2]"};
        },
};

}  // namespace sheaf::ir::ops
