// Programs that users write with pmap, xmap and shard_map, by the reference and on devices: the numbers below are those
// of the list of programs that have to work.
#include <doctest/doctest.h>

#include <cmath>

#include "ir/ops/attrs.h"
#include "passes/flights.h"
#include "runtime/counters.h"
#include "tests/api/on_reference.h"

using namespace sheaf;
using sheaf::tests::close;
using sheaf::tests::everywhere;
using sheaf::tests::numbers;
using sheaf::tests::on_reference;

namespace {

Mesh mesh_of(const std::vector<MeshAxis>& axes) {
  ensure_devices(8);
  return Mesh(axes);
}

struct Experts {
  Array in, out;  // [experts, ..]
};

// Slice i of the leading axis is on device i.
void check_one_each(const Array& x) {
  const std::vector<Shard> shards = x.addressable_shards();
  REQUIRE(std::ssize(shards) == x.shape()[0]);
  for (int i = 0; i < std::ssize(shards); ++i) {
    CHECK(shards[i].device.id == i);
    CHECK(*shards[i].index[0].start.value == i);
    CHECK(shards[i].data.shape()[0] == 1);
  }
}

}  // namespace

TEST_CASE("program 3: a square on as many devices as there are numbers") {
  ensure_devices(4);
  const auto f = pmap([](Array x) { return x * x; });
  CHECK(close(everywhere(f, numbers({4, 3}))[0], square(numbers({4, 3}))));
  check_one_each(f(numbers({4, 3})));
  const auto columns = pmap([](Array x, Array w) { return x * w; }, {.in = {1, none}, .out = {1}});
  CHECK(close(everywhere(columns, numbers({3, 4}), numbers({3}))[0], numbers({3, 4}) * expand_dims(numbers({3}), {1})));
}

TEST_CASE("program 4: each device draws parameters of its own, of a shape that is static") {
  ensure_devices(4);
  const auto init = [](Array seed, Shape shape) {
    return random::normal(random::fold_in(random::key(7), seed), shape);
  };
  const auto f = [&](Array seeds) {
    return pmap(init, {.in = {0, none}, .static_broadcasted = {1}})(seeds, Shape{3, 2});
  };
  const Array all = everywhere(f, arange(4))[0];
  CHECK(all.shape() == Shape{4, 3, 2});
  for (int i = 0; i < 4; ++i) CHECK(close(all[i], random::normal(random::fold_in(random::key(7), i), {3, 2}), 1e-5));
  check_one_each(f(arange(4)));
}

TEST_CASE("program 5: a reduction of the user's own beside those there are") {
  ensure_devices(4);
  const auto f = pmap(
      [](Array x) {
        const Array largest = preduce(x, "i", [](Array a, Array b) { return maximum(abs(a), abs(b)); });
        return stack({psum(x, "i"), pmean(x, "i"), pmax(x, "i"), largest});
      },
      {.axis_name = "i", .out = {none}});
  const Array x = numbers({4, 3});
  CHECK(close(everywhere(f, x)[0], stack({sum(x, {.axes = {0}}), mean(x, {.axes = {0}}), max(x, {.axes = {0}}),
                                          max(abs(x), {.axes = {0}})})));
}

TEST_CASE("program 6: a batched product of matrices with named axes is the product of all") {
  const Mesh mesh = mesh_of({{"x", 2}, {"y", 2}});
  const auto product = [](Array a, Array b) { return einsum("...ij,...jk->...ik", a, b); };
  const auto f = xmap(product, {.mesh = mesh,
                                .in = {{"batch", "model", ellipsis}, {"batch", "model", ellipsis}},
                                .out = {{"batch", "model", ellipsis}},
                                .axis_resources = {{"batch", "x"}, {"model", "y"}}});
  const Array a = numbers({4, 2, 3, 5}), b = numbers({4, 2, 5, 2}, 1);
  CHECK(close(everywhere(f, a, b)[0], matmul(a, b)));
  CHECK(f(a, b).sharding() == NamedSharding{mesh, P("x", "y")});
  const std::string text = jit(f).trace(a, b).text();
  CHECK(text.find("in=[\"x,y,_,_\", \"x,y,_,_\"], out=[\"x,y,_,_\"]") != std::string::npos);
  // Names alone are vmaps.
  const auto local = xmap(product, {.in = {{"batch", ellipsis}, {ellipsis, "batch"}}, .out = {{ellipsis, "batch"}}});
  CHECK(close(everywhere(local, numbers({4, 3, 5}), numbers({5, 2, 4}))[0],
              transpose(matmul(numbers({4, 3, 5}), transpose(numbers({5, 2, 4}), {2, 0, 1})), {1, 2, 0})));
}

