// The exact texts of what is wrong with a custom rule, where it is given and where it is differentiated.
#include <doctest/doctest.h>

#include "sheaf/sheaf.h"
#include "tests/message.h"

using namespace sheaf;
using sheaf::tests::message_here;

namespace {

struct Layer {
  Array W, b;
};
using List = std::vector<Array>;

}  // namespace

TEST_CASE("a jvp rule of another tree or type") {
  const Array x = zeros({3});
  auto same_value = [](Array v) { return v; };
  CHECK(message_here<TypeError>(
            [&] { custom_jvp(same_value, [](Array v, Array t) { return std::pair{convert(v, f64), t[0]}; })(x); }) ==
        "HERE: custom_jvp: the rule returns another type than it must\n"
        "  result the result: must be f32[3], is f64[3]; return convert(.., f32)");
  CHECK(message_here<TypeError>([&] {
          custom_jvp([](Array v) { return Layer{v, v}; },
                     [](Array v, Array t) { return std::pair{Layer{v, v}, Layer{t, t[0]}}; })(x);
        }) ==
        "HERE: custom_jvp: the rule returns another type than it must\n"
        "  tangent of .b: must be f32[3], is f32[]");
  CHECK(message_here<TypeError>([&] {
          custom_jvp([](Array v) { return List{v, v}; },
                     [](Array v, Array t) { return std::pair{List{v, v}, List{t}}; })(x);
        }) ==
        "HERE: custom_jvp: the rule returns another tree than it must\n"
        "  must be: [0], [1]\n"
        "  is: [0]");
}

TEST_CASE("a vjp rule of another tree or type; f32 for a bf16 argument is refused where the rule is given") {
  const Array x = zeros({3});
  auto same_value = [](Array v) { return v; };
  auto ahead = [](Array v) { return std::pair{v, none}; };
  CHECK(message_here<TypeError>([&] {
          custom_vjp(same_value, [](Array v) { return std::pair{v[0], none}; }, [](None, Array ct) { return ct; })(x);
        }) ==
        "HERE: custom_vjp: the forward function returns another type than it must\n"
        "  result the result: must be f32[3], is f32[]");
  const Array half = zeros({3}, bf16);
  auto widened = custom_vjp(same_value, ahead, [](None, Array ct) { return convert(ct, f32); });
  CHECK(message_here<TypeError>(
            [&] { scan([&](Array c, None) { return std::pair{widened(c), none}; }, half, none, {.length = 2}); }) ==
        "HERE: custom_vjp: the backward function returns another type than it must\n"
        "  cotangent [0]: must be bf16[3], is f32[3]; return convert(.., bf16)");
  CHECK(message_here<TypeError>([&] {
          custom_vjp([](List l) { return l[0]; }, [](List l) { return std::pair{l[0], none}; },
                     [](None, Array ct) { return List{ct}; })(List{x, x});
        }) ==
        "HERE: custom_vjp: the backward function returns another tree than it must\n"
        "  must be: [0][0], [0][1]\n"
        "  is: [0][0]");
}

TEST_CASE("a rule says nothing of what it captures") {
  auto scaled = [](Array w, Array x) {
    return custom_jvp([w](Array v) { return w * v; }, [w](Array v, Array t) { return std::pair{w * v, w * t}; })(x);
  };
  CHECK(message_here<TypeError>([&] { grad(scaled)(2.0, 3.0); }) ==
        "HERE: custom_jvp: the function captures a value that the derivative is taken with respect to; the rule says "
        "nothing of it: pass it as an argument");
  auto reversed = [](Array w, Array x) {
    return custom_vjp([w](Array v) { return w * v; }, [w](Array v) { return std::pair{w * v, none}; },
                      [w](None, Array ct) { return w * ct; })(x);
  };
  CHECK(message_here<TypeError>([&] { grad(reversed)(2.0, 3.0); }) ==
        "HERE: custom_vjp: the function captures a value that the derivative is taken with respect to; the rule says "
        "nothing of it: pass it as an argument");
  auto both_ways = [](Array w, Array x) {
    const auto value = [w](Array v) { return w * v; };
    return custom_rule(value, Derivatives{.jvp = [w](Array v, Array t) { return std::pair{w * v, w * t}; },
                                          .forward = [w](Array v) { return std::pair{w * v, none}; },
                                          .backward = [w](None, Array ct) { return w * ct; }})(x);
  };
  CHECK(message_here<TypeError>([&] { grad(both_ways)(2.0, 3.0); }) ==
        "HERE: custom_rule: the function captures a value that the derivative is taken with respect to; the rule says "
        "nothing of it: pass it as an argument");
}

