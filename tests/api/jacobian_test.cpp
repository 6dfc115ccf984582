// Derivatives of trees in trees, what comes along, integers among the arguments, and axes by path for vmap.
#include <doctest/doctest.h>

#include <regex>

#include "sheaf/sheaf.h"

using namespace sheaf;

namespace {

using V = std::vector<double>;
V values(const Array& x) { return x.to_vector<double>(); }

struct Layer {
  Array W, b;
};
struct Counted {
  Array x, steps;
};

template <class E, class F>
std::string said(F f) {
  try {
    f();
  } catch (const E& e) { return std::regex_replace(e.what(), std::regex("jacobian_test\\.cpp:[0-9]+"), "HERE"); }
  return "nothing was thrown";
}

Layer layer() { return {array({2.0, 3.0}, f64), full({}, 5, f64)}; }

}  // namespace

TEST_CASE("of a tree in a tree there is one row per leaf of the result, like the argument") {
  const auto f = [](Layer l) { return std::pair{l.W * l.b, Layer{sum(l.W * l.W), l.b * l.b}}; };
  const auto check = [](const Jacobian<Layer>& j) {
    CHECK(j.paths == std::vector<std::string>{"[0]", "[1].W", "[1].b"});
    CHECK(j.rows[0].W.shape() == Shape{2, 2});
    CHECK(values(j.rows[0].W) == V{5, 0, 0, 5});
    CHECK(values(j.rows[0].b) == V{2, 3});
    CHECK(values(j.row("[1].W").W) == V{4, 6});
    CHECK(values(j.row("[1].W").b) == V{0});
    CHECK(values(j.row("[1].b").W) == V{0, 0});
    CHECK(values(j.row("[1].b").b) == V{10});
  };
  check(jacfwd(f)(layer()));
  check(jacrev(f)(layer()));
  check(jit(jacrev(f))(layer()));
  CHECK(said<TypeError>([&] { jacrev(f)(layer()).row(".W"); }) ==
        "HERE: Jacobian: the result has no leaf \".W\"; it has [0], [1].W, [1].b");
}

TEST_CASE("the Hessian of a scalar in a tree is a row per leaf; vmap batches its leaves") {
  const auto f = [](Layer l) { return sum(l.W * l.W) * l.b; };
  const Jacobian<Layer> h = hessian(f)(layer());
  CHECK(values(h.row(".W").W) == V{10, 0, 0, 10});
  CHECK(values(h.row(".W").b) == V{4, 6});
  CHECK(values(h.row(".b").W) == V{4, 6});
  CHECK(values(h.row(".b").b) == V{0});
  const Layer two{stack({layer().W, 2 * layer().W}), stack({layer().b, layer().b})};
  CHECK(values(vmap(hessian(f))(two).row(".b").W) == V{4, 6, 8, 12});
  const auto second = hessian<1>([](Array a, Array x) { return a * sum(x * x * x); })(2.0, array({1.0, 2.0}, f64));
  CHECK(values(second) == V{12, 0, 0, 24});
}

TEST_CASE("what comes along in WithAux is not differentiated, and may be anything") {
  const auto f = [](Array x) { return WithAux{x * x, std::pair{sum(x) > 1, x + 1}}; };
  const Array x = array({1.0, 2.0}, f64);
  const auto check = [](const auto& j) {
    CHECK(values(j.value) == V{2, 0, 0, 4});
    CHECK(values(j.aux.first) == V{1});
    CHECK(values(j.aux.second) == V{2, 3});
  };
  check(jacfwd(f)(x));
  check(jacrev(f)(x));
  check(jit(jacfwd(f))(x));
  const auto h = hessian([](Array v) { return WithAux{sum(v * v * v), arange(2)}; })(x);
  CHECK(values(h.value) == V{6, 0, 0, 12});
  CHECK(values(h.aux) == V{0, 1});
}

