// Arrays on eight devices: the same values as on one, in the parts that their shardings say.
#include "sheaf/sharding.h"

#include <doctest/doctest.h>

#include <map>
#include <numeric>

#include "tests/api/arrays.h"

using namespace sheaf;
using sheaf::tests::close;
using sheaf::tests::eight;

namespace {

Array numbers(const Shape& shape) {
  std::vector<float> v(static_cast<std::size_t>(num_elements(shape)));
  std::iota(v.begin(), v.end(), 0.f);
  return array(v, shape);
}

// The whole, put together from what the devices hold, each read by itself.
std::vector<float> from_shards(const Array& x) {
  std::vector<float> all(static_cast<std::size_t>(x.size()), -1.f);
  for (const Shard& s : x.addressable_shards()) {
    const std::vector<float> part = s.data.to_vector<float>();
    std::vector<std::int64_t> index(s.index.size(), 0);
    for (const float v : part) {
      std::int64_t at = 0;
      for (std::size_t d = 0; d < index.size(); ++d) at = at * x.shape()[d] + *s.index[d].start.value + index[d];
      all[at] = v;
      for (std::size_t d = index.size(); d-- > 0;) {
        if (++index[d] < s.data.shape()[d]) break;
        index[d] = 0;
      }
    }
  }
  return all;
}

struct Layer {
  Array W, b;
};

}  // namespace

TEST_CASE("an array put on a mesh has its parts where the spec says") {
  const Array x = numbers({8, 4});
  for (const PartitionSpec& spec : {P(), P("data"), P("data", "model"), P("model", "data"), P({"model", "data"}),
                                    P(none, {"data"}), P({"data", "model"}, none)}) {
    const Array y = device_put(x, eight(), spec);
    CHECK(y.shape() == Shape{8, 4});
    CHECK(y.sharding() == NamedSharding{eight(), spec});
    CHECK(y.to_vector<float>() == x.to_vector<float>());
    CHECK(from_shards(y) == x.to_vector<float>());
    CHECK(y.addressable_shards().size() == 8);
    CHECK(y.addressable_shards()[3].device.id == 3);
    CHECK(to_string(y) == to_string(x));
    CHECK(y.is_fully_addressable());
    CHECK(y.is_fully_replicated() == (spec == P()));
  }
  const std::vector<Shard> shards = device_put(x, eight(), P("data")).addressable_shards();
  CHECK(shards[2].index[0].start.value == 2);
  CHECK(shards[2].index[1].stop.value == 4);
  CHECK(shards[2].replica_id == 0);
  CHECK(shards[3].replica_id == 1);
  CHECK(shards[3].data.sharding() == NamedSharding{Mesh({}, {Device{3}}), P()});
}

TEST_CASE("an array moves between any two layouts, meshes and devices") {
  const Array x = numbers({8, 8});
  const Mesh line({{"all", 8}}), turned({{"a", 2}, {"b", 2}}, {{7}, {2}, {5}, {0}});
  const std::vector<NamedSharding> all = {{eight(), P("data", "model")},
                                          {eight(), P(none, {"model", "data"})},
                                          {line, P("all")},
                                          {line, P(none, "all")},
                                          {turned, P("b", "a")},
                                          {turned, P()}};
  for (const NamedSharding& from : all) {
    const Array y = device_put(x, from);
    for (const NamedSharding& to : all) {
      const Array z = device_put(y, to);
      CHECK(z.sharding() == to);
      CHECK(from_shards(z) == x.to_vector<float>());
    }
    CHECK(from_shards(device_put(y, Device{6})) == x.to_vector<float>());
    CHECK(from_shards(device_put(device_put(x, Device{6}), from)) == x.to_vector<float>());
  }
}

TEST_CASE("small, empty and scalar arrays and numbers go on meshes too") {
  CHECK(device_put(numbers({0, 4}), eight(), P("data")).to_vector<float>().empty());
  CHECK(device_put(numbers({0, 4}), eight(), P("data")).addressable_shards()[5].data.shape() == Shape{0, 4});
  CHECK(device_put(array({1.5})[0], eight(), P()).item<float>() == 1.5f);
  const Array n = device_put(Array(2.5), eight(), P());
  CHECK(n.item<double>() == 2.5);
  CHECK((n * array({2.0}, bf16)).dtype() == bf16);
  CHECK(device_put(array({1, 2, 3, 4}, i8), eight(), P("data")).to_vector<int>() == std::vector{1, 2, 3, 4});
  CHECK(device_put(array<bool>({true, false}), eight(), P("model")).to_vector<bool>() == std::vector{true, false});
  const Mesh one({{"x", 1}});
  CHECK(device_put(numbers({3}), one, P("x")).to_vector<float>() == std::vector{0.f, 1.f, 2.f});
}

