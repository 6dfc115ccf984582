// Derivatives, alone and composed, against calculus.
#include <doctest/doctest.h>

#include <cmath>

#include "sheaf/sheaf.h"

using namespace sheaf;

namespace {

using V = std::vector<double>;
V values(const Array& x) { return x.to_vector<double>(); }
doctest::Approx near(double v) { return doctest::Approx(v).epsilon(1e-5); }

struct Layer {
  Array W, b;
};

}  // namespace

TEST_CASE("grad gives a tree like the argument") {
  auto loss = [](const Layer& p, const Array& x) { return sum(square(dot(x, p.W) + p.b)); };
  const Layer g = grad(loss)({array({{1.0}, {2.0}}), array({1.0})}, array({{1.0, 1.0}}));
  CHECK(values(g.W) == V{8, 8});
  CHECK(values(g.b) == V{8});
}

TEST_CASE("grad of several arguments, with a value and with something beside it") {
  auto f = [](Array x, Array y) { return x * x * y; };
  auto [dx, dy] = grad<0, 1>(f)(3.0, 2.0);
  CHECK(dx.item<double>() == 12);
  CHECK(dy.item<double>() == 9);
  auto [v, only_y] = value_and_grad<1>(f)(3.0, 2.0);
  CHECK(v.item<double>() == 18);
  CHECK(only_y.item<double>() == 9);
  auto swapped = grad<1, 0>(f)(3.0, 2.0);
  CHECK(std::get<0>(swapped).item<double>() == 9);
  auto [g, aux] = grad([](Array x) { return std::pair{x * x, x + 1}; })(3.0);
  CHECK(g.item<double>() == 6);
  CHECK(aux.item<double>() == 4);
}

TEST_CASE("derivatives nest to any order, inside and outside jit") {
  auto f = [](Array x) { return sin(x); };
  CHECK(grad(grad(f))(1.0).item<double>() == near(-std::sin(1.0)));
  CHECK(grad(grad(grad(f)))(1.0).item<double>() == near(-std::cos(1.0)));
  CHECK(jit(grad(grad(f)))(1.0).item<double>() == near(-std::sin(1.0)));
  CHECK(grad(jit(grad(f)))(1.0).item<double>() == near(-std::sin(1.0)));
}

TEST_CASE("an inner derivative may close over the outer variable") {
  auto f = [](Array x) { return grad([&](Array y) { return x * x * y * y; })(x); };  // 2 x^3
  CHECK(f(2.0).item<double>() == 16);
  CHECK(grad(f)(2.0).item<double>() == 24);
}

TEST_CASE("jvp, linearize and vjp agree") {
  auto f = [](Array x, Array y) { return std::pair{x * y, sin(x)}; };
  const Array x = array({1.0, 2.0}), y = array({3.0, 4.0}), one = ones({2});
  auto [out, tangent] = jvp(f, std::tuple{x, y}, std::tuple{one, zeros({2})});
  CHECK(values(out.first) == V{3, 8});
  CHECK(values(tangent.first) == V{3, 4});
  auto [same_out, linear] = linearize(f, x, y);
  CHECK(same(same_out, out));
  CHECK(same(linear(one, zeros({2})), tangent));
  auto [again, pull] = vjp(f, x, y);
  auto [dx, dy] = pull({one, zeros({2})});
  CHECK(values(dx) == V{3, 4});
  CHECK(values(dy) == V{1, 2});
  auto [d, t] = jvp(sheaf::sin, Array(0.0), Array(1.0));
  CHECK(t.item<double>() == 1);
}

TEST_CASE("integers along the way have no tangent, stop_gradient cuts it") {
  auto f = [](Array x, Array n) { return sum(x * convert(n, f32)) + sum(stop_gradient(x) * x); };
  CHECK(values(grad(f)(array({1.0, 2.0}), array({3, 4}))) == V{4, 6});
  auto [y, pull] = vjp(f, array({1.0, 2.0}), array({3, 4}));
  auto [dx, dn] = pull(1.0);
  CHECK(dn.dtype() == i32);
  CHECK(values(dn) == V{0, 0});
}

