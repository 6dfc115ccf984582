// One op on given literals: its value by the reference interpreter, its derivatives, or the message that refuses it.
#pragma once

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "ir/builder.h"
#include "ir/eval.h"
#include "ir/ops/attrs.h"
#include "passes/transforms.h"

namespace sheaf::ir {

inline constexpr double kInf = std::numeric_limits<double>::infinity();
inline const double kNan = std::numeric_limits<double>::quiet_NaN();

inline Literal vec(DType dtype, const std::vector<double>& values) {
  return Literal(dtype, {static_cast<std::int64_t>(values.size())}, values);
}

inline std::vector<double> values(const Literal& x) {
  std::vector<double> v;
  for (std::int64_t i = 0; i < x.size(); ++i) v.push_back(x.get(i));
  return v;
}

inline FunctionRef one_op(const OpDef& op, const Literals& in, std::shared_ptr<const void> attrs = nullptr) {
  Builder b;
  Values params;
  for (const Literal& x : in) params.push_back(b.param(x.type()));
  return b.finish(b.emit_all(&op, std::move(params), std::move(attrs)));
}

template <class A>
std::shared_ptr<const void> with(A attrs) {
  return std::make_shared<const A>(std::move(attrs));
}

inline Literal run(const OpDef& op, const Literals& in, std::shared_ptr<const void> attrs = nullptr) {
  return eval(*one_op(op, in, std::move(attrs)), in)[0];
}

/// The message with which the op refuses operands of these types.
inline std::string refusal(const OpDef& op, const std::vector<Type>& types,
                           std::shared_ptr<const void> attrs = nullptr) {
  Builder b;
  Values params;
  for (const Type& t : types) params.push_back(b.param(t));
  const auto result = b.try_emit(&op, std::move(params), std::move(attrs));
  return result.ok() ? "accepted as " + to_string((*result)[0].type()) : std::string(result.status().message());
}

inline bool same(double a, double b) {
  return (std::isnan(a) && std::isnan(b)) || (a == b && std::signbit(a) == std::signbit(b));
}

/// Equal to the bit, NaN payloads and their signs aside; -0 is not 0.
inline void check_values(const Literal& got, const std::vector<double>& want) {
  REQUIRE(got.size() == static_cast<std::int64_t>(want.size()));
  for (std::int64_t i = 0; i < got.size(); ++i)
    CHECK_MESSAGE(same(got.get(i), want[i]), "element ", i, ": ", got.get(i), " for ", want[i]);
}

/// d(result)/d(operand k) of a one-result function, element by element: forward mode with a tangent of ones, which
/// reverse mode with a cotangent of ones must equal.
inline std::vector<double> derivative(const FunctionRef& f, const Literals& in, int k) {
  passes::Mask wrt(in.size(), false);
  wrt[k] = true;
  Literal ones(f->params()[k].type());
  for (std::int64_t i = 0; i < ones.size(); ++i) ones.set(i, 1);
  Literals with_tangent = in;
  with_tangent.push_back(ones);
  const Literals forward = eval(*passes::jvp(f, wrt, {true}).function, with_tangent);

  const passes::Vjp reverse = passes::vjp(f, wrt);
  Literals residuals = eval(*reverse.forward, in);
  residuals.erase(residuals.begin());
  residuals.push_back(ones);
  const std::vector<double> a = values(forward[1]), b = values(eval(*reverse.backward, residuals)[0]);
  REQUIRE(a.size() == b.size());
  for (std::size_t i = 0; i < a.size(); ++i)
    CHECK_MESSAGE(((std::isnan(a[i]) && std::isnan(b[i])) || a[i] == b[i]), "element ", i, ": forward ", a[i],
                  ", reverse ", b[i]);
  return a;
}

inline std::vector<double> derivative(const OpDef& op, const Literals& in, int k,
                                      std::shared_ptr<const void> attrs = nullptr) {
  return derivative(one_op(op, in, std::move(attrs)), in, k);
}

/// As check_values, but zeros of either sign are equal: a derivative's zero has none that means anything.
inline void check_derivative_values(const std::vector<double>& got, const std::vector<double>& want) {
  REQUIRE(got.size() == want.size());
  for (std::size_t i = 0; i < got.size(); ++i)
    CHECK_MESSAGE(((std::isnan(got[i]) && std::isnan(want[i])) || got[i] == want[i]), "element ", i, ": ", got[i],
                  " for ", want[i]);
}

}  // namespace sheaf::ir
