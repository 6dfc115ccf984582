// Checkpoints, custom rules, linear solves and whole Jacobians, through the API.
#include "tests/control/interpreted.h"
#include "tests/message.h"

using namespace sheaf;
using sheaf::tests::interpreted;
using sheaf::tests::message_here;

namespace {

using V = std::vector<double>;
struct Layer {
  Array W, b;
};

Array f64_of(double v) { return full({}, v, f64); }
doctest::Approx near(double v) { return doctest::Approx(v).epsilon(1e-9); }
int count(const std::string& text, const std::string& word) {
  int n = 0;
  for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++n;
  return n;
}

}  // namespace

TEST_CASE("a checkpoint computes the value, and its inside again in the reverse derivative") {
  auto block = [](Array x, Array w) { return sin(sin(x * w)); };
  auto loss = [&](auto f) { return [f](Array x, Array w) { return sum(f(x, w)); }; };
  const Array x = array({0.3, -0.7}, f64), w = f64_of(1.3);
  const auto plain = interpreted(grad<0, 1>(loss(block)), x, w);
  for (const Saved& saved : {save::nothing, save::everything, save::dots, save::dots_without_batch, save::names({"h"}),
                             save::except({"h"})}) {
    const auto kept = interpreted(grad<0, 1>(loss(checkpoint(block, saved))), x, w);
    CHECK(kept[0] == plain[0]);
    CHECK(kept[1] == plain[1]);
  }
  const auto sines = [&](const Saved& saved) {
    auto named = [](Array v, Array u) { return sin(checkpoint_name(sin(v * u), "h")); };
    const auto g = interpreted(value_and_grad(loss(checkpoint(named, saved))), x, w);
    return count(ir::print(passes::expand_ops(g.function)), " = sin ");
  };
  CHECK(sines(save::everything) == 2);
  CHECK(sines(save::nothing) == 3);
  CHECK(sines(save::names({"h"})) == 2);
  CHECK(sines(save::except({"h"})) == 3);
}

TEST_CASE("a policy that saves products takes bodies with constants of any size") {
  auto g = [](Array x) { return x[0] * x[1] + sum(x * array({1.0, 2.0}, f64)); };
  const Array x = array({0.3, -0.7}, f64);
  for (const Saved& saved : {save::dots, save::dots_without_batch})
    CHECK(interpreted(grad(checkpoint(g, saved)), x)[0] == V{-0.7 + 1, 0.3 + 2});
}

TEST_CASE("a checkpoint captures, takes trees and static arguments, and is called as its function is") {
  const Array scale = f64_of(2);
  auto layer = checkpoint([&](Layer l, Array x, int power) {
    Array y = dot(x, l.W) + l.b;
    for (int i = 1; i < power; ++i) y = y * y;
    return std::pair{y * scale, none};
  });
  const Layer l{array({{1.0, 2.0}, {3.0, 4.0}}, f64), array({0.5, -0.5}, f64)};
  auto f = [&](Layer p, Array x) { return sum(layer(p, x, 2).first); };
  CHECK(interpreted(f, l, array({1.0, 1.0}, f64))[0] == V{2 * (4.5 * 4.5 + 5.5 * 5.5)});
  CHECK(interpreted(grad(f), l, array({1.0, 1.0}, f64))[1] == V{18, 22});
}

TEST_CASE("custom_jvp: its rule is the derivative, forward, backward and again") {
  auto cube = custom_jvp([](Array x) { return x * x * x; },
                         [](Array x, Array t) { return std::pair{x * x * x, 30 * x * x * t}; });
  CHECK(interpreted(cube, f64_of(2)).scalar() == 8);
  CHECK(interpreted([&](Array x) { return jvp(cube, x, f64_of(1)).second; }, f64_of(2)).scalar() == 120);
  CHECK(interpreted(grad(cube), f64_of(2)).scalar() == 120);
  CHECK(interpreted(grad(grad(cube)), f64_of(2)).scalar() == 120);
  CHECK(interpreted(vmap(grad(cube)), array({1.0, 2.0}, f64))[0] == V{30, 120});
  CHECK(
      interpreted(grad([&](Array x) { return fori_loop(0, 2, [&](Array, Array c) { return cube(c); }, x); }), f64_of(1))
          .scalar() == 900);
}

