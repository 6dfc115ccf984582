// jit: what is traced, what is static, what is captured, how often it compiles, and nesting.
#include <doctest/doctest.h>

#include <cmath>
#include <map>
#include <optional>
#include <thread>

#include "sheaf/sheaf.h"

using namespace sheaf;

namespace {

using V = std::vector<double>;
V values(const Array& x) { return x.to_vector<double>(); }

struct Layer {
  Array W, b;
};
struct Config {
  int power;
  std::string name;
};
struct Bag {
  std::vector<Array> list;
  std::optional<Array> maybe;
  std::map<std::string, Array> named;
  std::pair<Array, int> pair;
};

}  // namespace

TEST_CASE("jit compiles once per signature, and C++ numbers never retrace") {
  auto f = jit([](Array a, Array x) { return a * x; });
  const Array x = ones({3});
  CHECK(values(f(2.0f, x)) == V{2, 2, 2});
  CHECK(values(f(3.0, x)) == V{3, 3, 3});
  CHECK(values(f(4.5f, x)) == V{4.5, 4.5, 4.5});
  CHECK(traces(f) == 1);
  CHECK(compiles(f) == 1);
  f(2.0f, ones({4}));
  CHECK(compiles(f) == 2);
}

TEST_CASE("jit keeps numbers weak and unrounded") {
  auto f = jit([](Array a, Array x) { return a * x; });
  CHECK(f(2.0, ones({2}, bf16)).dtype() == bf16);
  CHECK(f(0.1, ones({1}, f64)).item<double>() == 0.1);
  CHECK((f(2.0, 3.0) * ones({1}, bf16)).dtype() == bf16);
}

TEST_CASE("arguments that are no arrays are static and part of the key") {
  auto f = jit([](Config c, Array x) { return c.name == "pow" ? pow(x, c.power) : x; });
  CHECK(f({2, "pow"}, 3.0).item<double>() == 9);
  CHECK(f({3, "pow"}, 3.0).item<double>() == 27);
  CHECK(f({3, "id"}, 3.0).item<double>() == 3);
  CHECK(f({2, "pow"}, 4.0).item<double>() == 16);
  CHECK(traces(f) == 3);
}

TEST_CASE("trees of all standard containers go in and come out") {
  auto f = jit([](Bag b) {
    for (Array& x : b.list) x += 1;
    if (b.maybe) *b.maybe *= b.pair.second;
    for (auto& [name, x] : b.named) x = -x;
    return b;
  });
  const Bag out = f({{1.0, 2.0}, 3.0, {{"a", 4.0}}, {5.0, 6}});
  CHECK(out.list[1].item<double>() == 3);
  CHECK(out.maybe->item<double>() == 18);
  CHECK(out.named.at("a").item<double>() == -4);
  CHECK(out.pair.second == 6);
  CHECK_FALSE(f({{}, {}, {}, {5.0, 6}}).maybe);
  CHECK(tree_paths(out) == std::vector<std::string>{".list[0]", ".list[1]", ".maybe", ".named.a", ".pair[0]"});
}

TEST_CASE("captured arrays are inputs, and generic lambdas take the arguments' types") {
  const Array w = array({1.0, 2.0});
  auto f = jit([w](auto x, auto n) { return w * x + n; });
  CHECK(values(f(ones({2}), 3)) == V{4, 5});
  CHECK(f.text(ones({2}), 3).find("constant") == std::string::npos);
}

TEST_CASE("a stateless lambda in a loop is traced once, functions by address") {
  std::int64_t count = 0;
  for (int i = 0; i < 3; ++i) {
    auto f = jit([](Array x) { return x + 1; });
    CHECK(f(i).item<int>() == i + 1);
    count = traces(f);
  }
  CHECK(count == 1);
  CHECK(values(jit(dot)(ones({2, 3}), ones({3, 1}))) == V{3, 3});
  CHECK(values(vmap(matmul)(ones({2, 1, 3}), ones({2, 3, 1}))) == V{3, 3});  // its options are left out
}