TEST_CASE("a tree is put leaf by leaf, by path") {
  const Layer layer{numbers({4, 8}), numbers({8})};
  const Layer put = device_put(layer, eight(), specs({{".W", P(none, "model")}, {"", P()}}));
  CHECK(put.W.sharding() == NamedSharding{eight(), P(none, "model")});
  CHECK(put.b.is_fully_replicated());
  CHECK(same(put.W, layer.W));
  const std::map<std::string, Array> params{{"a", numbers({8})}, {"b", numbers({2, 2})}};
  const auto both = device_put(params, eight(), specs({{".a", P("data")}, {".b", P("model")}}));
  CHECK(both.at("a").sharding() == NamedSharding{eight(), P("data")});
}

TEST_CASE("an array is made part by part, once for each part that is held") {
  int calls = 0;
  const Array x = make_array_from_callback({8, 2}, {eight(), P("data")}, [&](const std::vector<Slice>& at) {
    ++calls;
    return numbers({8, 2})(at[0], at[1]);
  });
  CHECK(calls == 4);
  CHECK(x.to_vector<float>() == numbers({8, 2}).to_vector<float>());
  const Array y = make_array_from_process_local_data({eight(), P("model")}, numbers({4}));
  CHECK(from_shards(y) == numbers({4}).to_vector<float>());
  std::vector<Array> parts;
  for (const int d : {3, 1, 0, 2}) parts.push_back(device_put(array({1.0 * d}), Device{d}));
  const Array z = make_array_from_single_device_arrays({4}, {Mesh({{"x", 4}}), P("x")}, parts);
  CHECK(z.to_vector<float>() == std::vector{0.f, 1.f, 2.f, 3.f});
}

TEST_CASE("zero_specs splits the largest dim that divides, besides what is split already") {
  const Layer layer{numbers({4, 16}), numbers({6})};
  const Specs plain = zero_specs(layer, eight(), "data");
  CHECK(plain.by_path[0].second == P(none, "data"));
  CHECK(plain.by_path[1].second == P());
  const Specs both = zero_specs(layer, eight(), "data", specs({{".W", P(none, "model")}, {".b", P("model")}}));
  CHECK(both.by_path[0].second == P(none, {"model", "data"}));
  CHECK(both.by_path[1].second == P("model"));
  const Layer sharded = zero_shard(layer, eight(), "data");
  CHECK(bytes_per_device(layer) == 4 * (64 + 6));
  CHECK(bytes_per_device(sharded) == 4 * (16 + 6));
  CHECK(bytes_per_device(abstract({1024, 1024}, f32, {Mesh::abstract({{"x", 1024}}), P("x")})) == 4096);
}

TEST_CASE("with_sharding outside traced functions moves, and leaves unconstrained dims as they are") {
  const Array x = device_put(numbers({8, 8}), eight(), P("data"));
  CHECK(with_sharding(x, eight(), P(none, "data")).sharding() == NamedSharding{eight(), P(none, "data")});
  CHECK(with_sharding(x, eight(), P(unconstrained, "model")).sharding() == NamedSharding{eight(), P("data", "model")});
  CHECK(with_sharding(x, eight(), P(unconstrained, "data")).sharding() == NamedSharding{eight(), P(none, "data")});
}

// ---- running ----

namespace {

Array forward(const Layer& l, const Array& x) { return tanh(dot(x, l.W) + l.b); }
Array loss(const Layer& l, const Array& x) { return mean(square(forward(l, x))); }

}  // namespace

TEST_CASE("eager operations run where their operands are") {
  const Array x = numbers({8, 4}), sharded = device_put(x, eight(), P("data", "model"));
  const Array y = 2.0 * sharded + 1.0;
  CHECK(y.sharding() == NamedSharding{eight(), P("data", "model")});
  CHECK(from_shards(y) == (2.0 * x + 1.0).to_vector<float>());
  CHECK((sharded + x).sharding() == y.sharding());  // x follows
  CHECK(same(sum(sharded, {.axes = {0}}), sum(x, {.axes = {0}})));
  CHECK(same(sharded(slice(2, 5), 1), x(slice(2, 5), 1)));
  const Array on_five = device_put(x, Device{5});
  CHECK((on_five * 2).sharding() == NamedSharding{Mesh({}, {Device{5}}), P()});
  CHECK(same(on_five * 2, x * 2));
}