TEST_CASE("custom_jvp: trees, integers whose tangents are zeros, numbers as results, captures in function and rule") {
  const Array scale = f64_of(3);
  auto f = custom_jvp([&](Layer l, Array n) { return std::pair{l.W * n * scale, n + 1}; },
                      [&](Layer l, Array n, Layer t, Array tn) {
                        return std::pair{std::pair{l.W * n * scale, n + 1}, std::pair{t.W * n * scale + t.b + tn, tn}};
                      });
  const Layer l{f64_of(2), f64_of(5)};
  const auto g = interpreted(grad([&](Layer p, Array n) { return f(p, n).first; }), l, full({}, 4, i32));
  CHECK(g[0] == V{12});
  CHECK(g[1] == V{1});
  auto constant = custom_jvp([](Array) { return 0.5; }, [](Array, Array t) { return std::pair{0.5, t}; });
  CHECK(interpreted(grad(constant), full({}, 2, f32)).scalar() == 1);
}

TEST_CASE("custom_vjp: backward is the reverse derivative, and its transpose the forward one") {
  auto f = custom_vjp([](Array x, Array y) { return sin(x) * y; },
                      [](Array x, Array y) { return std::pair{sin(x) * y, std::tuple{x, y}}; },
                      [](std::tuple<Array, Array> r, Array ct) {
                        const auto& [x, y] = r;
                        return std::tuple{10 * ct * cos(x) * y, none};
                      });
  const Array x = f64_of(0.4), y = f64_of(3);
  const auto g = interpreted(grad<0, 1>(f), x, y);
  CHECK(g[0][0] == near(30 * std::cos(0.4)));
  CHECK(g[1] == V{0});
  CHECK(interpreted([&](Array v, Array u) { return jvp(f, std::tuple{v, u}, std::tuple{f64_of(1), f64_of(1)}).second; },
                    x, y)
            .scalar() == near(30 * std::cos(0.4)));
  CHECK(interpreted(grad(grad(f)), x, y).scalar() == near(-30 * std::sin(0.4)));
  const auto batched = interpreted(vmap(grad(f), {.in = {0, none}}), array({0.4, 0.0}, f64), y);
  CHECK(batched[0][0] == near(30 * std::cos(0.4)));
  CHECK(batched[0][1] == near(30));
}

TEST_CASE("custom_vjp: a batched branch of the backward function keeps the forward derivative") {
  auto f = custom_vjp([](Array x) { return 2 * x; }, [](Array x) { return std::pair{2 * x, x > 0}; },
                      [](Array positive, Array ct) {
                        return cond(positive, [](Array t) { return 5 * t; }, [](Array t) { return 7 * t; }, ct);
                      });
  auto slope = [&](Array x) { return jvp(f, x, f64_of(1)).second; };
  const Array x = array({0.4, -0.4}, f64);
  CHECK(interpreted(vmap(slope), x)[0] == V{5, 7});
  CHECK(interpreted(vmap(vmap(slope)), reshape(x, {2, 1}))[0] == V{5, 7});
  auto columns = [&](Array row) { return vmap([&](Array e) { return slope(e * row[0]); })(array({1.0, -1.0}, f64)); };
  CHECK(interpreted(vmap(columns), reshape(x, {2, 1}))[0] == V{5, 7, 7, 5});
}

