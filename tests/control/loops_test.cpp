// Loops and branches written with lambdas: values, trees, captures, weak carries, and the program they become.
#include "tests/control/interpreted.h"

using namespace sheaf;
using sheaf::tests::interpreted;

namespace {

using V = std::vector<double>;
struct Layer {
  Array W, b;
};
struct State {
  Array position, velocity;
};

}  // namespace

TEST_CASE("a scan carries a tree, stacks what it returns beside, and captures what it reads") {
  auto f = [](Array w, Array x) {
    const auto [last, ys] = scan(
        [&](State s, Array force) {
          const State next{s.position + s.velocity, s.velocity + w * force};
          return std::pair{next, std::pair{next.position, force * 2}};
        },
        State{0.0, 1.0}, x);
    return std::tuple{last, ys};
  };
  const auto out = interpreted(f, full({}, 1.0f, f32), array({1.0, 2.0, 3.0}));
  CHECK(out[0] == V{7});
  CHECK(out[1] == V{7});
  CHECK(out[2] == V{1, 3, 7});
  CHECK(out[3] == V{2, 4, 6});
  CHECK(
      out.text() ==
      "func @f(%arg0: f32[], %arg1: f32[3]) -> f32[], f32[], f32[3], f32[3] {\n"
      "  %0: f32[], %1: f32[], %2: f32[3], %3: f32[3] = scan %arg0, 0.0:f32, 1.0:f32, %arg1 {consts=1, carry=2, length=3} "
      "(%a0: f32[], %carry.position: f32[], %carry.velocity: f32[], %x: f32[]) {\n"
      "    %0: f32[] = add %carry.position, %carry.velocity\n"
      "    %1: f32[] = mul %a0, %x\n"
      "    %2: f32[] = add %carry.velocity, %1\n"
      "    %3: f32[] = mul %x, 2.0:f32\n"
      "    return %0, %2, %0, %3\n"
      "  }\n"
      "  return %0, %1, %2, %3\n"
      "}\n");
}

TEST_CASE("scan: xs and ys may be none, xs may be layers, and the length may be zero") {
  auto doubled = [](Array x) {
    return scan([](Array h, None) { return std::pair{h * 2, none}; }, x, none, {.length = 3}).first;
  };
  CHECK(interpreted(doubled, array({1.0, 2.0}))[0] == V{8, 16});

  auto network = [](Array x, Layer layers) {
    return scan([](Array h, Layer l) { return std::pair{dot(h, l.W) + l.b, none}; }, x, layers).first;
  };
  const Layer layers{array({{{1.0, 1.0}, {0.0, 1.0}}, {{2.0, 0.0}, {0.0, 2.0}}}), array({{1.0, 0.0}, {0.0, 1.0}})};
  CHECK(interpreted(network, array({1.0, 1.0}), layers)[0] == V{4, 5});

  auto empty = [](Array x, Array rows) { return scan([](Array h, Array r) { return std::pair{h + r, h}; }, x, rows); };
  const auto out = interpreted(empty, array({1.0, 2.0}), zeros({0, 2}));
  CHECK(out[0] == V{1, 2});
  CHECK(out.function->results()[1].dims() == Shape{0, 2});
}

TEST_CASE("a reverse scan goes from the last row, and its ys stay in the order of xs") {
  auto f = [](Array x) {
    return scan([](Array c, Array r) { return std::pair{c + r, c + r}; }, 0.0, x, {.reverse = true, .unroll = 2});
  };
  const auto out = interpreted(f, array({1.0, 2.0, 4.0}));
  CHECK(out[0] == V{7});
  CHECK(out[1] == V{7, 6, 4});
  CHECK(out.text().find("{carry=1, length=3, reverse=true, unroll=2}") != std::string::npos);
}