TEST_CASE("one trace serves all layouts, each with a program of its own") {
  const auto f = jit([](Array x, Array w) { return dot(x, w); });
  const Array x = numbers({8, 4}), w = numbers({4, 6}), y = f(x, w);
  const Array by_both = f(device_put(x, eight(), P("data")), device_put(w, eight(), P(none, "model")));
  CHECK(by_both.sharding() == NamedSharding{eight(), P("data", "model")});
  CHECK(same(by_both, y));
  CHECK(same(f(device_put(x, eight(), P("data")), w), y));
  CHECK(same(f(device_put(x, eight(), P(none, "model")), device_put(w, eight(), P("model"))), y));
  CHECK(traces(f) == 1);
  CHECK(compiles(f) == 4);
  CHECK(same(f(device_put(x, eight(), P("data")), w), y));
  CHECK(compiles(f) == 4);
}

TEST_CASE("gradients of a sharded batch are those of the whole") {
  const Layer layer{numbers({4, 6}) * 0.01, numbers({6}) * 0.1};
  const Array x = numbers({8, 4}) * 0.05, sharded = device_put(x, eight(), P("data"));
  const auto step = jit([](Layer l, Array batch) { return value_and_grad(loss)(l, batch); });
  const auto [v, g] = step(layer, x);
  const auto [v8, g8] = step(layer, sharded);
  CHECK(close(v, v8, 1e-5));
  CHECK(close(g.W, g8.W, 1e-5));
  CHECK(close(g.b, g8.b, 1e-5));
  CHECK(traces(step) == 1);
  CHECK(close(grad(loss)(layer, sharded).W, g.W, 1e-5));  // eagerly
}

TEST_CASE("captured arrays are on the mesh that they are on") {
  const Array w = device_put(numbers({4, 2}), eight(), P("data"));
  const auto f = jit([w](Array x) { return dot(x, w); });
  CHECK(same(f(numbers({3, 4})), dot(numbers({3, 4}), numbers({4, 2}))));
  CHECK(f(numbers({3, 4})).sharding().mesh == eight());
}

TEST_CASE("with_sharding in a traced function says where a value lies, and its cotangent") {
  const Mesh m = eight();
  const auto f = jit([m](Array x) { return with_sharding(x * 2, m, P(none, "data")); });
  const Array x = numbers({8, 4});
  CHECK(f(x).sharding() == NamedSharding{m, P(none, "data")});  // on the mesh that the program names
  CHECK(same(f(device_put(x, m, P("data"))), x * 2));
  const auto g = jit(grad([m](Array v) { return sum(with_sharding(v, m, P("data")) * 3); }));
  CHECK(same(g(x), full({8, 4}, 3.0)));
  const auto rows = vmap([m](Array v) { return with_sharding(v * 2, m, P("data")); });
  CHECK(same(rows(x), x * 2));
}

TEST_CASE("jit puts arguments and results where it is told") {
  const Array x = numbers({8, 4});
  const auto f = jit([](Array a, Array b) { return std::pair{a + b, sum(a)}; },
                     {.mesh = eight(), .in_shardings = {P("data"), P()}, .out_shardings = {P("model"), P()}});
  const auto [y, s] = f(x, x);
  CHECK(y.sharding() == NamedSharding{eight(), P("model")});
  CHECK(s.is_fully_replicated());
  CHECK(same(y, x + x));
  CHECK(s.item<float>() == 496);
}

TEST_CASE("donated arrays give up their parts, and say who took them") {
  const auto f = jit([](Array x) { return x + 1; }, {.donate = {0}});
  const Array x = numbers({8}), given = device_put(x + 0, eight(), P({"data", "model"}));
  CHECK(same(f(given), x + 1));
  CHECK_THROWS_AS(given.to_vector<float>(), RuntimeError);
  given.sharding();  // is still known
}

TEST_CASE("compiled programs are of one layout, and put what nobody put") {
  const Array x = numbers({8, 4});
  const NamedSharding by_data{eight(), P("data")};
  const auto f = jit([](Array a) { return sum(a, {.axes = {0}}); });
  const auto compiled = f.trace(abstract({8, 4}, f32, by_data)).lower().compile();
  CHECK(same(compiled(device_put(x, by_data)), sum(x, {.axes = {0}})));
  CHECK(same(compiled(x), sum(x, {.axes = {0}})));
  CHECK(compiled.memory().arguments == 2 * 4 * 4);  // of each device
}