TEST_CASE("custom_vjp: one argument, no residuals, a tree, captures, inside scan, cond and jit") {
  const Array low = f64_of(-1), high = f64_of(1);
  auto clipped = [&](Array lo, Array hi) {
    return custom_vjp([](Layer l) { return l; }, [](Layer l) { return std::pair{l, none}; },
                      [lo, hi](None, Layer ct) { return Layer{clip(ct.W, lo, hi), clip(ct.b, lo, hi)}; });
  };
  const auto f = clipped(low, high);
  const Layer l{f64_of(2), f64_of(0.1)};
  const auto loss = [&](Layer p) {
    const Layer q = f(p);
    return 5 * q.W + 0.5 * q.b;
  };
  CHECK(interpreted(grad(loss), l)[0] == V{1});
  CHECK(interpreted(grad(loss), l)[1] == V{0.5});
  const auto looped = [&](Layer p) {
    return fori_loop(
               0, 3,
               [&](Array i, Layer c) { return cond(i > 0, jit(f), [](Layer v) { return v; }, Layer{c.W * 2, c.b}); }, p)
        .W;
  };
  CHECK(interpreted(looped, l)[0] == V{16});
  CHECK(interpreted(grad(looped), l)[0] == V{4});
}

TEST_CASE("one rule for both directions: forward mode runs jvp, reverse mode backward, nested to any order") {
  // Wrong on purpose, each in its own way, so that a value says which rule it came from.
  auto f = custom_rule(
      [](Array x, Array y) { return sin(x) * y; },
      Derivatives{.jvp = [](Array x, Array y, Array tx, Array) { return std::pair{sin(x) * y, 10 * cos(x) * y * tx}; },
                  .forward = [](Array x, Array y) { return std::pair{sin(x) * y, std::tuple{x, y}}; },
                  .backward =
                      [](std::tuple<Array, Array> r, Array ct) {
                        const auto& [x, y] = r;
                        return std::tuple{clip(100 * ct * cos(x) * y, -1e6, 1e6), none};
                      }});
  const Array x = f64_of(0.4), y = f64_of(3);
  const double slope = 3 * std::cos(0.4), curve = -3 * std::sin(0.4);
  const auto forward = [&](Array v, Array u) {
    return jvp(f, std::tuple{v, u}, std::tuple{ones_like(v), ones_like(u)}).second;
  };
  const auto reverse = [&](Array v, Array u) { return grad(f)(v, u); };
  CHECK(interpreted(f, x, y).scalar() == near(3 * std::sin(0.4)));
  CHECK(interpreted(forward, x, y).scalar() == near(10 * slope));
  CHECK(interpreted(reverse, x, y).scalar() == near(100 * slope));
  // Reverse over forward differentiates the jvp rule, forward over reverse the backward function.
  CHECK(interpreted(grad(forward), x, y).scalar() == near(10 * curve));
  CHECK(interpreted(
            [&](Array v, Array u) {
              return jvp(reverse, std::tuple{v, u}, std::tuple{ones_like(v), zeros_like(u)}).second;
            },
            x, y)
            .scalar() == near(100 * curve));
  CHECK(interpreted(grad(reverse), x, y).scalar() == near(100 * curve));
  CHECK(interpreted(
            [&](Array v, Array u) {
              return jvp(forward, std::tuple{v, u}, std::tuple{ones_like(v), zeros_like(u)}).second;
            },
            x, y)
            .scalar() == near(10 * curve));
  const Array xs = array({0.4, 0.0}, f64);
  CHECK(interpreted(vmap(reverse, {.in = {0, none}}), xs, y)[0][1] == near(300));
  CHECK(interpreted(vmap(forward, {.in = {0, none}}), xs, y)[0][1] == near(30));
  const auto looped = [&](Array v) { return fori_loop(0, 2, [&](Array, Array c) { return jit(f)(c, y); }, v); };
  const double inner = 3 * std::sin(0.4);
  CHECK(interpreted(grad(looped), x).scalar() == near(1e4 * slope * 3 * std::cos(inner)));
  CHECK(interpreted([&](Array v) { return jvp(looped, v, f64_of(1)).second; }, x).scalar() ==
        near(1e2 * slope * 3 * std::cos(inner)));
  CHECK(interpreted(grad(checkpoint(f)), x, y).scalar() == near(100 * slope));
}