TEST_CASE("program 7: collectives over a named axis go over its devices and over what each has") {
  const Mesh mesh = mesh_of({{"x", 2}});
  const auto on = [&](auto body, XmapDims out) {
    return xmap(body, {.mesh = mesh, .in = {{"i", ellipsis}}, .out = {out}, .axis_resources = {{"i", "x"}}});
  };
  const Array v = numbers({4, 4});
  const auto check = [&](auto body, XmapDims out) {
    const Array expected = xmap(body, {.in = {{"i", ellipsis}}, .out = {out}})(v);
    CHECK(close(everywhere(on(body, out), v)[0], expected));
  };
  check([](Array x) { return psum(x, "i"); }, {ellipsis});
  check([](Array x) { return x - pmean(x, "i"); }, {"i", ellipsis});
  check([](Array x) { return all_gather(x, "i"); }, {"i", ellipsis});
  check([](Array x) { return psum_scatter(x, "i"); }, {"i"});
  check([](Array x) { return x * convert(axis_index("i"), f64); }, {"i", ellipsis});
  check([](Array x) { return ppermute(x, "i", {{0, 1}, {1, 2}, {3, 0}}); }, {"i", ellipsis});
  check([](Array x) { return all_to_all(x, "i", 0, 0); }, {"i", ellipsis});
  check([](Array x) { return x * static_cast<double>(axis_size("i")); }, {"i", ellipsis});
}

TEST_CASE("a named axis may be called what its mesh axis is, and be spread in a map that has others") {
  const Mesh mesh = Mesh::abstract({{"x", 2}, {"y", 2}});
  const Array v = numbers({4, 4});
  const auto centred = [](Array row) { return row - pmean(row, "x"); };
  const auto f =
      xmap(centred, {.mesh = mesh, .in = {{"x", ellipsis}}, .out = {{"x", ellipsis}}, .axis_resources = {{"x", "x"}}});
  CHECK(close(on_reference(f, v)[0], v - mean(v, {.axes = {0}})));
  const auto nested = shard_map([&](Array part) { return f(part) * psum(sum(part), "y"); },
                                {.mesh = mesh, .in = {P(none, "y")}, .out = {P(none, "y")}, .axis_names = {"y"}});
  CHECK(close(tests::on_devices(nested, v)[0], (v - mean(v, {.axes = {0}})) * sum(v)));
}

TEST_CASE("program 8: experts over one axis and tokens over another, and the sum that a spec asks for") {
  const Mesh mesh = mesh_of({{"data", 2}, {"model", 2}});
  const auto layer = [](Array tokens, Experts e) {
    Array total = zeros_like(tokens);
    for (std::int64_t k = 0; k < e.in.shape()[0]; ++k) total = total + dot(tanh(dot(tokens, e.in[k])), e.out[k]);
    return total;
  };
  const auto reduced = [=](Array tokens, Experts e) { return psum(layer(tokens, e), "model"); };
  const std::vector<Specs> in{P("data"), P("model")};
  const Array tokens = numbers({8, 3}), up = numbers({4, 3, 5}, 1), down = numbers({4, 5, 3}, 2);
  const auto call = [](auto f) { return [f](Array t, Array u, Array d) { return f(t, Experts{u, d}); }; };
  const auto f = call(shard_map(reduced, {.mesh = mesh, .in = in, .out = {P("data")}}));
  CHECK(close(everywhere(f, tokens, up, down)[0], layer(tokens, Experts{up, down})));
  // Or each device keeps its part, and the result has a dim of them.
  const auto kept = call(shard_map([=](Array t, Experts e) { return layer(t, e)[newaxis]; },
                                   {.mesh = mesh, .in = in, .out = {P("model", "data")}}));
  CHECK(close(sum(everywhere(kept, tokens, up, down)[0], {.axes = {0}}), layer(tokens, Experts{up, down})));
}

TEST_CASE("program 9: an all-gather that goes on while the loss of the local batch is computed") {
  const Mesh mesh = mesh_of({{"data", 4}});
  const auto step = [](bool waits) {
    return [=](Array weights, Array batch) {
      const Started all = all_gather_start(weights, "data", {.tiled = true});
      const Array whole = waits ? all_gather(weights, "data", {.tiled = true}) : Array();
      const Array own = sum(square(batch));
      return psum(own * sum(waits ? whole : all.result()), "data");
    };
  };
  const auto on = [&](bool waits) {
    return shard_map(step(waits), {.mesh = mesh, .in = {P("data"), P("data")}, .out = {P()}});
  };
  const Array w = numbers({8}), x = numbers({8, 2});
  CHECK(close(everywhere(on(false), w, x)[0], everywhere(on(true), w, x)[0], 0));
  CHECK(close(everywhere(on(false), w, x)[0], sum(square(x)) * sum(w)));
  const CollectiveReport sent = jit(on(false)).trace(w, x).lower().collectives();
  INFO(sent.text);
  CHECK(sent.entries.at(0).op == "all_gather");
  CHECK(sent.entries.at(0).is_overlapped);
}

