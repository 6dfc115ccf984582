// Derivatives at the points where a convention had to be chosen (docs/numerics.md). Every check holds forward and
// reverse mode against each other as well.
#include "tests/ir/one_op.h"

using namespace sheaf;
using namespace sheaf::ir;

namespace {

const std::vector<DType> kFloats = {f16, bf16, f32, f64};

// f(x) over x's type, built with the rules' own operators.
template <class F>
std::vector<double> derivative_of(F f, const Literal& x) {
  Builder b;
  const Value result = f(b, b.param(x.type()));
  return derivative(b.finish({result}), {x}, 0);
}

}  // namespace

TEST_CASE("the derivative of |x| is 0 at both zeros, and rounding has none") {
  for (DType t : kFloats) {
    check_derivative_values(derivative(ops::abs, {vec(t, {-2, -0.0, 0.0, 2})}, 0), {-1, 0, 0, 1});
    for (const OpDef* op : {&ops::sign, &ops::floor, &ops::ceil, &ops::round})
      check_derivative_values(derivative(*op, {vec(t, {-1.5, 0, 2})}, 0), {0, 0, 0});
  }
}

TEST_CASE("max and min share the derivative on ties") {
  for (DType t : kFloats) {
    const Literals in = {vec(t, {1, 2, 3, 0.0}), vec(t, {2, 2, 1, -0.0})};
    check_derivative_values(derivative(ops::max, in, 0), {0, 0.5, 1, 0.5});
    check_derivative_values(derivative(ops::max, in, 1), {1, 0.5, 0, 0.5});
    check_derivative_values(derivative(ops::min, in, 0), {1, 0.5, 0, 0.5});
    check_derivative_values(derivative(ops::min, in, 1), {0, 0.5, 1, 0.5});
  }
  check_derivative_values(derivative_of([](Builder& b, Value x) { return b.emit(ops::max, {x, x}); }, vec(f64, {3})),
                          {1});
}

TEST_CASE("clamp passes the derivative of the operand that its value is, and none on a bound") {
  const Literals in = {vec(f64, {0, 0, 0, 0, 0, 2}), vec(f64, {-1, 0, 0.5, 1, 2, 1.5}), vec(f64, {1, 1, 1, 1, 1, 1})};
  check_derivative_values(derivative(ops::clamp, in, 0), {1, 0, 0, 0, 0, 0});
  check_derivative_values(derivative(ops::clamp, in, 1), {0, 0, 1, 0, 0, 0});
  check_derivative_values(derivative(ops::clamp, in, 2), {0, 0, 0, 0, 1, 1});
}

TEST_CASE("a power's derivatives at base 0 are those of calculus") {
  for (DType t : {f32, f64}) {
    const Literals base = {vec(t, {0, 0, 0, 0, 0}), vec(t, {2, 1, 0.5, 0, -1})};
    check_derivative_values(derivative(ops::pow, base, 0), {0, 1, kInf, 0, -kInf});
    check_derivative_values(derivative(ops::pow, {vec(t, {0, 0, 0}), vec(t, {0, 1, 2})}, 1), {0, 0, 0});
  }
  check_derivative_values(derivative(ops::pow, {vec(f64, {2}), vec(f64, {1})}, 1), {2 * std::log(2.0)});
  check_derivative_values(derivative(ops::pow, {vec(f64, {0, -2}), vec(f64, {-1, 2})}, 1), {kNan, kNan});
  check_derivative_values(derivative(ops::pow, {vec(f64, {-2, 3}), vec(f64, {2, 0})}, 0), {-4, 0});
}

TEST_CASE("atan2 has the gradient of the angle, and 0 at the origin") {
  const Literals in = {vec(f64, {0, 0, 1, -2}), vec(f64, {1, 0, 0, 0})};  // y, x
  check_derivative_values(derivative(ops::atan2, in, 0), {1, 0, 0, 0});
  check_derivative_values(derivative(ops::atan2, in, 1), {0, 0, -1, 0.5});
  const auto masked = [](Builder& b, Value a) {
    return b.emit(ops::select,
                  {b.emit(ops::eq, {a, b.constant(a.dtype(), 0)}), b.zeros(a.type()), b.emit(ops::atan2, {a, a})});
  };
  check_derivative_values(derivative_of(masked, vec(f64, {3, 0, -5})), {0, 0, 0});
}

TEST_CASE("roots have infinite derivatives at 0, and inverse functions at the ends of their domains") {
  for (DType t : {f32, f64}) {
    check_derivative_values(derivative(ops::sqrt, {vec(t, {0, -0.0, 4})}, 0), {kInf, -kInf, 0.25});
    const double twelfth = from_bits(t, to_bits(t, 1.0 / 12));
    check_derivative_values(derivative(ops::cbrt, {vec(t, {0, 8, -8})}, 0), {kInf, twelfth, twelfth});
    check_derivative_values(derivative(ops::rsqrt, {vec(t, {0, 4})}, 0), {-kInf, -0.0625});
    check_derivative_values(derivative(ops::log, {vec(t, {0, 2})}, 0), {kInf, 0.5});
    check_derivative_values(derivative(ops::asin, {vec(t, {-1, 0, 1})}, 0), {kInf, 1, kInf});
    check_derivative_values(derivative(ops::acos, {vec(t, {-1, 0, 1})}, 0), {-kInf, -1, -kInf});
    check_derivative_values(derivative(ops::atanh, {vec(t, {-1, 0, 1})}, 0), {kInf, 1, kInf});
  }
}