TEST_CASE("the gradient of indexing scatters") {
  const Array x = arange(4.0);
  CHECK(values(grad([](Array v) { return sum(v[1] * 3); })(x)) == V{0, 3, 0, 0});
  CHECK(values(grad([](Array v) { return sum(square(v(array({2, 2, 0})))); })(x)) == V{0, 0, 8, 0});
  CHECK(values(grad([](Array v) { return sum(v(slice(none, none, -2)) * array({1.0, 2.0})); })(x)) == V{0, 2, 0, 1});
  CHECK(values(grad([&](Array v) { return sum(square(x.at(slice(1, 3)).set(v))); })(array({5.0, 6.0}))) == V{10, 12});
}

TEST_CASE("the micrograd demo gives its published numbers") {
  const auto demo = [](Array a, Array b) {
    Array c = a + b, d = a * b + pow(b, 3);
    c += c + 1;
    c += 1 + c + (-a);
    d += d * 2 + relu(b + a);
    d += 3 * d + relu(b - a);
    const Array e = c - d, g = square(e);
    return g / 2.0 + 10.0 / g;
  };
  auto [v, grads] = value_and_grad<0, 1>(demo)(full({}, -4.0, f64), full({}, 2.0, f64));
  CHECK(v.item<double>() == doctest::Approx(24.7040816).epsilon(1e-8));
  CHECK(std::get<0>(grads).item<double>() == doctest::Approx(138.8338192).epsilon(1e-8));
  CHECK(std::get<1>(grads).item<double>() == doctest::Approx(645.5772595).epsilon(1e-8));
}

TEST_CASE("vmap maps axes in and out, and nests") {
  const Array m = reshape(arange(6.0), {2, 3}), v = ones({3});
  CHECK(values(vmap(dot, {.in = {0, none}})(m, v)) == V{3, 12});
  CHECK(vmap([](Array x) { return x * 2; }, {.in = {1}, .out = {1}})(m).shape() == Shape{2, 3});
  CHECK(vmap([](Array x) { return x * 2; }, {.in = {-1}})(m).shape() == Shape{3, 2});
  CHECK(values(vmap(vmap([](Array a, Array b) { return a * b; }, {.in = {none, 0}}), {.in = {0, none}})(
            array({1.0, 2.0}), v)) == V{1, 1, 1, 2, 2, 2});
  auto [a, b] = vmap([](Array x) { return std::pair{x, Array(1.0)}; }, {.out = {0, none}})(v);
  CHECK(b.rank() == 0);
  CHECK(vmap([](Array x) { return x; }, {.in = {none}, .size = 4})(v).shape() == Shape{4, 3});
  CHECK(values(vmap(grad([](Array x) { return x * x * x; }))(array({1.0, 2.0}))) == V{3, 12});
  CHECK(values(grad([&](Array x) { return sum(vmap([&](Array r) { return r * x; })(v)); })(2.0)) == V{3});
}

TEST_CASE("a batch of no examples has results of no elements") {
  const Array none_of_three = zeros({0, 3});
  CHECK(vmap([](Array x) { return x[0]; })(none_of_three).shape() == Shape{0});
  CHECK(vmap([](Array x) { return reshape(x, {3, 1}); })(none_of_three).shape() == Shape{0, 3, 1});
  CHECK(vmap([](Array x) { return stack({x, x}); })(none_of_three).shape() == Shape{0, 2, 3});
  CHECK(vmap([](Array x) { return linalg::solve(eye(3), x); })(none_of_three).shape() == Shape{0, 3});
  CHECK(vmap(grad([](Array x) { return prod(x); }))(none_of_three).shape() == Shape{0, 3});
  const auto both = vmap(vmap([](Array x) { return reshape(x, {1}); }));
  CHECK(both(zeros({2, 0})).shape() == Shape{2, 0, 1});
  CHECK(both(zeros({0, 2})).shape() == Shape{0, 2, 1});
  const auto shared = [&](Array w) { return sum(vmap([&](Array x) { return ravel(x * w); })(none_of_three)); };
  CHECK(values(grad(shared)(ones({3}))) == V{0, 0, 0});
}

TEST_CASE("per-example gradients equal a loop") {
  auto loss = [](const Layer& p, const Array& x) { return sum(tanh(dot(x, p.W) + p.b)); };
  const Layer p{random::normal(random::key(0), {3, 2}), zeros({2})};
  const Array xs = random::normal(random::key(1), {4, 3});
  const Layer all = vmap(grad(loss), {.in = {none, 0}})(p, xs);
  for (int i = 0; i < 4; ++i) {
    const Layer one = grad(loss)(p, xs[i]);
    for (int k = 0; k < 6; ++k) CHECK(values(all.W[i])[k] == near(values(one.W)[k]));
  }
}