namespace {

/// How many of a plan's kernels run while a collective is under way, by what they are called.
std::vector<std::string> overlapped_kernels(const ir::Function& plan) {
  std::vector<std::string> names;
  const std::vector<passes::Flight> flights = passes::flights(plan);
  for (int k = 0; k < std::ssize(flights); ++k) {
    const ir::Eqn& e = *plan.eqns()[k];
    if (e.op != &ir::ops::kernel || e.attrs<ir::ops::Kernel>().schedule == ir::Schedule::host) continue;
    for (int start = 0; start < k; ++start)
      if (flights[start].done > k) names.push_back(e.attrs<ir::ops::Kernel>().name);
  }
  return names;
}

}  // namespace

TEST_CASE("program 9: on devices the loss is computed between the start of the gather and its end") {
  ensure_devices(4);
  const Mesh mesh({{"data", 4}});
  const auto loss = [](Array batch) { return tanh(dot(batch, batch)); };
  const auto started = [=](Array weights, Array batch) {
    const Started all = all_gather_start(weights, "data", {.tiled = true});
    const Array own = loss(batch);
    return psum(dot(own, all.result()), "data");
  };
  const auto waiting = [=](Array weights, Array batch) {
    return psum(dot(loss(batch), all_gather(weights, "data", {.dim = 0, .tiled = true})), "data");
  };
  const auto on = [&](auto f) { return shard_map(f, {.mesh = mesh, .in = {P("data"), P("data")}, .out = {P()}}); };
  const Array w = numbers({32, 8}), x = numbers({128, 32});
  const auto compiled = jit(on(started)).trace(w, x).lower().compile();
  const auto module = ir::parse(compiled.text());
  REQUIRE_MESSAGE(module.ok(), std::string(module.status().message()));
  // Between them are the device's part of the batch, and the loss of it.
  const std::vector<std::string> between = overlapped_kernels(*module->functions[0]);
  CHECK(between == std::vector<std::string>{"mul_reshape_dynamic_slice", "dot_tanh"});
  const std::int64_t before = runtime::counters().overlapped_launches;
  const Array y = compiled(w, x);
  y.wait();
  CHECK(runtime::counters().overlapped_launches - before == 4 * std::ssize(between));
  CHECK(close(y, jit(on(waiting))(w, x), 0));
  Array expected = zeros({32, 8}, f64);
  for (int d = 0; d < 4; ++d) expected = expected + dot(loss(x[slice(32 * d, 32 * (d + 1))]), w);
  CHECK(close(y, expected));
}

TEST_CASE("program 23: transforms compose in every order that makes sense") {
  const Mesh mesh = mesh_of({{"x", 4}});
  const auto layers = [](Array rows, Array ws) {
    return scan([](Array h,
                   Array w) { return std::pair{checkpoint([](Array a, Array b) { return tanh(a * b); })(h, w), none}; },
                rows, ws)
        .first;
  };
  const auto f = shard_map([=](Array rows, Array ws) { return psum(sum(square(layers(rows, ws))), "x"); },
                           {.mesh = mesh, .in = {P("x"), P()}, .out = {P()}});
  const auto plain = [=](Array rows, Array ws) { return sum(square(layers(rows, ws))); };
  const Array x = numbers({3, 8, 2}), ws = numbers({5, 2}, 1);
  const auto of_batch = [](auto g) {
    return [g](Array a, Array b) { return grad([&](Array w) { return sum(vmap(g, {.in = {0, none}})(a, w)); })(b); };
  };
  CHECK(close(everywhere(of_batch(f), x, ws)[0], of_batch(plain)(x, ws)));
  const auto per_example = [](auto g) {
    return [g](Array a, Array b) {
      return vmap(grad([=](Array w, Array row) { return g(row, w); }), {.in = {none, 0}})(b, a);
    };
  };
  CHECK(close(everywhere(per_example(f), x, ws)[0], per_example(plain)(x, ws)));
  const auto calls = [=](auto g) {
    return [inner = jit(g)](Array a, Array b) { return grad([&](Array w) { return inner(a, w); })(b); };
  };
  CHECK(close(everywhere(calls(f), x[0], ws)[0], calls(plain)(x[0], ws)));
  const auto again = [](auto g) {
    return [g](Array a, Array b) {
      return grad([&](Array w) { return sum(square(grad([&](Array v) { return g(a, v); })(w))); })(b);
    };
  };
  CHECK(close(everywhere(again(f), x[0], ws)[0], again(plain)(x[0], ws)));
}