TEST_CASE("derivatives that do not exist name the loop or the rule") {
  auto loop = [](Array x) { return while_loop([](Array c) { return c < 10; }, [](Array c) { return c * 2; }, x); };
  CHECK(
      message_here<TypeError>([&] { grad(loop)(1.0); }) ==
      "HERE: while: the reverse derivative needs a bound on the number of steps: give while_loop max_trips, or use scan or "
      "fori_loop with a fixed number of steps");
  auto clipped = custom_vjp([](Array x) { return x; }, [](Array x) { return std::pair{x, none}; },
                            [](None, Array ct) { return clip(ct, -1, 1); });
  CHECK(
      message_here<TypeError>([&] { jvp(clipped, Array(1.0), Array(1.0)); }) ==
      "HERE: custom_vjp: the forward derivative is the transpose of the backward function, which is not linear in the "
      "cotangents");
  const std::string not_linear =
      "HERE: custom_vjp: the forward derivative is the transpose of the backward function, which is not linear in the "
      "cotangents";
  const auto forward_of = [](auto backward) {
    return message_here<TypeError>([&] {
      jvp(custom_vjp([](Array x) { return x; }, [](Array x) { return std::pair{x, x}; }, backward), Array(1.0),
          Array(1.0));
    });
  };
  CHECK(forward_of([](Array r, Array ct) { return stop_gradient(ct * r); }) == not_linear);
  CHECK(forward_of([](Array r, Array ct) { return ct + stop_gradient(ct) * r; }) == not_linear);
  CHECK(forward_of([](Array r, Array ct) { return where(r > 0, ct, stop_gradient(2 * ct)); }) == not_linear);
  CHECK(forward_of([](Array r, Array ct) { return jit([](Array t) { return stop_gradient(t); })(ct * r); }) ==
        not_linear);
  CHECK(forward_of([](Array r, Array ct) { return ct * stop_gradient(r); }) == "nothing was thrown");
  auto solved = [](Array b) {
    return custom_linear_solve([](Array x) { return 2 * x; }, b, [](Array r) { return r / 2; });
  };
  CHECK(message_here<TypeError>([&] { grad(solved)(1.0); }) ==
        "HERE: custom_linear_solve: the reverse derivative needs the solve of the transposed map, which was not given");
}

TEST_CASE("linear solves, Jacobians and associative scans that do not fit") {
  auto half = [](Array r) { return r / 2; };
  CHECK(message_here<TypeError>([&] { custom_linear_solve([](Array x) { return sum(x); }, zeros({3}), half); }) ==
        "HERE: custom_linear_solve: matvec returns another type than it must\n"
        "  result the result: must be f32[3], is f32[]");
  CHECK(message_here<TypeError>([&] { custom_linear_solve(half, array({1, 2}), half); }) ==
        "HERE: custom_linear_solve: the right-hand side must be floats, not i32[2]");
  CHECK(message_here<TypeError>([&] { jacfwd(half)(array({1, 2})); }) ==
        "HERE: jacfwd: the argument is i32[2]; only floats have derivatives");
  CHECK(message_here<TypeError>([&] { jacrev([](Array x) { return x > 0; })(zeros({2})); }) ==
        "HERE: jacrev: the result is bool[2]; only floats have derivatives");
  auto first = [](Layer a, Layer) { return a; };
  CHECK(message_here<ShapeError>([&] { associative_scan(first, Layer{zeros({3, 2}), zeros({2})}); }) ==
        "HERE: associative_scan: the arrays must have the same length along the axis\n"
        "  .W: f32[3, 2], axis 0, length 3\n"
        "  .b: f32[2], axis 0, length 2");
  CHECK(message_here<TypeError>([&] { associative_scan([](Array a, Array) { return sum(a); }, zeros({4})); }) ==
        "HERE: associative_scan: the function must return the types it takes\n"
        "  it: takes f32[2], returns f32[]");
}

TEST_CASE("what a rule or a matrix product does that is not linear is refused when it is transposed") {
  const auto refused = [](auto tangent) {
    const auto rule = [=](Array x, Array t) { return std::pair{2 * x, tangent(x, t)}; };
    return message_here<TypeError>([&] { grad(custom_jvp([](Array x) { return 2 * x; }, rule))(1.0f); });
  };
  const std::string why =
      ": a rule or product that must be linear computes this of its tangents or argument, which is not linear in them";
  CHECK(refused([](Array, Array t) { return t * t; }) == "HERE: mul" + why);
  CHECK(refused([](Array, Array t) { return sin(t); }) == "HERE: sin" + why);
  CHECK(refused([](Array, Array t) { return maximum(t, 0); }) == "HERE: max" + why);
  CHECK(refused([](Array, Array t) { return where(t > 0, t, 0); }) == "HERE: select" + why);
  CHECK(refused([](Array, Array t) {
          return cond(t > 0, [](Array v) { return v; }, [](Array v) { return 2 * v; }, t);
        }) == "HERE: cond" + why);
  CHECK(refused([](Array, Array t) {
          return scan([](Array c, Array) { return std::pair{c * c, none}; }, t, arange(3)).first;
        }) == "HERE: mul" + why);
  CHECK(refused([](Array x, Array t) { return cos(x) * t - t / x; }) == "nothing was thrown");
  const auto same = [](Array b) { return b; };
  const auto solved = [&](Array b) { return sum(custom_linear_solve([](Array x) { return x * x; }, b, same, same)); };
  CHECK(message_here<TypeError>([&] { grad(solved)(ones({2})); }) == "HERE: mul" + why);
}