TEST_CASE("a carry that starts as a C++ number takes the dtype the body returns") {
  auto sum_of = [](Array x) { return scan([](Array c, Array r) { return std::pair{c + r, none}; }, 0, x).first; };
  for (const DType dtype : {f16, bf16, f32, f64, i32, i64, u8})
    CHECK(interpreted(sum_of, array({1, 2, 3}, dtype)).function->results()[0].dtype() == dtype);
  // Two numbers that promote each other: i32 becomes f32, stays weak, then meets f64.
  auto swapping = [](Array x) {
    return scan([](std::pair<Array, Array> c, Array r) { return std::pair{std::pair{c.second, c.first * r}, none}; },
                std::pair{Array(0), Array(0.5)}, x)
        .first;
  };
  CHECK(interpreted(swapping, array({1, 2}, f64)).function->results()[0].dtype() == f64);
  CHECK(interpreted(swapping, array({1, 2}, f64)).function->results()[1].dtype() == f64);
  // And a number that the body returns takes the dtype of the carry, to all its digits.
  auto constant = [](Array x) { return scan([](Array, Array) { return std::pair{0.1, none}; }, x[0], x).first; };
  CHECK(interpreted(constant, array({1, 2}, f64))[0] == V{0.1});
}

TEST_CASE("map, fori_loop and while_loop compute what the plain loops do") {
  auto mapped = [](Layer l) { return map([](Layer r) { return sum(r.W) + r.b; }, l); };
  CHECK(interpreted(mapped, Layer{array({{1.0, 2.0}, {3.0, 4.0}}), array({10.0, 20.0})})[0] == V{13, 27});
  auto sines = [](Array x) { return map(sheaf::sin, x); };
  CHECK(interpreted(sines, zeros({2}))[0] == V{0, 0});

  auto counted = [](Array x) { return fori_loop(2, 5, [](Array i, Array c) { return c * i; }, x); };
  const auto out = interpreted(counted, Array(1.0f));
  CHECK(out[0] == V{24});
  CHECK(out.text().find("scan") != std::string::npos);
  CHECK(interpreted([](Array x) { return fori_loop(5, 2, [](Array i, Array c) { return c * i; }, x); },
                    full({}, 3, f32))[0] == V{3});

  auto bounded = [](Array n, Array x) { return fori_loop(0, n, [](Array i, Array c) { return c + i; }, x); };
  const auto traced = interpreted(bounded, full({}, 4, i32), full({}, 1, f64));
  CHECK(traced[0] == V{7});
  CHECK(traced.text().find("while") != std::string::npos);

  auto collatz = [](Array n) {
    return while_loop([](std::pair<Array, Array> c) { return c.first != 1; },
                      [](std::pair<Array, Array> c) {
                        const auto [at, steps] = c;
                        return std::pair{where(at % 2 == 0, at / 2, 3 * at + 1), steps + 1};
                      },
                      std::pair{n, Array(0)})
        .second;
  };
  CHECK(interpreted(collatz, full({}, 27, i32))[0] == V{111});
}

TEST_CASE("while_loop keeps the captures of condition and body apart, and stops at max_trips") {
  auto f = [](Array limit, Array factor, Array x) {
    return while_loop([&](Array c) { return c < limit; }, [&](Array c) { return c * factor; }, x, {.max_trips = 3});
  };
  const auto out = interpreted(f, full({}, 100, f64), full({}, 3, f64), full({}, 2, f64));
  CHECK(out[0] == V{54});
  CHECK(out.text().find("{cond_consts=1, body_consts=1, max_trips=3}") != std::string::npos);
}

TEST_CASE("cond runs one branch; its branches share the list of their captures") {
  auto f = [](Array p, Array a, Array b, Array x) {
    return cond(p, [&](Array v) { return a * v; }, [&](Array v) { return b - a * v; }, x);
  };
  const Array a = full({}, 2, f32), b = full({}, 10, f32), x = full({}, 3, f32);
  const auto out = interpreted(f, Array(true), a, b, x);
  CHECK(out[0] == V{6});
  CHECK(interpreted(f, Array(false), a, b, x)[0] == V{4});
  CHECK(out.text() ==
        "func @f(%arg0: bool[], %arg1: f32[], %arg2: f32[], %arg3: f32[]) -> f32[] {\n"
        "  %0: i32[] = convert %arg0 {to=i32}\n"
        "  %1: f32[] = cond %0, %arg1, %arg2, %arg3 (%a0: f32[], %a1: f32[], %arg0: f32[]) {\n"
        "    %0: f32[] = mul %a0, %arg0\n"
        "    %1: f32[] = sub %a1, %0\n"
        "    return %1\n"
        "  } (%a0: f32[], %a1: f32[], %arg0: f32[]) {\n"
        "    %0: f32[] = mul %a0, %arg0\n"
        "    return %0\n"
        "  }\n"
        "  return %1\n"
        "}\n");
}