TEST_CASE("whoever takes a function by reference leaves its options out too") {
  const Array v = ones({3}), w = arange(3.0);
  CHECK(jvp(dot, std::tuple{v, w}, std::tuple{v, v}).second.item<float>() == 6);
  CHECK(values(std::get<0>(vjp(dot, v, w).second(full({}, 2.0)))) == V{0, 2, 4});
  CHECK(eval_shape(matmul, ones({2, 3}), ones({3, 4})).shape() == Shape{2, 4});
}

TEST_CASE("jit inside jit is a call, inlined on request") {
  auto inner = jit([](Array x) { return sin(x) * x; }, {.name = "inner"});
  auto outer = jit([&](Array x) { return inner(x) + inner(2 * x); }, {.name = "outer"});
  CHECK(outer.text(1.0).find("call @inner") != std::string::npos);
  CHECK(outer(0.5).item<float>() == doctest::Approx(std::sin(0.5) * 0.5 + std::sin(1.0)));
  auto flat = jit([](Array x) { return sin(x) * x; }, {.name = "flat", .inlined = true});
  CHECK(jit([&](Array x) { return flat(x); }).text(1.0).find("call") == std::string::npos);
}

TEST_CASE("inner lambdas may use outer traced values and concrete arrays") {
  const Array c = array({1.0, 2.0});
  auto f = jit([&](Array x) {
    auto g = jit([&](Array y) { return y * x + c; });
    return g(x) + vmap([&](Array r) { return r * sum(x); })(c);
  });
  CHECK(values(f(ones({2}) * 3)) == V{10 + 6, 11 + 12});
  CHECK(values(f(ones({2}) * 2)) == V{5 + 4, 6 + 8});
}

TEST_CASE("donated buffers are taken, and using one after says who took it") {
  auto f = jit([](Layer p) { return Layer{p.W + 1, p.b}; }, {.name = "update", .donate = {0}});
  Layer p{ones({1000}), ones({3})};
  const Layer before = p;
  p = f(p);
  p = f(p);
  CHECK(p.W[0].item<float>() == 3);
  CHECK_THROWS_AS(before.W.to_vector<float>(), RuntimeError);
}

TEST_CASE("results may be arguments, constants and numbers") {
  auto f = jit([](Array x) { return std::tuple{x, Array(2.5), zeros({2}), 7}; });
  const auto [x, number, z, n] = f(ones({2}));
  CHECK(values(x) == V{1, 1});
  CHECK(number.item<double>() == 2.5);
  CHECK(values(z) == V{0, 0});
  CHECK(n == 7);
}

TEST_CASE("eval_shape gives shapes and runs nothing") {
  const Layer shapes = eval_shape([](Layer p, Array x) { return Layer{dot(x, p.W), p.b > 0}; },
                                  Layer{abstract({3, 4}), abstract({4})}, abstract({2, 3}, f32));
  CHECK(shapes.W.shape() == Shape{2, 4});
  CHECK(shapes.b.dtype() == bool_);
  CHECK_THROWS_AS(shapes.W.item<float>(), TypeError);
}

TEST_CASE("many threads calling one function compile it once") {
  auto f = jit([](Array x) { return tanh(x) * 3 + cos(x); });
  std::vector<std::thread> threads;
  std::vector<float> got(8);
  for (int i = 0; i < 8; ++i) threads.emplace_back([&, i] { got[i] = f(ones({5}))[0].item<float>(); });
  for (std::thread& t : threads) t.join();
  for (const float g : got) CHECK(g == got[0]);
  CHECK(compiles(f) == 1);
}

TEST_CASE("jit gives the bits of eager execution") {
  const Array x = random::normal(random::key(3), {64, 33});
  const auto body = [](Array v) { return softmax(gelu(v) * 3.0 + tanh(v), 1); };
  CHECK(same(jit(body)(x), body(x)));
}

TEST_CASE("indexing eagerly by many positions is one program") {
  const Array x = arange(10);
  x[0].item<int>();
  const std::int64_t before = stats().programs;
  for (int i = 1; i < 10; ++i) CHECK(x[i].item<int>() == i);
  CHECK(stats().programs == before);
}