TEST_CASE("the remainder's derivative in the divisor is minus the quotient, also where the division rounds up to it") {
  check_derivative_values(derivative(ops::rem, {vec(f64, {7, -7, 7, 1}), vec(f64, {2, 2, -2, kInf})}, 0), {1, 1, 1, 1});
  check_derivative_values(derivative(ops::rem, {vec(f64, {7, -7, 7, 1}), vec(f64, {2, 2, -2, kInf})}, 1),
                          {-3, 3, 3, 0});
  const double third = 1.0 / 3, x = std::nextafter(third * 3, 0);  // x / third rounds to 3, yet x < 3 * third
  REQUIRE(x / third == 3.0);
  REQUIRE(std::fmod(x, third) > 0.3);
  check_derivative_values(derivative(ops::rem, {vec(f64, {x}), vec(f64, {third})}, 1), {-2});
}

TEST_CASE("saturated functions have derivative 0, not NaN") {
  for (DType t : kFloats) {
    check_derivative_values(derivative(ops::tanh, {vec(t, {-kInf, -50, 0, 50, kInf})}, 0), {0, 0, 1, 0, 0});
    check_derivative_values(derivative(ops::logistic, {vec(t, {-kInf, 0, 50, kInf})}, 0), {0, 0.25, 0, 0});
    check_derivative_values(derivative(ops::erf, {vec(t, {-kInf, kInf})}, 0), {0, 0});
  }
}

TEST_CASE("a constant to every derivative: stop_gradient, and what passes through integers") {
  check_derivative_values(derivative(ops::stop_gradient, {vec(f32, {1, 2})}, 0), {0, 0});
  const auto through_int = [](Builder& b, Value x) {
    return b.emit(ops::convert, {b.emit(ops::convert, {x}, ops::Convert{.to = i32})}, ops::Convert{.to = f32});
  };
  check_derivative_values(derivative_of(through_int, vec(f32, {1.5, 2.5})), {0, 0});
  const auto through_bits = [](Builder& b, Value x) {
    return b.emit(ops::bitcast, {b.emit(ops::bitcast, {x}, ops::Bitcast{.to = u32})}, ops::Bitcast{.to = f32});
  };
  check_derivative_values(derivative_of(through_bits, vec(f32, {1.5, 2.5})), {0, 0});
  const auto through_bf16 = [](Builder& b, Value x) {
    return 3.0 * b.emit(ops::convert, {b.emit(ops::convert, {x}, ops::Convert{.to = bf16})}, ops::Convert{.to = f32});
  };
  check_derivative_values(derivative_of(through_bf16, vec(f32, {1.5, 2.5})), {3, 3});
}

TEST_CASE("select gives an exact zero to what it did not choose") {
  const Literals in = {vec(bool_, {1, 0}), vec(f64, {1, kNan}), vec(f64, {kInf, 2})};
  check_derivative_values(derivative(ops::select, in, 1), {1, 0});
  check_derivative_values(derivative(ops::select, in, 2), {0, 1});
  const auto safe_sqrt = [](Builder& b, Value x) {
    const Value positive = b.emit(ops::gt, {x, b.constant(x.dtype(), 0)});
    const Value guarded = b.emit(ops::select, {positive, x, b.full(x.type(), 1)});
    return b.emit(ops::select, {positive, b.emit(ops::sqrt, {guarded}), b.zeros(x.type())});
  };
  check_derivative_values(derivative_of(safe_sqrt, vec(f64, {0, 4})), {0, 0.25});
}

TEST_CASE("an infinite derivative times a zero is NaN, which is why inputs are guarded and not results") {
  const Literals in = {vec(f64, {0, 4})};
  const FunctionRef f = one_op(ops::sqrt, in);
  const Literals along_zero = eval(*passes::jvp(f, {true}).function, Literals{in[0], vec(f64, {0, 0})});
  check_derivative_values(values(along_zero[1]), {kNan, 0});

  Builder b;
  const Value x = b.param(in[0].type());
  const Value positive = b.emit(ops::gt, {x, b.constant(f64, 0)});
  const Value unguarded = b.emit(ops::select, {positive, b.emit(ops::sqrt, {x}), b.zeros(x.type())});
  const passes::Vjp v = passes::vjp(b.finish({unguarded}), {true});
  Literals residuals = eval(*v.forward, in);
  residuals.erase(residuals.begin());
  residuals.push_back(vec(f64, {1, 1}));
  check_derivative_values(values(eval(*v.backward, residuals)[0]), {kNan, 0.25});
}

TEST_CASE("a rank-0 operand gets the sum of the cotangents of what it was spread over") {
  for (const OpDef* op : {&ops::add, &ops::sub, &ops::mul, &ops::max, &ops::atan2, &ops::pow}) {
    INFO("op: ", std::string(op->name));
    for (int scalar : {0, 1}) {
      Literals in = {vec(f64, {1.5, 2, 3}), vec(f64, {2.5, 2, 0.5})};
      const Literal one = Literal::scalar(f64, 2);
      in[scalar] = vec(f64, {2, 2, 2});
      double sum = 0;
      for (double d : derivative(*op, in, scalar)) sum += d;
      in[scalar] = one;
      const FunctionRef f = one_op(*op, in);
      passes::Mask wrt(2, false);
      wrt[scalar] = true;
      const passes::Vjp v = passes::vjp(f, wrt);
      Literals residuals = eval(*v.forward, in);
      residuals.erase(residuals.begin());
      residuals.push_back(vec(f64, {1, 1, 1}));
      const Literal got = eval(*v.backward, residuals)[0];
      CHECK(got.type() == Type(f64, {}));
      CHECK(got.get(0) == doctest::Approx(sum));
    }
  }
}
