// The table of scalar functions: name, definition, stated error and reference, one row each; and the DAGs built from
// it, once per dtype. Invariant: half types compute in f32 and round once, at the end.
#include <cmath>
#include <limits>
#include <memory>
#include <mutex>

#include "absl/container/flat_hash_map.h"
#include "ir/scalar_expr.h"

namespace sheaf::ir {

Expr copy_sign(Expr x, Expr sign) {
  const Expr bits = to_int_bits(x);
  const Expr sign_mask = bits.like_bits(is_f64(x) ? 0x8000000000000000u : 0x80000000u);
  return from_int_bits((bits & !sign_mask) | (to_int_bits(sign) & sign_mask));
}

namespace {

struct Row {
  ScalarFunctionInfo info;
  Expr (*unary)(Expr) = nullptr;
  Expr (*binary)(Expr, Expr) = nullptr;
};

template <double (*f)(double)>
double in_double(double x, double) { return f(x); }
template <long double (*f)(long double)>
long double in_long(long double x, long double) { return f(x); }

template <class T>
T logistic_reference(T x) { return 1 / (1 + std::exp(-x)); }
template <class T>
T rsqrt_reference(T x) { return 1 / std::sqrt(x); }

// Computed in long double whatever T, since the iteration loses a few bits.
template <class T>
T erf_inv_reference(T value) {
  const long double x = value, a = std::fabs(x);
  if (!(a < 1)) return static_cast<T>(a == 1 ? std::copysign(std::numeric_limits<T>::infinity(), value) : std::nan(""));
  // Newton's method on log erfc, which is nearly linear in y^2, from an asymptotic guess; on erf itself near zero.
  const long double w = -std::log((1 - a) * (1 + a));
  long double y = a < 0.5L ? a * 0.886L : std::sqrt(w) * 0.9L;
  for (int i = 0; i < 60; ++i) {
    const long double slope = 1.12837916709551257389616L * std::exp(-y * y);
    const long double complement = std::erfc(y);
    const long double step =
        a < 0.5L ? (std::erf(y) - a) / slope : -(std::log(complement) - std::log1p(-a)) * complement / slope;
    y -= step;
    if (std::fabs(step) <= 1e-19L * y) break;
  }
  return static_cast<T>(std::copysign(y, x));
}

template <class T>
T lgamma_reference(T x) { return std::lgamma(x); }

template <class T>
T digamma_reference(T value) {
  long double x = value;
  if (x == 0) return static_cast<T>(-1 / x);
  if (std::isinf(x)) return x > 0 ? value : std::numeric_limits<T>::quiet_NaN();
  long double sum = 0;
  if (x < 0) {
    const long double r = x - std::round(x);
    if (r == 0) return std::numeric_limits<T>::quiet_NaN();
    constexpr long double pi = 3.14159265358979323846264338328L;
    sum = -pi / std::tan(pi * r);
    x = 1 - x;
  }
  for (; x < 20; x += 1) sum -= 1 / x;
  const long double z = 1 / (x * x);
  constexpr long double terms[] = {-3617.0L / 8160, 1.0L / 12, -691.0L / 32760, 1.0L / 132, -1.0L / 240, 1.0L / 252,
                                   -1.0L / 120, 1.0L / 12};
  long double series = 0;
  for (long double term : terms) series = series * z + term;
  return static_cast<T>(sum + std::log(x) - 1 / (2 * x) - series * z);
}

template <double (*f)(double), long double (*g)(long double)>
constexpr Row unary(std::string_view name, Expr (*definition)(Expr), double max_ulp_f32, double max_ulp_f64) {
  return {{name, 1, max_ulp_f32, max_ulp_f64, in_double<f>, in_long<g>}, definition};
}

template <double (*f)(double, double), long double (*g)(long double, long double)>
constexpr Row binary(std::string_view name, Expr (*definition)(Expr, Expr), double max_ulp_f32, double max_ulp_f64) {
  return {{name, 2, max_ulp_f32, max_ulp_f64, f, g}, nullptr, definition};
}

const std::array kRows = {
    unary<std::exp, std::exp>("exp", exp, 9, 9),
    unary<std::expm1, std::expm1>("expm1", expm1, 9, 9),
    unary<std::exp2, std::exp2>("exp2", exp2, 9, 9),
    unary<std::log, std::log>("log", log, 9, 9),
    unary<std::log1p, std::log1p>("log1p", log1p, 9, 9),
    unary<std::log2, std::log2>("log2", log2, 9, 9),
    unary<std::sin, std::sin>("sin", sin, 9, 9),
    unary<std::cos, std::cos>("cos", cos, 9, 9),
    unary<std::tan, std::tan>("tan", tan, 9, 9),
    unary<std::asin, std::asin>("asin", asin, 9, 9),
    unary<std::acos, std::acos>("acos", acos, 9, 9),
    unary<std::atan, std::atan>("atan", atan, 9, 9),
    unary<std::sinh, std::sinh>("sinh", sinh, 9, 9),
    unary<std::cosh, std::cosh>("cosh", cosh, 9, 9),
    unary<std::tanh, std::tanh>("tanh", tanh, 9, 9),
    unary<std::asinh, std::asinh>("asinh", asinh, 9, 9),
    unary<std::acosh, std::acosh>("acosh", acosh, 9, 9),
    unary<std::atanh, std::atanh>("atanh", atanh, 9, 9),
    unary<logistic_reference<double>, logistic_reference<long double>>("logistic", logistic, 3, 3),
    binary<std::atan2, std::atan2>("atan2", atan2, 3, 3),
    unary<std::cbrt, std::cbrt>("cbrt", cbrt, 9, 9),
    binary<std::pow, std::pow>("pow", pow, 9, 9),
    unary<std::erf, std::erf>("erf", erf, 9, 9),
    unary<std::erfc, std::erfc>("erfc", erfc, 9, 9),
    unary<erf_inv_reference<double>, erf_inv_reference<long double>>("erf_inv", erf_inv, 9, 9),
    unary<lgamma_reference<double>, lgamma_reference<long double>>("lgamma", lgamma, 9, 9),
    unary<digamma_reference<double>, digamma_reference<long double>>("digamma", digamma, 9, 9),
    unary<rsqrt_reference<double>, rsqrt_reference<long double>>("rsqrt", rsqrt, 1.5, 1.5),
};

const Row* find_row(std::string_view name) {
  for (const Row& row : kRows) {
    if (row.info.name == name) return &row;
  }
  return nullptr;
}

DType compute_dtype(DType t) { return accumulator(t); }

ScalarFn build(const Row& row, DType dtype) {
  ScalarBuilder builder;
  const auto arg = [&](int index) {
    return Expr{&builder, builder.convert(builder.arg(index, dtype), compute_dtype(dtype))};
  };
  Expr x = arg(0);
  const Expr value = row.info.arity == 1 ? row.unary(x) : row.binary(x, arg(1));
  return builder.finish(builder.convert(value.ref, dtype));
}

ScalarFn build(ScalarOp op, DType dtype) {
  ScalarBuilder builder;
  ScalarBuilder::Ref in[3];
  const int first_typed = op == ScalarOp::select ? 1 : 0;
  for (int i = 0; i < arity(op); ++i) {
    in[i] = builder.arg(i, i < first_typed ? DType::bool_ : dtype);
    if (i >= first_typed) in[i] = builder.convert(in[i], compute_dtype(dtype));
  }
  const ScalarBuilder::Ref value = builder.emit(op, in[0], in[1], in[2]);
  return builder.finish(is_bool(builder.dtype(value)) ? value : builder.convert(value, dtype));
}

// Built once per key; the DAGs never move.
template <class Key>
class Cache {
 public:
  template <class Build>
  const ScalarFn& get(Key key, Build&& make) {
    const std::lock_guard lock(mutex_);
    std::unique_ptr<const ScalarFn>& slot = functions_[key];
    if (!slot) slot = std::make_unique<const ScalarFn>(make());
    return *slot;
  }

 private:
  std::mutex mutex_;
  absl::flat_hash_map<Key, std::unique_ptr<const ScalarFn>> functions_;
};

}  // namespace

const ScalarFn* scalar_function(std::string_view name, DType dtype) {
  static Cache<std::pair<const Row*, DType>> cache;
  const Row* row = find_row(name);
  if (!row || !is_float(dtype)) return nullptr;
  return &cache.get({row, dtype}, [&] { return build(*row, dtype); });
}

const ScalarFn& scalar_primitive(ScalarOp op, DType dtype) {
  static Cache<std::pair<ScalarOp, DType>> cache;
  return cache.get({op, dtype}, [&] { return build(op, dtype); });
}

std::span<const ScalarFunctionInfo> scalar_functions() {
  static const std::vector<ScalarFunctionInfo> infos = [] {
    std::vector<ScalarFunctionInfo> all;
    for (const Row& row : kRows) all.push_back(row.info);
    return all;
  }();
  return infos;
}

}  // namespace sheaf::ir
