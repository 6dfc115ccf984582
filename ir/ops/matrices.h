// What the sheets of linear algebra share: matrices are the last two dims, all dims before them a batch; and rules emit
// products, triangles and triangular solves by the names they have in the papers.
#pragma once

#include "ir/op.h"
#include "ir/ops/rules.h"

namespace sheaf::ir::ops {

inline std::int64_t rows_of(Type t) { return t.dims()[t.rank() - 2]; }
inline std::int64_t columns_of(Type t) { return t.dims()[t.rank() - 1]; }
inline std::int64_t batch_of(Type t) {
  std::int64_t n = 1;
  for (int d = 0; d + 2 < t.rank(); ++d) n *= t.dims()[d];
  return n;
}

/// f32 or f64, all alike.
inline absl::Status check_matrix_dtypes(const Eqn& e) {
  for (Value v : e.operands)
    if (v.dtype() != DType::f32 && v.dtype() != DType::f64)
      return absl::InvalidArgumentError(fmt::format("takes f32 or f64, not {}", to_string(v.type())));
  return absl::OkStatus();
}

inline absl::StatusOr<std::vector<DType>> same_dtype(const Eqn& e) {
  if (absl::Status s = check_matrix_dtypes(e); !s.ok()) return s;
  return std::vector<DType>(e.op->num_results, e.in(0).dtype());
}

inline absl::Status check_rank(Type t) {
  if (t.rank() >= 2) return absl::OkStatus();
  return absl::InvalidArgumentError(fmt::format("takes matrices, not {}", to_string(t)));
}

inline absl::Status check_square(Type t) {
  if (absl::Status s = check_rank(t); !s.ok()) return s;
  if (rows_of(t) == columns_of(t)) return absl::OkStatus();
  return absl::InvalidArgumentError(fmt::format("takes square matrices, not {}", to_string(t)));
}

inline double cube(std::int64_t n) { return static_cast<double>(n) * static_cast<double>(n) * static_cast<double>(n); }

/// Everything moved once.
inline Cost with_flops(const Eqn& e, double flops) {
  Cost cost{.flops = flops, .bytes = 0};
  for (Type t : e.in_types()) cost.bytes += static_cast<double>(t.bytes());
  for (Value v : e.outs()) cost.bytes += static_cast<double>(v.type().bytes());
  return cost;
}

inline lowering::Library library(lowering::Library::Routine routine, Type t) {
  return {.routine = routine, .batch = batch_of(t), .rows = rows_of(t), .columns = columns_of(t)};
}

/// The factors of one matrix operand: a batch passes through, rows (of `r.in[0]`) and columns stay whole.
struct MatrixFactors {
  Factors rule;
  TensorFactors batch;
  FactorList rows, columns;

  explicit MatrixFactors(Type t) {
    for (int d = 0; d + 2 < t.rank(); ++d) batch.push_back({rule.add(t.dims()[d])});
    rows = {rule.add(rows_of(t), FactorClass::N)};
    columns = {rule.add(columns_of(t), FactorClass::N)};
    rule.in = {of({rows, columns})};
  }
  TensorFactors of(std::initializer_list<FactorList> last) const {
    TensorFactors all = batch;
    all.insert(all.end(), last);
    return all;
  }
};

inline Value matrix_transpose(Value x) {
  DimList perm = dim_range(0, x.rank());
  std::swap(perm[perm.size() - 1], perm[perm.size() - 2]);
  return permute(x, perm);
}

/// a b, batch dims alike.
inline Value matmul(Value a, Value b) {
  const int batch = a.rank() - 2;
  return a.builder().emit(
      dot, {a, b},
      Dot{.lhs = {batch + 1}, .rhs = {batch}, .lhs_batch = dim_range(0, batch), .rhs_batch = dim_range(0, batch)});
}

inline Value solve_triangular(Value a, Value b, TriangularSolve how) {
  return a.builder().emit(triangular_solve, {a, b}, how);
}
/// The X with X op(a) = b: op(a)^T X^T = b^T.
inline Value solve_triangular_right(Value a, Value b, TriangularSolve how) {
  how.transposed = !how.transposed;
  return matrix_transpose(solve_triangular(a, matrix_transpose(b), how));
}

/// Where row `relation` column: lt is above the diagonal, eq on it, gt below.
inline Value positions(Value x, const OpDef& relation) {
  Builder& b = x.builder();
  const Shape last{rows_of(x.type()), columns_of(x.type())};
  const Value row = b.emit(iota, {}, Iota{.shape = last, .dim = {0}, .dtype = DType::i32});
  const Value column = b.emit(iota, {}, Iota{.shape = last, .dim = {1}, .dtype = DType::i32});
  return broadcast_to(b.emit(relation, {row, column}), x.dims(), dim_range(x.rank() - 2, 2));
}

inline Value lower_triangle(Value x) { return where_or_zero(positions(x, ge), x); }
inline Value upper_triangle(Value x) { return where_or_zero(positions(x, le), x); }
inline Value strictly_lower(Value x) { return where_or_zero(positions(x, gt), x); }
inline Value strictly_upper(Value x) { return where_or_zero(positions(x, lt), x); }

/// The symmetric matrix with x's lower triangle.
inline Value symmetric_of_lower(Value x) { return lower_triangle(x) + matrix_transpose(strictly_lower(x)); }

/// Element i of each vector all along row i, or column i, of a matrix of the shape.
inline Value along_rows(Value vectors, const Shape& shape) {
  return broadcast_to(vectors, shape, dim_range(0, vectors.rank()));
}
inline Value along_columns(Value vectors, const Shape& shape) {
  DimList dims = dim_range(0, vectors.rank());
  ++dims.back();
  return broadcast_to(vectors, shape, dims);
}
inline Value diagonal(Value x) {
  return reduce_dims(where_or_zero(positions(x, eq), x), ReduceKind::sum, {x.rank() - 1});
}

/// Row i of the result is row permutation[i] of x.
inline Value permuted_rows(Value x, Value permutation) {
  const int rank = x.rank();
  if (x.dims()[rank - 2] == 0) return x;  // no row to take
  const DimList batch = dim_range(0, rank - 2);
  Shape with_index = permutation.dims(), sizes(rank, 1);
  with_index.push_back(1);
  sizes.back() = columns_of(x.type());
  return x.builder().emit(gather, {x, reshape_to(permutation, with_index)},
                          Gather{.offset_dims = {rank - 1},
                                 .collapsed = {rank - 2},
                                 .start_index_map = {rank - 2},
                                 .operand_batch = batch,
                                 .indices_batch = batch,
                                 .index_dim = {rank - 1},
                                 .slice_sizes = sizes,
                                 .mode = lowering::OutOfBounds::promise});
}

inline Value identity_like(Value x) { return where_or_zero(positions(x, eq), x.builder().full(x.type(), 1)); }

}  // namespace sheaf::ir::ops