TEST_CASE("jvp, linearize, vjp and grad take WithAux too") {
  const auto f = [](Array x, Array y) { return WithAux{x * y, std::pair{x + y, arange(2)}}; };
  const Array x = array({1.0, 2.0}, f64), y = array({3.0, 4.0}, f64), one = ones({2}, f64);
  const auto [value, tangent, along] = jvp(f, std::tuple{x, y}, std::tuple{one, 0 * one});
  CHECK(values(value) == V{3, 8});
  CHECK(values(tangent) == V{3, 4});
  CHECK(values(along.first) == V{4, 6});
  const auto [same_value, linear, also_along] = linearize(f, x, y);
  CHECK(values(same_value) == V{3, 8});
  CHECK(values(linear(one, one)) == V{4, 6});
  CHECK(values(also_along.second) == V{0, 1});
  const auto [again, pull, rest] = sheaf::vjp(f, x, y);
  CHECK(values(std::get<1>(pull(one))) == V{1, 2});
  CHECK(values(rest.first) == V{4, 6});
  const auto [g, aux] = grad([](Array v) { return WithAux{sum(v * v), v > 1}; })(x);
  CHECK(values(g) == V{2, 4});
  CHECK(values(aux) == V{0, 1});
}

TEST_CASE("grad refuses integers, and with allow_int gives them zeros of their own type") {
  const auto f = [](Counted c, Array scale) { return sum(c.x * c.x) * scale + 0 * convert(sum(c.steps), f64); };
  const Counted c{array({1.0, 2.0}, f64), array({3, 4})};
  CHECK(said<TypeError>([&] { grad(f)(c, 2.0); }) ==
        "HERE: grad: argument 0 .steps is i32[2]; only floats have gradients. Pass it in an argument that is not "
        "differentiated, or give grad {.allow_int = true}, which makes its gradient zero");
  const Counted g = grad(f, {.allow_int = true})(c, 2.0);
  CHECK(values(g.x) == V{4, 8});
  CHECK(g.steps.dtype() == i32);
  CHECK(values(g.steps) == V{0, 0});
  const auto [value, both] = jit(value_and_grad<1, 0>(f, {.allow_int = true}))(c, full({}, 2, f64));
  CHECK(values(value) == V{10});
  CHECK(values(std::get<0>(both)) == V{5});
  CHECK(values(std::get<1>(both).x) == V{4, 8});
  CHECK(values(std::get<1>(both).steps) == V{0, 0});
  CHECK(values(grad([](Array n) { return sum(n) * 0.5; }, {.allow_int = true})(arange(2))) == V{0, 0});
}

TEST_CASE("vmap takes the axes of a tree by path, for arguments and results") {
  const auto f = [](Layer l, Array x) { return Layer{dot(l.W, x) + l.b, l.b * 2.0}; };
  const Layer l{array({{1.0, 3.0}, {2.0, 4.0}}), full({}, 1.0)};
  const Array x = array({1.0, 10.0});
  const Layer y =
      vmap(f, {.in = {axes({{".W", 1}, {".b", none}}), none}, .out = {axes({{".W", 0}, {".b", none}})}})(l, x);
  CHECK(values(y.W) == V{22, 44});
  CHECK(values(y.b) == V{2});
  const std::pair<Layer, Array> nested{l, x};
  const auto g = [](std::pair<Layer, Array> p) { return std::pair{p.first.W * p.second, p.first}; };
  const auto z = vmap(g, {.in = {axes({{"", 0}, {"[0].b", none}})}, .out = {0, axes({{"", 1}, {".b", none}})}})(nested);
  CHECK(values(z.first) == V{1, 3, 20, 40});
  CHECK(values(z.second.W) == V{1, 2, 3, 4});
  CHECK(values(z.second.b) == V{1});
  CHECK(values(vmap(g, {.in = {axes({{"[0].W", 0}, {"[0].b", none}, {"[1]", 0}})},
                        .out = {axes({{"[0]", 0}, {"[1]", 0}})}})(nested)
                   .second.b) == V{1, 1});
  CHECK(said<TypeError>([&] { vmap(f, {.in = {axes({{".W", 1}}), none}})(l, x); }) ==
        "HERE: vmap: argument 0 has the leaf .b, and axes only for .W");
  CHECK(said<TypeError>([&] { vmap(f, {.in = {axes({{"", 0}, {".V", 1}}), none}})(l, x); }) ==
        "HERE: vmap: argument 0 has no leaf .V to give an axis");
  CHECK(said<TypeError>([&] {
          vmap(f, {.in = {axes({{".W", 0}, {".b", none}}), none}, .out = {axes({{".W", 0}})}})(l, x);
        }) == "HERE: vmap: the result has the leaf .b, and axes only for .W");
}

