// The table of scalar functions: name, definition, stated error and reference, one row each; and the DAGs built from
// it, once per dtype. Invariant: half types compute in f32 and round once, at the end.
#include <array>
#include <cmath>
#include <memory>
#include <mutex>

#include "absl/container/flat_hash_map.h"
#include "ir/scalar_expr.h"
#include "ir/scalar_reference.h"

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

  // For functions whose zeros lie at irrational places: the bounds hold for x >= 0, and are absolute where |f| < 1.
  constexpr Row for_positive() const {
    Row row = *this;
    row.info.lowest = 0;
    row.info.scale = 1;
    return row;
  }
};

template <double (*f)(double)>
double in_double(double x, double) {
  return f(x);
}
template <long double (*f)(long double)>
long double in_long(long double x, long double) {
  return f(x);
}

template <long double (*f)(long double)>
double narrowed(double x, double) {
  return static_cast<double>(f(x));
}

template <double (*f)(double), long double (*g)(long double)>
constexpr Row unary(std::string_view name, Expr (*definition)(Expr), double max_ulp_f32, double max_ulp_f64) {
  return {{name, 1, max_ulp_f32, max_ulp_f64, in_double<f>, in_long<g>}, definition};
}

template <long double (*f)(long double)>
constexpr Row own_reference(std::string_view name, Expr (*definition)(Expr), double max_ulp_f32, double max_ulp_f64) {
  return {{name, 1, max_ulp_f32, max_ulp_f64, narrowed<f>, in_long<f>}, definition};
}

template <double (*f)(double, double), long double (*g)(long double, long double)>
constexpr Row binary(std::string_view name, Expr (*definition)(Expr, Expr), double max_ulp_f32, double max_ulp_f64) {
  return {{name, 2, max_ulp_f32, max_ulp_f64, f, g}, nullptr, definition};
}

const std::array kRows = {
    unary<std::exp, std::exp>("exp", exp, 1, 1),
    unary<std::expm1, std::expm1>("expm1", expm1, 1.5, 2),
    unary<std::exp2, std::exp2>("exp2", exp2, 1.1, 1.1),
    unary<std::log, std::log>("log", log, 0.9, 0.9),
    unary<std::log1p, std::log1p>("log1p", log1p, 1, 1),
    unary<std::log2, std::log2>("log2", log2, 1.1, 1.1),
    unary<std::sin, std::sin>("sin", sin, 0.8, 0.8),
    unary<std::cos, std::cos>("cos", cos, 0.8, 0.8),
    unary<std::tan, std::tan>("tan", tan, 2.3, 2.3),
    unary<std::asin, std::asin>("asin", asin, 1.4, 1.2),
    unary<std::acos, std::acos>("acos", acos, 0.9, 0.8),
    unary<std::atan, std::atan>("atan", atan, 1.9, 1.9),
    unary<std::sinh, std::sinh>("sinh", sinh, 1.7, 1.7),
    unary<std::cosh, std::cosh>("cosh", cosh, 1.5, 1.5),
    unary<std::tanh, std::tanh>("tanh", tanh, 2.5, 2.6),
    own_reference<logistic_reference>("logistic", logistic, 2.4, 2.5),
    unary<std::asinh, std::asinh>("asinh", asinh, 1.8, 1.8),
    unary<std::acosh, std::acosh>("acosh", acosh, 2, 2),
    unary<std::atanh, std::atanh>("atanh", atanh, 2.1, 2.1),
    binary<std::atan2, std::atan2>("atan2", atan2, 2, 2),
    unary<std::cbrt, std::cbrt>("cbrt", cbrt, 0.8, 0.7),
    binary<std::pow, std::pow>("pow", pow, 0.6, 1),
    unary<std::erf, std::erf>("erf", erf, 1.1, 1.2),
    unary<std::erfc, std::erfc>("erfc", erfc, 3.6, 4),
    own_reference<erf_inv_reference>("erf_inv", erf_inv, 2.7, 2.7),
    own_reference<lgamma_reference>("lgamma", lgamma, 0.6, 2.7).for_positive(),
    own_reference<digamma_reference>("digamma", digamma, 0.6, 4.7).for_positive(),
    own_reference<rsqrt_reference>("rsqrt", rsqrt, 1.5, 1.5),
};

const Row* find_row(std::string_view name) {
  for (const Row& row : kRows) {
    if (row.info.name == name) return &row;
  }
  return nullptr;
}

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
  static auto& cache = *new Cache<std::pair<const Row*, DType>>;  // never destroyed: threads may outlive main
  const Row* row = find_row(name);
  if (!row || !is_float(dtype)) return nullptr;
  return &cache.get({row, dtype}, [&] { return build(*row, dtype); });
}

const ScalarFn& scalar_primitive(ScalarOp op, DType dtype) {
  static auto& cache = *new Cache<std::pair<ScalarOp, DType>>;
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
