// shard_map by the reference: control flow whose values differ from device to device, derivatives inside and around,
// vmap, nesting, and the axes of collectives.
#include "sheaf/shard_map.h"

#include <doctest/doctest.h>

#include <cmath>

#include "tests/api/on_reference.h"

using namespace sheaf;
using sheaf::tests::close;
using sheaf::tests::count_op;
using sheaf::tests::numbers;
using sheaf::tests::on_reference;
using sheaf::tests::program_of;

namespace {

const Mesh x4 = Mesh::abstract({{"x", 4}});
const Mesh x2y2 = Mesh::abstract({{"x", 2}, {"y", 2}});

// f over x's parts along dim 0, one result for all.
template <class F>
auto over_x(F f) {
  return shard_map(f, {.mesh = x4, .in = {P("x"), P()}, .out = {P()}});
}
template <class F>
auto kept_over_x(F f) {
  return shard_map(f, {.mesh = x4, .in = {P("x"), P()}, .out = {P("x")}});
}

// The gradient of the sum of f by both arguments, against differences along a direction.
template <class F>
void check_gradient(F f, const Array& a, const Array& b) {
  const auto total = [f](Array u, Array v) { return sum(square(f(u, v))); };
  const std::vector<Array> g = on_reference([&](Array u, Array v) { return grad<0, 1>(total)(u, v); }, a, b);
  const Array da = numbers(a.shape(), 2), db = numbers(b.shape(), 3);
  constexpr double h = 1e-5;
  const double after = on_reference(total, a + h * da, b + h * db)[0].template item<double>();
  const double before = on_reference(total, a - h * da, b - h * db)[0].template item<double>();
  const double along = (sum(g[0] * da) + sum(g[1] * db)).item<double>();
  CHECK(along == doctest::Approx((after - before) / (2 * h)).epsilon(1e-6));
}

}  // namespace

TEST_CASE("a carry that comes to differ along an axis does so from its start") {
  const auto f = [](Array rows, Array w) {
    return scan([&](Array c, Array row) { return std::pair{c * w + sum(row), none}; }, Array(0.0), rows).first;
  };
  const Array x = numbers({8, 3}), w = Array(0.5);
  const auto total = over_x([f](Array rows, Array v) { return psum(f(rows, v), "x"); });
  Array expected = f(x[slice(0, 2)], convert(w, f64));
  for (int d = 1; d < 4; ++d) expected = expected + f(x[slice(2 * d, 2 * d + 2)], convert(w, f64));
  CHECK(close(on_reference(total, x, convert(w, f64))[0], expected));
  check_gradient(total, x, convert(w, f64));
}

TEST_CASE("what a loop reads of a parameter that all have is cast once, and its gradient summed once") {
  const auto f = over_x([](Array rows, Array w) {
    return psum(scan([&](Array c, Array row) { return std::pair{c + sum(row * w), none}; }, Array(0.0), rows).first,
                "x");
  });
  const auto g = program_of([&](Array x, Array w) { return grad<1>(f)(x, w); }, numbers({8, 3}), numbers({3}));
  for (const ir::Eqn* e : g->eqns())
    if (e->op == &ir::ops::shard_map)
      for (const ir::Eqn* inner : e->regions[0]->eqns())
        if (inner->op == &ir::ops::scan) CHECK(count_op(*inner->regions[0], ir::ops::all_reduce) == 0);
  check_gradient(f, numbers({8, 3}), numbers({3}));
}

TEST_CASE("branches that devices choose for themselves give what differs, and their gradients") {
  const auto f = over_x([](Array part, Array w) {
    const Array s = sum(part);
    return psum(cond(
                    s > 0, [](Array v, Array u) { return sum(sin(v) * u); },
                    [](Array, Array u) { return 2.0 * sum(u); }, part, w),
                "x");
  });
  const Array x = numbers({8, 3}, 0.4), w = numbers({2, 3}, 1);
  double expected = 0;
  for (int d = 0; d < 4; ++d) {
    const Array part = x[slice(2 * d, 2 * d + 2)];
    expected += sum(part).item<double>() > 0 ? sum(sin(part) * w).item<double>() : 2 * sum(w).item<double>();
  }
  CHECK(on_reference(f, x, w)[0].item<double>() == doctest::Approx(expected));
  check_gradient(f, x, w);
  // A capture is an operand too.
  const auto captured = over_x([](Array part, Array u) {
    return psum(
        cond(sum(part) > 0, [&](Array v) { return sum(sin(v) * u); }, [&](Array) { return sum(u); }, part), "x");
  });
  check_gradient(captured, x, w);
}