TEST_CASE("axes by path name each leaf once, and every leaf") {
  const auto f = [](Layer l, Array x) { return Layer{l.W * x, l.b}; };
  const Layer l{ones({2}), ones({2})};
  const Array x = ones({2});
  CHECK(said<TypeError>([&] { vmap(f, {.in = {axes({}), 0}})(l, x); }) ==
        "HERE: vmap: argument 0 has the leaf .W, and no axes");
  CHECK(said<TypeError>([&] { vmap(f, {.in = {0, axes({})}})(l, x); }) ==
        "HERE: vmap: argument 1 has one leaf, itself, and no axes");
  CHECK(said<TypeError>([&] { vmap(f, {.in = {0, axes({{".W", 1}})}})(l, x); }) ==
        "HERE: vmap: argument 1 has one leaf, itself, and axes only for .W");
  CHECK(said<TypeError>([&] { vmap(f, {.in = {axes({{".W", 0}, {".b", 0}, {".W", none}}), 0}})(l, x); }) ==
        "HERE: vmap: the axes of argument 0 list the path \".W\" twice");
  CHECK(said<TypeError>([&] { vmap(f, {.out = {axes({{"", 0}, {"", 0}})}})(l, x); }) ==
        "HERE: vmap: the axes of the result list the path \"\" twice");
  const auto no_leaf = [&](std::tuple<>, Array v) { return v; };
  CHECK(said<TypeError>([&] { vmap(no_leaf, {.in = {axes({{"", 0}}), 0}})(std::tuple<>(), x); }) ==
        "HERE: vmap: argument 0 has no leaf to give an axis");
  CHECK(values(vmap(no_leaf, {.in = {axes({}), 0}})(std::tuple<>(), x)) == V{1, 1});
}

TEST_CASE("jacfwd and jacrev refuse arguments and results that are no floats") {
  const auto is_positive = [](Array x) { return x > 0; };
  const Array x = ones({2});
  CHECK(said<TypeError>([&] { jacfwd(is_positive)(x); }) ==
        "HERE: jacfwd: the result is bool[2]; only floats have derivatives");
  CHECK(said<TypeError>([&] { jacrev(is_positive)(x); }) ==
        "HERE: jacrev: the result is bool[2]; only floats have derivatives");
  const Array n = arange(2);
  CHECK(said<TypeError>([&] { jacfwd(is_positive)(n); }) ==
        "HERE: jacfwd: the argument is i32[2]; only floats have derivatives");
  CHECK(said<TypeError>([&] { jacrev(is_positive)(n); }) ==
        "HERE: jacrev: the argument is i32[2]; only floats have derivatives");
}

TEST_CASE("gradients of no arrays, and tangents or cotangents of another number than the leaves, are refused") {
  const auto square = [](double x) { return Array(x) * x; };
  CHECK(said<TypeError>([&] { grad(square)(2.0); }) ==
        "HERE: grad: argument 0 has no arrays: make the parameter an Array");
  using List = std::vector<Array>;
  const auto doubled = [](List l) { return List{l[0] * 2, l[1] * 2}; };
  const Array x = ones({});
  CHECK(said<TypeError>([&] { jvp(doubled, List{x, x}, List{x}); }) == "HERE: jvp: 1 tangents for 2 leaves");
  const auto [value, along] = linearize(doubled, List{x, x});
  CHECK(said<TypeError>([&] { along(List{x}); }) == "HERE: linearize: 1 tangents for 2 leaves");
  const auto [again, back] = sheaf::vjp(doubled, List{x, x});
  CHECK(said<TypeError>([&] { back(List{x, x, x}); }) == "HERE: vjp: 3 cotangents for 2 leaves");
}