TEST_CASE("one rule for both directions: trees, integers and captures, and rules that do not fit are refused") {
  const Array scale = f64_of(3);
  const auto value = [&](Layer l, Array n) { return l.W * n * scale + l.b; };
  const auto rule = [&](Layer l, Array n, Layer t, Array) { return std::pair{value(l, n), t.W * n * scale + t.b}; };
  const auto ahead = [&](Layer l, Array n) { return std::pair{value(l, n), n}; };
  const auto back = [&](Array n, Array ct) { return std::tuple{Layer{ct * n * scale, ct}, none}; };
  const auto f = custom_rule(value, Derivatives{.jvp = rule, .forward = ahead, .backward = back});
  const Layer l{f64_of(2), f64_of(5)};
  const Array n = full({}, 4, i32);
  CHECK(interpreted(f, l, n).scalar() == 29);
  CHECK(interpreted(grad(f), l, n)[0] == V{12});
  CHECK(interpreted(grad(f), l, n)[1] == V{1});
  CHECK(interpreted(
            [&](Layer p) { return jvp(f, std::tuple{p, n}, std::tuple{Layer{f64_of(1), f64_of(1)}, n}).second; }, l)
            .scalar() == 13);
  const auto narrow = [&](Layer p, Array m, Layer t, Array) {
    return std::pair{value(p, m), convert(t.W * m + t.b, f32)};
  };
  const auto refused = custom_rule(value, Derivatives{.jvp = narrow, .forward = ahead, .backward = back});
  const auto call = [&] { refused(l, n); };
  CHECK(message_here<TypeError>(call) ==
        "HERE: custom_rule: the rule returns another type than it must\n"
        "  tangent of the result: must be f64[], is f32[]; return convert(.., f64)");
}

TEST_CASE(
    "B21: a cotangent in another precision than its argument's is refused where the rule is used, in a scan too") {
  const auto f = custom_vjp([](Array x) { return x * x; }, [](Array x) { return std::pair{x * x, x}; },
                            [](Array x, Array ct) { return 2 * convert(x, f32) * ct; });
  const auto loop = [&](Array x) {
    return scan([&](Array c, Array) { return std::pair{f(c), none}; }, x, arange(2)).first;
  };
  const auto call = [&] { grad(loop)(ones({}, bf16)); };
  CHECK(message_here<TypeError>(call) ==
        "HERE: custom_vjp: the backward function returns another type than it must\n"
        "  cotangent [0]: must be bf16[], is f32[]; return convert(.., bf16)");
}

TEST_CASE("a linear solve is differentiated by the equation it solves") {
  const Array a = array({{4.0, 1.0}, {2.0, 3.0}}, f64), b = array({1.0, 2.0}, f64);
  auto inverse = [](Array m) {
    const Array det = m(0, 0) * m(1, 1) - m(0, 1) * m(1, 0);
    return stack({stack({m(1, 1), -m(0, 1)}), stack({-m(1, 0), m(0, 0)})}) / det;
  };
  auto solved = [&](Array m, Array rhs) {
    // Solved without derivatives: those must come from the equation.
    return sum(square(custom_linear_solve([&](Array x) { return dot(m, x); }, rhs,
                                          [&](Array r) { return dot(stop_gradient(inverse(m)), r); },
                                          [&](Array r) { return dot(transpose(stop_gradient(inverse(m))), r); })));
  };
  auto plain = [&](Array m, Array rhs) { return sum(square(dot(inverse(m), rhs))); };
  CHECK(interpreted(solved, a, b).scalar() == near(interpreted(plain, a, b).scalar()));
  const auto got = interpreted(grad<0, 1>(solved), a, b), want = interpreted(grad<0, 1>(plain), a, b);
  for (int k = 0; k < 2; ++k)
    for (std::size_t i = 0; i < want[k].size(); ++i) CHECK(got[k][i] == near(want[k][i]));
  const auto again = interpreted(hessian([&](Array rhs) { return solved(a, rhs); }), b);
  const auto wanted = interpreted(hessian([&](Array rhs) { return plain(a, rhs); }), b);
  for (std::size_t i = 0; i < 4; ++i) CHECK(again[0][i] == near(wanted[0][i]));
}