TEST_CASE("loops that devices leave at steps of their own differ, and are differentiated with a bound") {
  const auto f = over_x([](Array part, Array w) {
    const auto more = [](std::pair<Array, Array> c) { return sum(c.second) < 4.0; };
    const auto step = [&](std::pair<Array, Array> c) {
      return std::pair{c.first * sum(w), c.second + abs(sum(part)) + 1.0};
    };
    return psum(while_loop(more, step, std::pair{sum(part), Array(0.0)}, {.max_trips = 6}).first, "x");
  });
  const Array x = numbers({8}), w = numbers({3}, 0.2);
  double expected = 0;
  const double by = sum(w).item<double>();
  for (int d = 0; d < 4; ++d) {
    double c = sum(x[slice(2 * d, 2 * d + 2)]).item<double>();
    const double add = std::abs(c) + 1;
    for (double t = 0; t < 4.0; t += add) c *= by;
    expected += c;
  }
  CHECK(on_reference(f, x, w)[0].item<double>() == doctest::Approx(expected));
  check_gradient(f, x, w);
}

TEST_CASE("checkpoints and custom rules take values that differ beside such that do not") {
  const Array x = numbers({8, 3}), w = numbers({3}, 1);
  check_gradient(over_x([](Array part, Array u) {
                   return psum(checkpoint([](Array p, Array v) { return sum(sin(p * v)); })(part, u), "x");
                 }),
                 x, w);
  const auto rule = custom_vjp([](Array p, Array v) { return p * v; },
                               [](Array p, Array v) { return std::pair{p * v, std::pair{p, v}}; },
                               [](std::pair<Array, Array> kept, Array ct) {
                                 return std::tuple{ct * kept.second, sum(ct * kept.first, {.axes = {0}})};
                               });
  check_gradient(over_x([&](Array part, Array u) { return psum(sin(rule(part, u)), "x"); }), x, w);
  const auto forward =
      custom_jvp([](Array p, Array v) { return p * v; },
                 [](Array p, Array v, Array tp, Array tv) { return std::pair{p * v, tp * v + p * tv}; });
  check_gradient(over_x([&](Array part, Array u) { return psum(sin(forward(part, u)), "x"); }), x, w);
}

TEST_CASE("a derivative taken inside adds up over the devices where the parameter is one for all") {
  const auto loss = [](Array part, Array w) { return sum(square(part * w)); };
  const auto f = over_x([&](Array part, Array w) { return grad<1>(loss)(part, w); });
  const Array x = numbers({8, 3}), w = numbers({3}, 1);
  CHECK(close(on_reference(f, x, w)[0], grad<1>(loss)(x, w)));
  // As a value that differs it has each device's own.
  const auto own = kept_over_x([&](Array part, Array u) { return grad<1>(loss)(part, pcast(u, "x"))[newaxis]; });
  const Array all = on_reference(own, x, w)[0];
  CHECK(all.shape() == Shape{4, 3});
  CHECK(close(sum(all, {.axes = {0}}), grad<1>(loss)(x, w)));
}

TEST_CASE("vmap outside and inside, and over an axis spread over the mesh") {
  const auto f = kept_over_x([](Array part, Array w) { return part * w - pmean(part, "x"); });
  const Array x = numbers({3, 8, 2}), w = numbers({2});
  const Array batched = on_reference([&](Array a, Array b) { return vmap(f, {.in = {0, none}})(a, b); }, x, w)[0];
  for (int i = 0; i < 3; ++i) CHECK(close(batched[i], on_reference(f, x[i], w)[0]));

  const auto inside = kept_over_x([](Array part, Array u) {
    return vmap([&](Array row) { return row * psum(row * u, {"x", "rows"}); }, {.axis_name = "rows"})(part);
  });
  const Array rows = numbers({8, 2});
  CHECK(close(on_reference(inside, rows, w)[0], rows * sum(rows * w, {.axes = {0}})));

  const auto spread = shard_map([](Array part, Array u) { return psum(part * u, "y"); },
                                {.mesh = x2y2, .in = {P("y"), P()}, .out = {P()}, .axis_names = {"y"}});
  const Array four = numbers({4, 4, 2});
  const auto mapped = [&](Array a, Array b) { return vmap(spread, {.in = {0, none}, .spmd_axis_name = "x"})(a, b); };
  const Array got = on_reference(mapped, four, w)[0];
  for (int i = 0; i < 4; ++i) CHECK(close(got[i], four[i][slice(0, 2)] * w + four[i][slice(2, 4)] * w));
}