TEST_CASE("programs are planned for meshes that are not there, with what they send") {
  const Mesh large = Mesh::abstract({{"data", 8}, {"model", 128}});
  const auto step =
      jit([](Array w, Array x) { return grad([](Array v, Array b) { return sum(square(dot(b, v))); })(w, x); });
  const auto lowered = step.trace(abstract({1024, 4096}, f32, {large, P(none, "model")}),
                                  abstract({8192, 1024}, f32, {large, P("data")}))
                           .lower();
  CHECK(lowered.memory().arguments == 4 * (1024 * 32 + 1024 * 1024));
  const CollectiveReport report = lowered.collectives();
  REQUIRE(report.entries.size() == 1);
  INFO(report.text);
  CHECK(report.entries[0].op == "all_reduce");
  CHECK(report.entries[0].reduction == "sum");
  CHECK(report.entries[0].axes == std::vector<std::string>{"data"});
  CHECK(report.entries[0].is_implicit);
  CHECK(report.text.find("all_reduce") != std::string::npos);
}

TEST_CASE("a sharding is drawn as a grid of the last two dims, one for each part of those before") {
  CHECK(visualize_sharding(device_put(numbers({8, 4}), eight(), P("data", "model"))) ==
        "+---+---+\n| 0 | 1 |\n+---+---+\n| 2 | 3 |\n+---+---+\n| 4 | 5 |\n+---+---+\n| 6 | 7 |\n+---+---+\n");
  CHECK(visualize_sharding({4}, {eight(), P("model")}) ==
        "+---------+---------+\n| 0,2,4,6 | 1,3,5,7 |\n+---------+---------+\n");
  CHECK(visualize_sharding({}, {eight(), P()}) == "+-----+\n| 0-7 |\n+-----+\n");
  CHECK(visualize_sharding(numbers({2})) == "+---+\n| 0 |\n+---+\n");
  CHECK(visualize_sharding({4, 1, 3, 6}, {Mesh::abstract({{"x", 2}, {"y", 2}}), P("x", none, none, "y")}) ==
        "[0:2, :, :, :]\n+---+---+\n| 0 | 1 |\n+---+---+\n[2:4, :, :, :]\n+---+---+\n| 2 | 3 |\n+---+---+\n");
  const std::string svg = sharding_svg({2}, {Mesh({{"x", 2}}), P("x")});
  CHECK(svg.find("<svg") == 0);
  CHECK(svg.find(">1</text>") != std::string::npos);
}

TEST_CASE("the loader reads for each device the rows that it holds") {
  const Array x = numbers({20, 6});
  Loader whole({x}, {.batch = 8, .seed = 3});
  Loader rows({x}, {.batch = 8, .seed = 3, .sharding = {eight(), P("data", "model")}});
  for (std::int64_t i = 0; i < rows.batches(); ++i) {
    const Array batch = rows.batch(1, i)[0];
    CHECK(batch.sharding() == NamedSharding{eight(), P("data", "model")});
    CHECK(same(batch, whole.batch(1, i)[0]));
  }
}

TEST_CASE("the layout of a value inside a program can be asked for, once per layout of the program") {
  std::vector<NamedSharding> seen;
  const auto f = jit([&seen](Array x, Array w) {
    const Array h = inspect_sharding(dot(x, w), [&seen](const NamedSharding& s) { seen.push_back(s); });
    return sum(tanh(h));
  });
  const Array x = numbers({8, 4}), w = numbers({4, 6});
  f(device_put(x, eight(), P("data")), device_put(w, eight(), P(none, "model")));
  REQUIRE(seen.size() == 1);
  CHECK(seen[0] == NamedSharding{eight(), P("data", "model")});
  f(device_put(x, eight(), P("data")), device_put(w, eight(), P(none, "model")));
  CHECK(seen.size() == 1);
  f(x, w);
  REQUIRE(seen.size() == 2);
  CHECK(seen[1].is_fully_replicated());
}

TEST_CASE("a shard_map runs on the devices of its mesh, eagerly and in jit") {
  const Array x = numbers({8, 4});
  const Mesh turned({{"data", 4}}, {{7}, {6}, {5}, {4}});
  for (const Mesh& m : {eight(), turned}) {
    const auto total = shard_map([](Array v) { return psum(v, "data"); }, {.mesh = m, .in = {P("data")}, .out = {P()}});
    const Array wanted = x(slice(0, 2)) + x(slice(2, 4)) + x(slice(4, 6)) + x(slice(6, 8));
    CHECK(same(total(x), wanted));
    CHECK(total(x).sharding().mesh == m);
    const Array jitted = jit([total](Array v) { return total(v * 1); })(x);
    CHECK(same(jitted, wanted));
    CHECK(jitted.sharding().mesh == m);
  }
}