TEST_CASE("cond takes a bool or a number of the host, numbers as operands, and branches that return numbers") {
  auto pick = [](auto p) {
    return interpreted([p](Array x) { return cond(p, [](Array v) { return v * 2; }, [](Array) { return 0.1; }, x); },
                       full({}, 3, f64))[0];
  };
  CHECK(pick(true) == V{6});
  CHECK(pick(false) == V{0.1});
  CHECK(pick(2) == V{6});
  CHECK(pick(0.0) == V{0.1});
  auto scaled = [](Array x) {
    return cond(x[0] > 0, [](Array a, Array v) { return a * v; }, [](Array a, Array v) { return v - a; }, 0.1, x);
  };
  CHECK(interpreted(scaled, array({1, 2}, f64))[0] == V{0.1, 0.2});
}

TEST_CASE("switch_ clamps its index, whatever integer it is") {
  for (const DType dtype : {i8, u8, i32, i64, u64})
    for (const int at : {0, 1, 2, 100}) {
      auto f = [](Array k, Array x) {
        return switch_(k, std::tuple{[](Array v) { return v; }, [](Array v) { return v * 2; }, &sheaf::square}, x);
      };
      CHECK(interpreted(f, full({}, at, dtype), full({}, 5, f32))[0] == V{at == 0 ? 5.0 : at == 1 ? 10.0 : 25.0});
    }
  auto listed = [](Array k, Array x) { return switch_(k, std::vector{sheaf::sin, sheaf::cos, sheaf::square}, x); };
  CHECK(interpreted(listed, full({}, 9, i32), full({}, 5, f32))[0] == V{25});
  auto f = [](Array k, Array x) {
    return switch_(k, std::tuple{[](Array v) { return v; }, [](Array v) { return -v; }}, x);
  };
  CHECK(interpreted(f, full({}, -3, i64), full({}, 5, f32))[0] == V{5});
  CHECK(interpreted(f, full({}, 1ll << 32, i64), full({}, 5, f32))[0] == V{-5});
}

TEST_CASE("loops nest, in each other and in jit, grad and vmap, and capture across all of them") {
  auto f = [](Array w, Array x) {
    return scan(
               [&](Array c, Array row) {
                 const Array inner = fori_loop(0, 2, [&](Array, Array h) { return sin(h * w) + row; }, c);
                 return std::pair{cond(sum(inner) > 0, [&] { return inner * w; }, [&] { return inner + row; }), inner};
               },
               x[0], x)
        .first;
  };
  auto loss = [&](Array w, Array x) { return sum(jit(f)(w, x)); };
  const Array w = full({}, 0.7, f64), x = array({{0.3, -0.2}, {0.5, 0.1}, {-0.4, 0.9}}, f64);
  const double h = 1e-6;
  const double slope =
      (interpreted(loss, full({}, 0.7 + h, f64), x).scalar() - interpreted(loss, full({}, 0.7 - h, f64), x).scalar()) /
      (2 * h);
  CHECK(interpreted(grad(loss), w, x).scalar() == doctest::Approx(slope).epsilon(1e-7));
  const auto batched = interpreted(vmap(grad(loss), {.in = {0, none}}), array({0.7, 0.2}, f64), x);
  CHECK(batched[0][0] == doctest::Approx(slope).epsilon(1e-7));
  CHECK(batched[0][1] == doctest::Approx(interpreted(grad(loss), full({}, 0.2, f64), x).scalar()));
}