TEST_CASE("an axis of a mesh hides that of a vmap around it of the same name") {
  const auto f = kept_over_x([](Array part, Array w) { return part * w - pmean(part, "x"); });
  const Array x = numbers({3, 8, 2}), w = numbers({2});
  const auto named = [&](Array a, Array b) { return vmap(f, {.in = {0, none}, .axis_name = "x"})(a, b); };
  const Array batched = on_reference(named, x, w)[0];
  for (int i = 0; i < 3; ++i) CHECK(close(batched[i], on_reference(f, x[i], w)[0]));
}

TEST_CASE("collectives over two axes go over them as one, the first major") {
  const auto on = [](auto f, PartitionSpec out) {
    return shard_map(f, {.mesh = x2y2, .in = {P({"x", "y"})}, .out = {out}});
  };
  const Array x = numbers({8});
  CHECK(close(
      on_reference(on([](Array p) { return all_gather(p, {"x", "y"}, {.tiled = true, .to = Along::invarying}); }, P()),
                   x)[0],
      x));
  CHECK(close(on_reference(on(
                               [](Array p) {
                                 return psum_scatter(all_gather(p, {"x", "y"}, {.tiled = true}), {"x", "y"},
                                                     {.tiled = true});
                               },
                               P({"x", "y"})),
                           x)[0],
              4.0 * x));
  CHECK(close(on_reference(on([](Array p) { return p + convert(axis_index({"x", "y"}), f64); }, P({"x", "y"})), x)[0],
              x + convert(floor_divide(arange(8), 2), f64)));
  CHECK(close(on_reference(on([](Array p) { return ppermute(p, {"x", "y"}, {{0, 3}, {3, 0}}); }, P({"x", "y"})), x)[0],
              concatenate({x[slice(6, 8)], zeros({4}, f64), x[slice(0, 2)]})));
  const auto exchange = [](Array p) { return all_to_all(p, {"x", "y"}, {.split = 0, .concat = 0, .tiled = true}); };
  const Array sixteen = numbers({16});
  CHECK(close(on_reference(on(exchange, P({"x", "y"})), sixteen)[0], ravel(transpose(reshape(sixteen, {4, 4})))));
  CHECK(close(on_reference(on([](Array p) { return pmax(p, "x"); }, P("y")), x)[0],
              maximum(x[slice(0, 4)], x[slice(4, 8)])));
}

TEST_CASE("a user's own reduction over an axis is taken in a tree, the same on all") {
  const auto smooth = [](Array a, Array b) { return maximum(a, b) + log1p(exp(-abs(a - b))); };
  const auto f = over_x([&](Array part, Array) { return preduce(part, "x", smooth); });
  const Array x = numbers({4, 3});
  CHECK(close(on_reference(f, x, numbers({1}))[0], log(sum(exp(x), {.axes = {0}}))[newaxis]));
  check_gradient(f, x, numbers({1}));
}

TEST_CASE("maps nest over axes of their own") {
  const auto inner =
      shard_map([](Array p) { return psum(sum(p), "y") + sin(p); }, {.mesh = x2y2, .in = {P("y")}, .out = {P("y")}});
  const auto outer = shard_map([&](Array p) { return inner(p) * psum(sum(p), "x"); },
                               {.mesh = x2y2, .in = {P("x")}, .out = {P("x")}, .axis_names = {"x"}});
  const Array x = numbers({8});
  CHECK(count_op(*program_of(outer, x), ir::ops::shard_map) == 2);
  const auto plain = [](Array v) {
    const Array halves = reshape(v, {2, 4});
    return ravel(sum(halves, {.axes = {1}, .keepdims = true}) + sin(halves)) * sum(v);
  };
  CHECK(close(tests::on_devices(outer, x)[0], plain(x)));
  const auto slope = [](auto f) {
    return [=](Array v) { return grad([=](Array u) { return sum(cos(u) * f(u)); })(v); };
  };
  CHECK(close(tests::on_devices(slope(outer), x)[0], slope(plain)(x)));
}

