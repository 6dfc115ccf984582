// Linear algebra in NumPy's clothes: shapes are checked and broadcast here, the ops factor, and the rest is composed of
// them.
#include "sheaf/linalg.h"

#include <fmt/format.h>

#include <algorithm>

#include "ir/ops/attrs.h"
#include "ir/ops/matrices.h"
#include "sheaf/custom.h"
#include "trace/apply.h"
#include "trace/messages.h"
#include "trace/recorder.h"

namespace sheaf::linalg {
namespace {

namespace ops = ir::ops;
using ir::Values;

[[noreturn]] void throw_matrix(std::string_view name, const std::string& what, const Operand& x) {
  const Named named{"operand", x.array()};
  throw ShapeError(UserLine::or_own(x.loc()), fmt::format("{}: {}{}", name, what, describe({&named, 1})));
}

[[noreturn]] void throw_pair(std::string_view name, const std::string& what, const Operand& a, const Operand& b) {
  const Named named[] = {{"matrix", a.array()}, {"right-hand side", b.array()}};
  throw ShapeError(UserLine::or_own(a.loc()), fmt::format("{}: {}{}", name, what, describe(named)));
}

/// f32 or f64: the dtype itself, f32 of integers and bools.
DType computed_dtype(std::string_view name, const Operand& x) {
  const DType t = x.dtype();
  if (t == f32 || t == f64) return t;
  if (is_int(t) || is_bool(t)) return f32;
  const Named named{"operand", x.array()};
  throw TypeError(UserLine::or_own(x.loc()), fmt::format("{}: takes f32 or f64, not {}; convert it first{}", name,
                                                         sheaf::name(t), describe({&named, 1})));
}

void check_matrix(std::string_view name, const Operand& x) {
  if (x.rank() < 2) throw_matrix(name, "takes matrices, of at least two dims", x);
}

void check_square(std::string_view name, const Operand& x) {
  check_matrix(name, x);
  const Shape shape = x.shape();
  const std::int64_t rows = shape[shape.size() - 2], columns = shape.back();
  if (rows != columns) throw_matrix(name, fmt::format("takes square matrices, not {} x {}", rows, columns), x);
}

/// One op on x, in f32 or f64.
std::vector<Array> factors(std::string_view name, const ir::OpDef& op, Operand x) {
  return apply(name, RuleKey(), std::vector{Input(x, computed_dtype(name, x))}, x.loc(),
               [&](ir::Builder& b, const Values& in) { return emit(b, op, in); });
}

ir::Value symmetrized(ir::Value x) { return (x + ops::matrix_transpose(x)) * 0.5; }

/// The op of a symmetric matrix, on the symmetric part of x.
std::vector<Array> symmetric_factors(std::string_view name, const ir::OpDef& op, Operand x) {
  check_square(name, x);
  return apply(name, RuleKey(), std::vector{Input(x, computed_dtype(name, x))}, x.loc(),
               [&](ir::Builder& b, const Values& in) { return emit(b, op, {symmetrized(in[0])}); });
}

Array swap_last(const Array& x) { return swapaxes(x, -1, -2); }

/// Batch dims of the two, broadcast together.
Shape common_batch(std::string_view name, const Operand& a, const Operand& b) {
  const Shape as = a.shape(), bs = b.shape();
  const Shape lead_a(as.begin(), as.end() - 2), lead_b(bs.begin(), bs.end() - 2);
  Shape lead = lead_a.size() >= lead_b.size() ? lead_a : lead_b;
  for (std::size_t i = 1; i <= lead.size(); ++i) {
    const std::int64_t m = i <= lead_a.size() ? lead_a[lead_a.size() - i] : 1;
    const std::int64_t n = i <= lead_b.size() ? lead_b[lead_b.size() - i] : 1;
    if (m != n && m != 1 && n != 1)
      throw_pair(name,
                 fmt::format("batch dims {} and {} cannot be broadcast together", to_string(lead_a), to_string(lead_b)),
                 a, b);
    lead[lead.size() - i] = m == 1 ? n : m;
  }
  return lead;
}

/// Calls `solve_matrices` with operands of one dtype and equal batch dims; a vector b is a matrix of one column.
Array solved(std::string_view name, RuleKey key, Operand a, Operand b,
             absl::FunctionRef<Array(const Array&, const Array&)> solve_matrices) {
  check_square(name, a);
  const std::int64_t n = a.shape().back();
  const bool is_vector = b.rank() == 1;
  if (b.rank() == 0) throw_pair(name, "the right-hand side must be a vector or matrices", a, b);
  const std::int64_t have = is_vector ? b.shape()[0] : b.shape()[b.rank() - 2];
  if (have != n) throw_pair(name, fmt::format("a matrix of {} rows and a right-hand side of {}", n, have), a, b);
  const DType dtype = computed_dtype(name, a) == f64 || computed_dtype(name, b) == f64 ? f64 : f32;
  const Array column = is_vector ? expand_dims(b, {-1}) : to_array(b);
  const Shape lead = common_batch(name, a, Operand(column, b.loc()));
  return compose1(name, std::move(key), {a, column}, a.loc(), [&](std::span<const Array> in) {
    const auto with_lead = [&](const Array& x) {
      Shape shape = lead;
      shape.insert(shape.end(), x.shape().end() - 2, x.shape().end());
      return broadcast_to(convert(x, dtype), shape);
    };
    const Array x = solve_matrices(with_lead(in[0]), with_lead(in[1]));
    return is_vector ? squeeze(x, {-1}) : x;
  });
}

}  // namespace

Array cholesky(Operand x) { return symmetric_factors("cholesky", ops::cholesky, x)[0]; }

Array triangular_solve(Operand a, Operand b, const Triangular& options) {
  const ops::TriangularSolve how{options.lower, options.transposed, options.unit_diagonal};
  const auto key = [&] {
    RuleKey k;
    k.add(std::int64_t{how.lower}).add(std::int64_t{how.transposed}).add(std::int64_t{how.unit_diagonal});
    return k;
  };
  return solved("triangular_solve", key(), a, b, [&](const Array& matrix, const Array& rhs) {
    return apply1("triangular_solve", key(), {matrix, rhs}, {}, [&](ir::Builder& builder, const Values& in) -> Values {
      return {emit1(builder, ops::triangular_solve, in, how)};
    });
  });
}

Lu lu(Operand x) {
  check_matrix("lu", x);
  const std::vector<Array> f = factors("lu", ops::lu, x);
  return {f[0], f[1], f[2]};
}

Qr qr(Operand x) {
  check_matrix("qr", x);
  const std::vector<Array> f = factors("qr", ops::qr, x);
  return {f[0], f[1]};
}

Svd svd(Operand x) {
  check_matrix("svd", x);
  const std::vector<Array> f = factors("svd", ops::svd, x);
  return {f[0], f[1], f[2]};
}

Eigh eigh(Operand x) {
  const std::vector<Array> f = symmetric_factors("eigh", ops::eigh, x);
  return {f[0], f[1]};
}

namespace {

/// A function of the given types, made of one rule.
ir::FunctionRef region(std::string name, const Values& like, absl::FunctionRef<ir::Value(const Values&)> rule) {
  ir::Builder b(std::move(name));
  Values params;
  for (ir::Value v : like) params.push_back(b.param(v.type()));
  return b.finish({rule(params)});
}

/// The permutation that undoes it: positions in the order of what stands there.
ir::Value inverse_permutation(ir::Value permutation) {
  ir::Builder& b = permutation.builder();
  const int last = permutation.rank() - 1;
  const ir::Value position = b.emit(ops::iota, {}, ops::Iota{.shape = permutation.dims(), .dim = {last}, .dtype = i32});
  return b.emit_all(&ops::sort, {permutation, position},
                    std::make_shared<const ops::Sort>(ops::Sort{.dim = {last}}))[1];
}

// Operands: a, its factors and permutation, b.
ir::Value product(const Values& in) { return ops::matmul(in[0], in[3]); }
ir::Value solution(const Values& in) {
  const ir::Value y =
      ops::solve_triangular(in[1], ops::permuted_rows(in[3], in[2]), {.lower = true, .unit_diagonal = true});
  return ops::solve_triangular(in[1], y, {.lower = false});
}
ir::Value transposed_solution(const Values& in) {
  const ir::Value y = ops::solve_triangular(in[1], in[3], {.lower = false, .transposed = true});
  const ir::Value x = ops::solve_triangular(in[1], y, {.lower = true, .transposed = true, .unit_diagonal = true});
  return ops::permuted_rows(x, inverse_permutation(in[2]));
}

/// As a linear solve, whose derivative never differentiates the factors.
Values solve_by_lu(ir::Builder& b, const Values& in) {
  const ir::Value constant_a = b.emit(ops::stop_gradient, {in[0]});
  const Values f = b.emit_all(&ops::lu, {constant_a});
  const Values operands{in[0], f[0], f[2], in[1]};
  auto attrs = std::make_shared<const ops::CustomLinearSolve>(ops::CustomLinearSolve{.consts = 3});
  return b.emit_all(&ops::custom_linear_solve, operands, std::move(attrs),
                    {region("product", operands, product), region("solution", operands, solution),
                     region("transposed_solution", operands, transposed_solution)});
}

}  // namespace

Array solve(Operand a, Operand b) {
  return solved("solve", RuleKey(), a, b, [](const Array& matrix, const Array& rhs) {
    return apply1("solve", RuleKey(), {matrix, rhs}, {}, solve_by_lu);
  });
}

Array inv(Operand x) {
  check_square("inv", x);
  const DType dtype = computed_dtype("inv", x);
  return compose1("inv", RuleKey(), {x}, x.loc(), [&](std::span<const Array> in) {
    return solve(in[0], broadcast_to(eye(in[0].shape().back(), dtype), in[0].shape()));
  });
}

namespace {

/// sign: -1 for each row that was swapped with another, times that of each element of U's diagonal.
struct Diagonal {
  Array elements, parity;
};
Diagonal eliminated(const Array& x) {
  const Lu f = lu(x);
  const Shape shape = x.shape();
  const std::int64_t n = shape.back();
  const Array elements = sum(where(eye(n, f.lu.dtype()) != 0, f.lu, zeros_like(f.lu)), {.axes = {-1}});
  const Array swaps = sum(convert(f.pivots != arange(n), i32), {.axes = {-1}});
  return {elements, convert(1 - 2 * mod(swaps, 2), f.lu.dtype())};
}

}  // namespace

Array det(Operand x) {
  check_square("det", x);
  computed_dtype("det", x);
  return compose1("det", RuleKey(), {x}, x.loc(), [](std::span<const Array> in) {
    const Diagonal d = eliminated(in[0]);
    return prod(d.elements, {.axes = {-1}}) * d.parity;
  });
}

Slogdet slogdet(Operand x) {
  check_square("slogdet", x);
  computed_dtype("slogdet", x);
  const Operand operands[] = {x};
  const std::vector<Array> r = compose("slogdet", RuleKey(), operands, x.loc(), [](std::span<const Array> in) {
    const Diagonal d = eliminated(in[0]);
    return std::vector{prod(sign(d.elements), {.axes = {-1}}) * d.parity, sum(log(abs(d.elements)), {.axes = {-1}})};
  });
  return {r[0], r[1]};
}

namespace {

/// Full, whatever a PrecisionScope permits to the products that users write.
Array product(const Array& a, const Array& b) { return matmul(a, b, {.precision = Precision::full}); }

Array pinv_by_svd(const Array& a, double cutoff) {
  const Svd f = svd(a);
  if (f.s.size() == 0) return swap_last(a);
  const Array is_kept = f.s > cutoff * max(f.s, {.axes = {-1}, .keepdims = true});
  const Array inverse = where(is_kept, reciprocal(where(is_kept, f.s, ones_like(f.s))), zeros_like(f.s));
  return product(swap_last(f.vt) * expand_dims(inverse, {-2}), swap_last(f.u));
}

/// With P the pseudoinverse: dP = -P dA P + P P^T dA^T (I - A P) + (I - P A) dA^T P^T P (Golub and Pereyra, 1973),
/// which asks for no gaps between singular values. `exact` derivatives are taken so, those beyond through the svd.
Array pinv_of(const Array& a, double cutoff, int exact) {
  if (exact == 0) return pinv_by_svd(a, cutoff);
  const auto value = [=](Array x) { return pinv_by_svd(x, cutoff); };
  const auto rule = [=](Array x, Array dx) {
    const Array p = pinv_of(x, cutoff, exact - 1), pt = swap_last(p), dxt = swap_last(dx);
    const Array left = product(product(p, pt), dxt), right = product(dxt, product(pt, p));
    return std::pair{
        p, left - product(product(left, x), p) + right - product(p, product(x, right)) - product(product(p, dx), p)};
  };
  return custom_jvp(value, rule)(a);
}

}  // namespace

Array pinv(Operand x, std::optional<double> cutoff) {
  check_matrix("pinv", x);
  const DType dtype = computed_dtype("pinv", x);
  const Shape shape = x.shape();
  const double epsilon = dtype == f64 ? 0x1p-52 : 0x1p-23;
  const double limit =
      cutoff.value_or(10 * epsilon * static_cast<double>(std::max(shape[shape.size() - 2], shape.back())));
  return compose1("pinv", RuleKey().add(limit), {x}, x.loc(),
                  [&](std::span<const Array> in) { return pinv_of(convert(in[0], dtype), limit, 2); });
}

Array lstsq(Operand a, Operand b, std::optional<double> cutoff) {
  check_matrix("lstsq", a);
  const std::int64_t rows = a.shape()[a.rank() - 2];
  if (b.rank() == 0) throw_pair("lstsq", "the right-hand side must be a vector or matrices", a, b);
  const std::int64_t have = b.rank() == 1 ? b.shape()[0] : b.shape()[b.rank() - 2];
  if (have != rows)
    throw_pair("lstsq", fmt::format("a matrix of {} rows and a right-hand side of {}", rows, have), a, b);
  return matmul(pinv(a, cutoff), b, {.precision = Precision::full});
}

Array matrix_power(Operand x, int exponent) {
  check_square("matrix_power", x);
  const DType dtype = computed_dtype("matrix_power", x);
  return compose1("matrix_power", RuleKey().add(std::int64_t{exponent}), {x}, x.loc(), [&](std::span<const Array> in) {
    Array square = exponent < 0 ? inv(in[0]) : convert(in[0], dtype);
    Array power = broadcast_to(eye(square.shape().back(), dtype), square.shape());
    bool is_one = true;
    for (std::int64_t left = std::abs(std::int64_t{exponent}); left > 0; left /= 2) {
      if (left % 2 != 0) power = std::exchange(is_one, false) ? square : product(power, square);
      if (left > 1) square = product(square, square);
    }
    return power;
  });
}

namespace {

/// sqrt(sum of squares); where that is 0 the root is not taken, so its gradient is 0.
Array length(const Array& x, const std::vector<std::int64_t>& axes) {
  const Array squares = sum(x * x, {.axes = axes});
  const Array is_zero = squares == 0;
  return where(is_zero, zeros_like(squares), sqrt(where(is_zero, ones_like(squares), squares)));
}

Array vector_norm(const Array& x, Norm kind, const std::vector<std::int64_t>& axes) {
  if (kind == Norm::one) return sum(abs(x), {.axes = axes});
  if (kind == Norm::inf) return max(abs(x), {.axes = axes});
  return length(x, axes);
}

/// Of the matrices in the last two dims.
Array matrix_norm(const Array& x, Norm kind) {
  switch (kind) {
    case Norm::frobenius: return length(x, {-2, -1});
    case Norm::one: return max(sum(abs(x), {.axes = {-2}}), {.axes = {-1}});
    case Norm::inf: return max(sum(abs(x), {.axes = {-1}}), {.axes = {-1}});
    case Norm::two: break;
  }
  const Array largest = max(svd(x).s, {.axes = {-1}});
  return where(largest == 0, zeros_like(largest), largest);
}

}  // namespace

Array norm(Operand x, const NormOptions& options) {
  std::vector<std::int64_t> axes = checked_axes("norm", x, options.axes, x.loc());
  const bool is_flat = axes.empty() && options.kind == Norm::frobenius;
  if (axes.empty())
    for (int d = 0; d < x.rank(); ++d) axes.push_back(d);
  if (!is_flat && axes.size() != 1 && axes.size() != 2)
    throw_matrix("norm", fmt::format("takes one axis, of vectors, or two, of matrices, not {}", axes.size()), x);
  const DType dtype = is_differentiable(x.dtype()) ? x.dtype() : f32;
  RuleKey key;
  key.add(static_cast<std::int64_t>(options.kind))
      .add(axes)
      .add(std::int64_t{options.keepdims})
      .add(std::int64_t{is_flat});
  return compose1("norm", std::move(key), {x}, x.loc(), [&](std::span<const Array> in) {
    const Array v = convert(in[0], dtype);
    Array r;
    if (is_flat || axes.size() == 1) {
      r = vector_norm(v, options.kind, axes);
    } else {
      std::vector<std::int64_t> perm = ops::other_dims(axes, v.rank());
      perm.insert(perm.end(), axes.begin(), axes.end());
      r = matrix_norm(transpose(v, perm), options.kind);
    }
    Shape kept = v.shape();
    for (const std::int64_t a : axes) kept[a] = 1;
    return options.keepdims ? reshape(r, kept) : r;
  });
}

}  // namespace sheaf::linalg