TEST_CASE("jacfwd and jacrev agree, with result dims first, and take trees on one side") {
  auto f = [](Array x) { return stack({x[0] * x[1], sin(x[1]), x[2] * x[2]}).reshape({3, 1}); };
  const Array x = array({2.0, 0.5, 3.0}, f64);
  const V want{0.5, 2, 0, 0, std::cos(0.5), 0, 0, 0, 6};
  for (const auto& j : {interpreted(jacfwd(f), x), interpreted(jacrev(f), x)}) {
    CHECK(j.function->results()[0].dims() == Shape{3, 1, 3});
    for (std::size_t i = 0; i < 9; ++i) CHECK(j[0][i] == near(want[i]));
  }
  auto g = [](Layer l) { return l.W * l.b; };
  const Layer l{array({1.0, 2.0}, f64), f64_of(3)};
  for (const auto& j : {interpreted(jacfwd(g), l), interpreted(jacrev(g), l)}) {
    CHECK(j[0] == V{3, 0, 0, 3});
    CHECK(j[1] == V{1, 2});
  }
  auto pair = [](Array a, Array v) { return std::pair{a * v, sum(v)}; };
  for (const auto& j : {interpreted(jacfwd<1>(pair), f64_of(2), x), interpreted(jacrev<1>(pair), f64_of(2), x)}) {
    CHECK(j[0] == V{2, 0, 0, 0, 2, 0, 0, 0, 2});
    CHECK(j[1] == V{1, 1, 1});
  }
  CHECK(interpreted(jacfwd([](Array v) { return v; }), zeros({0}))[0] == V{});
}

TEST_CASE("hessian and hvp") {
  auto f = [](Array x) { return x[0] * x[0] * x[1] + sin(x[1]); };
  const Array x = array({2.0, 0.5}, f64);
  const auto h = interpreted(hessian(f), x);
  CHECK(h[0][0] == near(1));
  CHECK(h[0][1] == near(4));
  CHECK(h[0][2] == near(4));
  CHECK(h[0][3] == near(-std::sin(0.5)));
  const auto v = interpreted([&](Array at) { return hvp(f, at, array({1.0, 10.0}, f64)); }, x);
  CHECK(v[0][0] == near(41));
  CHECK(v[0][1] == near(4 - 10 * std::sin(0.5)));
}

TEST_CASE("associative_scan gives all prefixes, of any length, both ways, along any axis") {
  for (const std::int64_t n : {0, 1, 2, 3, 4, 7, 8, 13}) {
    auto sums = [](Array x) { return associative_scan([](Array a, Array b) { return a + b; }, x); };
    auto back = [](Array x) { return associative_scan([](Array a, Array b) { return a + b; }, x, {.reverse = true}); };
    const V forward = interpreted(sums, arange(1, n + 1, 1, f64))[0],
            backward = interpreted(back, arange(1, n + 1, 1, f64))[0];
    REQUIRE(std::ssize(forward) == n);
    for (std::int64_t i = 0; i < n; ++i) {
      CHECK(forward[i] == static_cast<double>((i + 1) * (i + 2) / 2));
      CHECK(backward[i] == static_cast<double>(n * (n + 1) / 2 - i * (i + 1) / 2));
    }
  }
  auto products = [](Array m) { return associative_scan([](Array a, Array b) { return matmul(a, b); }, m); };
  CHECK(
      interpreted(products, array({{{1.0, 1.0}, {0.0, 1.0}}, {{1.0, 2.0}, {0.0, 1.0}}, {{1.0, 0.0}, {3.0, 1.0}}}))[0] ==
      V{1, 1, 0, 1, 1, 3, 0, 1, 10, 3, 3, 1});
  auto rows = [](Array x) { return associative_scan(sheaf::maximum, x, {.axis = -1}); };
  CHECK(interpreted(rows, array({{1.0, 3.0, 2.0}, {5.0, 4.0, 6.0}}))[0] == V{1, 3, 3, 5, 5, 6});
  // A linear recurrence h = a h + b, as pairs.
  auto recurrence = [](Layer l) {
    return associative_scan([](Layer p, Layer q) { return Layer{p.W * q.W, p.b * q.W + q.b}; }, l).b;
  };
  CHECK(interpreted(recurrence, Layer{array({2.0, 3.0, 4.0}), array({1.0, 1.0, 1.0})})[0] == V{1, 4, 17});
}