TEST_CASE("an inner map may go over an axis before or behind the outer's") {
  const Array x = numbers({8, 4});
  for (const auto& [around, within] : {std::pair<std::string, std::string>{"x", "y"}, {"y", "x"}}) {
    const auto inner =
        shard_map([w = within](Array p) { return psum(sum(p), w) + sin(p); },
                  {.mesh = x2y2, .in = {P(none, within)}, .out = {P(none, within)}, .axis_names = {within}});
    const auto outer = shard_map([&, a = around](Array p) { return inner(p) * psum(sum(p), a); },
                                 {.mesh = x2y2, .in = {P(around)}, .out = {P(around)}, .axis_names = {around}});
    const auto plain = [](Array v) {
      const Array halves = reshape(v, {2, 16});
      return reshape(sum(halves, {.axes = {1}, .keepdims = true}) + sin(halves), {8, 4}) * sum(v);
    };
    CHECK(close(tests::on_devices(outer, x)[0], plain(x)));
    const auto slope = [](auto f) {
      return [=](Array v) { return grad([=](Array u) { return sum(cos(u) * f(u)); })(v); };
    };
    CHECK(close(tests::on_devices(slope(outer), x)[0], slope(plain)(x)));
  }
}

TEST_CASE("axes that a function is not written for are the compiler's inside too") {
  const auto f = shard_map([](Array p, Array w) { return psum(dot(p, w), "x"); },
                           {.mesh = x2y2, .in = {P(none, "x"), P("x")}, .out = {P()}, .axis_names = {"x"}});
  const Array x = numbers({4, 6}), w = numbers({6, 4}, 1);
  CHECK(close(on_reference(f, x, w)[0], dot(x, w)));
  const auto laid_out = [&](Array a, Array b) {
    return f(with_sharding(a, x2y2, P("y", "x")), with_sharding(b, x2y2, P("x")));
  };
  CHECK(close(tests::on_devices(laid_out, x, w)[0], dot(x, w)));
  check_gradient(f, x, w);
}

TEST_CASE("where nobody checks, devices share the cotangent of what the user says is one value") {
  const auto f =
      shard_map([](Array p, Array w) { return all_gather(sum(p * w), "x")[0] * 0.0 + sum(w * pcast(w, "x")); },
                {.mesh = x4, .in = {P("x"), P()}, .out = {P()}, .unchecked = true});
  const Array x = numbers({8}), w = numbers({2}, 1);
  const auto slope = [&](Array a, Array b) { return grad<1>(f)(a, b); };
  CHECK(close(on_reference(slope, x, w)[0], 2.0 * w));
}

TEST_CASE("the collective that has begun is the one that waits") {
  const auto f = kept_over_x([](Array part, Array w) {
    const Started all = all_gather_start(w[newaxis] * part, "x", {.tiled = true});
    const Array meanwhile = sin(part);
    return meanwhile * sum(all.result());
  });
  const Array x = numbers({8}), w = Array(2.0);
  CHECK(close(on_reference(f, x, convert(w, f64))[0], sin(x) * sum(2.0 * x)));
}

TEST_CASE("gathered weights with an unreduced cotangent cost their gradient one scattered sum") {
  const auto split = shard_map(
      [](Array rows, Array part) {
        const Array w = all_gather(part, "x", {.tiled = true, .to = Along::reduced});
        const auto step = [&](Array c, Array row) { return std::pair{c + sum(sin(row * w)) + sum(w), none}; };
        return psum(scan(step, Array(0.0), rows).first, "x");
      },
      {.mesh = x4, .in = {P("x"), P("x")}, .out = {P()}});
  const Array x = numbers({8, 4}), w = numbers({4}, 1);
  check_gradient(split, x, w);
  const auto g = program_of([&](Array a, Array b) { return grad<1>(split)(a, b); }, x, w);
  CHECK(count_op(*g, ir::ops::reduce_scatter) == 1);
  CHECK(count_op(*g, ir::ops::all_gather) == 1);
  CHECK(count_op(*g, ir::ops::all_reduce) == 1);  // of the value itself
}

TEST_CASE("gradients are added up unreduced, and summed once behind the loop") {
  const auto loss = [](Array w, Array row) { return sum(sin(w * row)); };
  const auto accumulated = kept_over_x([&](Array rows, Array w) {
    const Array start = pcast(pcast(zeros_like(w), "x"), "x", {.to = Along::unreduced});
    const auto step = [&](Array total, Array row) {
      const Array own = grad<0>(loss)(pcast(w, "x"), row);
      return std::pair{total + pcast(own, "x", {.to = Along::unreduced}), none};
    };
    return psum_scatter(scan(step, start, rows).first, "x", {.tiled = true});
  });
  const Array x = numbers({8, 4}), w = numbers({4}, 1);
  const auto whole = [&](Array a, Array v) { return grad<1>([&](Array r, Array u) { return sum(sin(u * r)); })(a, v); };
  CHECK(close(on_reference(accumulated, x, w)[0], whole(x, w)));
  const auto p = program_of(accumulated, x, w);
  CHECK(count_op(*p, ir::ops::reduce_scatter) == 1);
  CHECK(count_op(*p, ir::ops::all_reduce) == 0);
  check_gradient(accumulated, x, w);
}

TEST_CASE("the own part of what all have, over one axis, several, and an axis of a vmap") {
  const Array x = numbers({8, 4});
  const auto on = [](auto f, PartitionSpec out) {
    return shard_map([f](Array p, Array) { return f(p); }, {.mesh = x2y2, .in = {P(), P()}, .out = {out}});
  };
  const auto blocks = on([](Array p) { return pscatter(p, {"x", "y"}, {.tiled = true}); }, P({"x", "y"}));
  CHECK(close(on_reference(blocks, x, x)[0], x));
  check_gradient(blocks, x, x);
  const auto row = on([](Array p) { return pscatter(p, {"y", "x"}, {.dim = 1})[newaxis]; }, P({"y", "x"}));
  CHECK(close(on_reference(row, x, x)[0], transpose(x)));
  const auto mapped = [](Array p) {
    return vmap([&](Array c) { return pscatter(p * c, "i", {.dim = -1, .tiled = true}); },
                {.axis_name = "i"})(arange(2, f64));
  };
  CHECK(close(mapped(x), stack({0.0 * x(slice(), slice(0, 2)), x(slice(), slice(2, 4))})));
}

TEST_CASE("what is reduced leaves a map as one value, and its cotangent is shared") {
  const auto f =
      shard_map([](Array p, Array) { return sin(all_gather(p, "x", {.tiled = true, .to = Along::reduced})); },
                {.mesh = x4, .in = {P("x"), P()}, .out = {P()}});
  const Array x = numbers({8}), w = numbers({1});
  CHECK(close(on_reference(f, x, w)[0], sin(x)));
  check_gradient(f, x, w);
}

TEST_CASE("what is reduced or unreduced goes through calls, checkpoints, branches, loops and custom rules") {
  const auto rule = custom_vjp([](Array v) { return sin(v); }, [](Array v) { return std::pair{sin(v), v}; },
                               [](Array v, Array ct) { return ct * cos(v); });
  const auto product = jit([](Array r, Array v) { return sin(r * v); });
  const auto f = shard_map(
      [=](Array rows, Array part) {
        const Array w = all_gather(part, "x", {.tiled = true, .to = Along::reduced});
        const Array called = checkpoint([=](Array r, Array v) { return product(r, v); }, save::dots)(rows, w);
        const Array chosen = cond(
            sum(w) > -100.0, [](Array r, Array v) { return r * v; }, [](Array r, Array v) { return r - v; }, rows, w);
        const auto more = [](Array c) { return sum(abs(c)) < 9.0; };
        const Array grown = while_loop(more, [](Array c) { return 2.0 * c; }, w, {.max_trips = 5});
        const Array own = pcast(sum(called + chosen, {.axes = {0}}), "x", {.to = Along::unreduced});
        const auto twice = [](Array c, Array) { return std::pair{c + c, none}; };
        return psum(scan(twice, own, arange(2)).first * rule(w), "x") + psum(grown, "x");
      },
      {.mesh = x4, .in = {P("x"), P("x")}, .out = {P()}});
  const Array x = numbers({8, 4}), w = numbers({4}, 1);
  const auto plain = [](Array rows, Array v) {
    Array grown = v;
    while (sum(abs(grown)).item<double>() < 9.0) grown = 2.0 * grown;
    return 4.0 * sum(sin(rows * v) + rows * v, {.axes = {0}}) * sin(v) + 4.0 * grown;
  };
  CHECK(close(on_reference(f, x, w)[0], plain(x, w)));
  check_gradient(f, x, w);
  const Array batch = numbers({3, 8, 4});
  const Array batched = on_reference([&](Array a, Array b) { return vmap(f, {.in = {0, none}})(a, b); }, batch, w)[0];
  for (int i = 0; i < 3; ++i) CHECK(close(batched[i], plain(batch[i], w)));
}
