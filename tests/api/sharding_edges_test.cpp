// Arrays on meshes where little is ordinary: empty and scalar arrays, axes of size 1, other orders of devices, 64 of
// them, nested trees, layouts that meet, memory that is given up, and jit inside jit.
#include <doctest/doctest.h>

#include <map>
#include <optional>
#include <variant>

#include "tests/api/arrays.h"
#include "tests/message.h"

using namespace sheaf;
using sheaf::tests::close;
using sheaf::tests::eight;
using sheaf::tests::numbers;

namespace {

// Every way to split a matrix over axes of the mesh.
std::vector<NamedSharding> all_ways(const Mesh& mesh) {
  std::vector<std::vector<std::string>> lists{{}};
  for (const MeshAxis& a : mesh.axes()) lists.push_back({a.name});
  if (mesh.rank() == 2) {
    lists.push_back({mesh.axes()[0].name, mesh.axes()[1].name});
    lists.push_back({mesh.axes()[1].name, mesh.axes()[0].name});
  }
  std::vector<NamedSharding> all;
  for (const auto& rows : lists)
    for (const auto& columns : lists) {
      bool are_apart = true;
      for (const std::string& a : rows)
        for (const std::string& b : columns) are_apart &= a != b;
      if (are_apart) all.push_back({mesh, P(rows, columns)});
    }
  return all;
}

struct Block {
  std::vector<Array> heads;
  std::optional<Array> bias, none_here;
};
struct Model {
  std::map<std::string, Block> blocks;
  std::variant<Array, Block> last;
  double rate = 0.1;
};

Model model() {
  return {.blocks = {{"one", {{numbers({8, 3}), numbers({2, 4})}, numbers({5}), {}}}, {"two", {{}, {}, {}}}},
          .last = Block{{numbers({6, 4, 8})}, {}, {}}};
}

}  // namespace

TEST_CASE("an array moves between every two ways over meshes of other shapes, orders and parts of the devices") {
  ensure_devices(8);
  const Array x = numbers({12, 12});
  const std::vector<double> values = x.to_vector<double>();
  std::vector<NamedSharding> all;
  for (const Mesh& mesh : {Mesh({{"a", 3}, {"b", 2}}, {{5}, {0}, {3}, {1}, {7}, {2}}), Mesh({{"a", 2}, {"b", 2}}),
                           Mesh({{"x", 4}}, {{6}, {1}, {4}, {0}}), Mesh({{"x", 1}, {"y", 1}}, {Device{2}})})
    for (const NamedSharding& s : all_ways(mesh)) all.push_back(s);
  for (const NamedSharding& from : all) {
    const Array y = device_put(x, from);
    for (const NamedSharding& to : all) {
      const Array z = device_put(y, to);
      INFO(to_string(from) << " to " << to_string(to));
      CHECK(z.sharding() == to);
      CHECK(z.to_vector<double>() == values);
    }
  }
}

TEST_CASE("arrays of every dtype and size print on parts as on one device") {
  const auto check = [](const Array& x, const PartitionSpec& spec) {
    const Array y = device_put(x, eight(), spec);
    CHECK(to_string(y) == to_string(x));
    CHECK(y.dtype() == x.dtype());
  };
  check(numbers({4, 2}).astype(bf16), P("data", "model"));
  check(numbers({8}).astype(f16), P({"model", "data"}));
  check(complex(numbers({4}), numbers({4}, 1)), P("data"));
  check(arange(8).astype(u8), P("model"));
  check(numbers({4, 2}) > 0, P("data"));
  check(numbers({0, 4}), P(none, "data"));
  check(numbers({4, 0, 2}), P("data", none, "model"));
  check(zeros({}), P());
  check(Array(3), P());
  check(numbers({64, 64}), P("data", "model"));  // shortened
}

TEST_CASE("empty dims and axes of size 1 are split and put together like others") {
  ensure_devices(8);
  const Mesh mesh({{"one", 1}, {"x", 4}, {"two", 2}});
  const Array empty = device_put(zeros({0, 6}), mesh, P("x", "two"));
  CHECK(empty.addressable_shards()[3].data.shape() == Shape{0, 3});
  const auto f = jit([](Array a) { return tanh(a) + sum(a, {.axes = {0}}); });
  CHECK(f(empty).shape() == Shape{0, 6});
  const Array x = numbers({8, 6}), y = device_put(x, mesh, P({"one", "x"}, "two"));
  CHECK(close(f(y), f(x)));
  CHECK(y.sharding() == NamedSharding{mesh, P("x", {"two", "one"})});
  CHECK(close(f(device_put(x, Mesh({{"one", 1}}), P("one"))), f(x)));
  CHECK(close(f(device_put(x, Mesh(std::vector<MeshAxis>{}), P())), f(x)));
}

TEST_CASE("sixty-four devices each hold and compute their part") {
  ensure_devices(64);
  const Mesh mesh({{"x", 4}, {"y", 4}, {"z", 4}});
  const Array x = numbers({16, 4, 8}), y = device_put(x, mesh, P({"x", "z"}, none, "y"));
  CHECK(y.addressable_shards().size() == 64);
  CHECK(y.addressable_shards()[63].data.shape() == Shape{1, 4, 2});
  CHECK(close(jit([](Array a) { return exp(a) + mean(a); })(y), exp(x) + mean(x)));
}

TEST_CASE("a tree of maps, lists, optionals and variants is split leaf by leaf") {
  const Model whole = model();
  CHECK(tree_paths(whole) ==
        std::vector<std::string>{".blocks.one.heads[0]", ".blocks.one.heads[1]", ".blocks.one.bias", ".last.heads[0]"});
  const Model parts = zero_shard(whole, eight(), "data", specs({{".last", P(none, "model")}, {"", P()}}));
  CHECK(same(parts, whole));
  const std::vector<Array> leaves = tree_leaves(parts);
  CHECK(leaves[0].sharding() == NamedSharding{eight(), P("data")});
  CHECK(leaves[1].sharding() == NamedSharding{eight(), P(none, "data")});
  CHECK(leaves[2].is_fully_replicated());
  CHECK(leaves[3].sharding() == NamedSharding{eight(), P(none, "model", "data")});
  CHECK(bytes_per_device(parts) == 8 * (24 / 4 + 8 / 4 + 5 + 192 / 8));
  CHECK(parts.rate == whole.rate);
  const auto step = jit([](Model m) { return tree_map([](const Array& x) { return x * 2; }, m); });
  CHECK(same(step(parts), step(whole)));
}

TEST_CASE("eager operations take operands of several layouts on one mesh, and refuse other meshes") {
  const Array x = numbers({8, 8}), w = numbers({8, 8}, 1);
  for (const NamedSharding& a : all_ways(eight()))
    for (const NamedSharding& b : {NamedSharding{eight(), P("model", "data")}, NamedSharding{eight(), P()}}) {
      INFO(to_string(a) << " and " << to_string(b));
      CHECK(close(device_put(x, a) * device_put(w, b), x * w));
    }
  const Array on_five = device_put(x, Device{5});
  CHECK_THROWS_AS(on_five + device_put(x, Device{6}), ShardingError);
  CHECK_THROWS_AS(on_five + device_put(x, eight(), P()), ShardingError);
  CHECK((on_five + w).sharding().mesh.devices() == std::vector{Device{5}});
}

// ---- memory that is given up ----

TEST_CASE("a part that two arrays share is given up for both, and a run that is given it twice reads it once") {
  const auto f = jit([](Array x, Array y) { return x + 2 * y; }, {.name = "f", .donate = {0, 1}});
  const Array x = numbers({8}), placed = device_put(x + 0, eight(), P("data"));
  const Array shared = device_put(placed, eight(), P("data"));
  CHECK(close(f(placed, shared), 3 * x));
  CHECK(tests::message_here([&] { (void)shared.to_vector<double>(); }) ==
        "HERE: this array, made at HERE, was donated to f at HERE and its memory is no longer its own: use what f "
        "returned");
  CHECK_THROWS_AS(f(placed, placed), RuntimeError);
  CHECK_THROWS_AS((void)device_put(placed, eight(), P()), RuntimeError);
}

TEST_CASE("a donated argument that the program moves is given up as well") {
  const auto f = jit([](Array x) { return x * 2; }, {.donate = {0}, .in_shardings = {P("model")}});
  const Array x = numbers({8}), placed = device_put(x + 0, eight(), P("data"));
  CHECK(close(f(placed), x * 2));
  CHECK_THROWS_AS((void)placed.to_vector<double>(), RuntimeError);
}

// ---- jit's layouts ----

TEST_CASE("an argument that lies otherwise than in_shardings say is moved by the program, which reports it") {
  const auto f = jit([](Array x) { return sin(x); }, {.name = "f", .args = {"x"}, .in_shardings = {P(none, "data")}});
  const Array x = numbers({8, 8}), rows = device_put(x, eight(), P("data"));
  const Array y = f(rows);
  CHECK(close(y, sin(x)));
  CHECK(y.sharding() == NamedSharding{eight(), P(none, "data")});
  const CollectiveReport moved = f.trace(rows).lower().collectives();
  INFO(moved.text);
  REQUIRE(moved.entries.size() == 1);
  CHECK(moved.entries[0].op == "all_to_all");
  CHECK(moved.entries[0].payload_bytes == 8 * 8 * 8 / 4);  // of what a device has
  CHECK(moved.entries[0].reason == "operand 0 of with_sharding wanted as [_, data], is [data, _]");
  CHECK(f.trace(device_put(x, eight(), P(none, "data"))).lower().collectives().entries.empty());
  CHECK(f.trace(device_put(x, eight(), P())).lower().collectives().entries.empty());
}

TEST_CASE("a compiled program takes what lies as in_shardings say, and what nobody put anywhere") {
  const auto compiled = jit([](Array x) { return x * 2; }, {.mesh = eight(), .in_shardings = {P("data")}})
                            .trace(abstract({8}, f64))
                            .lower()
                            .compile();
  const Array x = numbers({8});
  CHECK(close(compiled(x), x * 2));
  CHECK(close(compiled(device_put(x, eight(), P("data"))), x * 2));
  CHECK_THROWS_AS(compiled(device_put(x, eight(), P("model"))), ShardingError);
}

TEST_CASE("in_shardings and out_shardings of a jit inside another one hold there") {
  std::vector<NamedSharding> seen;
  const auto note = [&seen](const NamedSharding& s) { seen.push_back(s); };
  const auto inner = jit([](Array x) { return x * 2; },
                         {.mesh = eight(), .in_shardings = {P("data")}, .out_shardings = {P(none, "data")}});
  const auto f = jit([=](Array x) { return inspect_sharding(inner(x), note) + 1; });
  const Array x = numbers({8, 8});
  CHECK(close(f(x), x * 2 + 1));
  REQUIRE(seen.size() == 1);
  CHECK(seen[0] == NamedSharding{eight(), P(none, "data")});
  CHECK(close(grad([&](Array v) { return sum(inner(v)); })(x), full({8, 8}, 2.0, f64)));
}

TEST_CASE("a program that is written for an abstract mesh runs where its arguments are") {
  const Mesh plan = Mesh::abstract(eight().axes());
  const auto f = jit([plan](Array x) { return with_sharding(x * 2, plan, P(none, "model")); });
  const Array x = numbers({8, 8});
  CHECK(f(device_put(x, eight(), P("data"))).sharding() == NamedSharding{eight(), P(none, "model")});
  CHECK_THROWS_AS(f(x), ShardingError);
}

TEST_CASE("a layout over a part of an axis, as values inside programs have, is drawn and taken by arrays") {
  const NamedSharding part{eight(), P("data:(2)2")};
  CHECK(visualize_sharding({6}, part) == "+---------+---------+\n| 0,1,4,5 | 2,3,6,7 |\n+---------+---------+\n");
  const Array x = numbers({6}), y = device_put(x, part);
  CHECK(y.sharding() == part);
  CHECK(close(jit([](Array a) { return a * 2; })(y), x * 2));
}

TEST_CASE("a sharding is a static argument of jit: another one is another program") {
  const auto f = jit([](Array x, NamedSharding s) { return with_sharding(x * 2, s.mesh, s.spec); });
  const Array x = numbers({8, 8});
  const NamedSharding rows{eight(), P("data")}, columns{eight(), P(none, {"model", "data"})};
  CHECK(f(x, rows).sharding() == rows);
  CHECK(f(x, columns).sharding() == columns);
  CHECK(f(x, NamedSharding{eight(), P("data")}).sharding() == rows);
  CHECK(traces(f) == 2);
}

TEST_CASE("an optimizer begins inside a trace where the captured parameters are") {
  const Array w = device_put(numbers({8, 4}), eight(), P("data"));
  const auto f = jit([w](Array g) {
    const auto state = Adam{}.init(w);
    return Adam{}.step(w, state, g, 0.1).second.m;
  });
  CHECK(f(numbers({8, 4}, 1)).sharding() == NamedSharding{eight(), P("data")});
}

// ---- inside programs ----

TEST_CASE("the layout of a value can be asked for in loops, branches, derivatives and batches") {
  std::vector<PartitionSpec> seen;
  const auto asked = [&seen](const Array& x) {
    return inspect_sharding(x, [&seen](const NamedSharding& s) { seen.push_back(s.spec); });
  };
  const Array x = numbers({8, 8}), rows = device_put(x, eight(), P("data"));
  const auto loop = [&](Array v) {
    return scan([&](Array c, Array) { return std::pair{asked(sin(c)), none}; }, v, arange(3)).first;
  };
  CHECK(close(jit(loop)(rows), sin(sin(sin(x)))));
  CHECK(seen == std::vector{P("data")});
  seen.clear();
  const auto branch = [&](Array v) {
    return cond(sum(v) > 0, [&](Array a) { return asked(a * 2); }, [](Array a) { return a; }, v);
  };
  jit(branch)(rows);
  CHECK(seen == std::vector{P("data")});
  seen.clear();
  const auto slope = grad([&](Array v) { return sum(square(asked(v * 2))); });
  CHECK(close(jit(slope)(rows), 8 * x));
  CHECK(seen == std::vector{P("data")});
  seen.clear();
  const auto batch = vmap([&](Array v) { return asked(v * 2); });
  CHECK(close(jit(batch)(rows), 2 * x));
  CHECK(seen == std::vector{P("data")});
}

TEST_CASE("shardings of any rank over odd meshes are drawn, as text and as pictures wide enough for it") {
  const Mesh mesh = Mesh::abstract({{"a", 3}, {"b", 5}});
  CHECK(visualize_sharding({3, 5}, {mesh, P("a")}) ==
        "+-------+\n|  0-4  |\n+-------+\n|  5-9  |\n+-------+\n| 10-14 |\n+-------+\n");
  CHECK(
      visualize_sharding({5, 1, 6, 2, 1}, {mesh, P(none, none, "a")}).find("[:, :, 4:6, :, :]\n+-------+\n| 10-14 |") !=
      std::string::npos);
  CHECK(visualize_sharding({0, 3}, {mesh, P(none, "a")}) ==
        "+-------+-------+-------+\n|  0-4  |  5-9  | 10-14 |\n+-------+-------+-------+\n");
  const Mesh long_lists = Mesh::abstract({{"a", 16}, {"b", 2}});
  CHECK(sharding_svg({2}, {long_lists, P("b")}).find("width=\"724\"") != std::string::npos);
  CHECK(sharding_svg({2}, {mesh, P()}).find("width=\"110\"") != std::string::npos);
}

// ---- the loader ----

TEST_CASE("the loader reads its parts on some of the devices, in any epoch, the last batch too") {
  ensure_devices(8);
  const Mesh some({{"x", 2}}, {{6}, {3}});
  const Array x = numbers({22, 3}), y = arange(22);
  const LoaderOptions plain{.batch = 8, .seed = 4, .drop_last = false};
  LoaderOptions spread = plain;
  spread.sharding = {some, P("x")};
  Loader whole({x, y}, plain), parts({x, y}, spread);
  CHECK(parts.batches() == 3);
  for (const std::int64_t epoch : {3, 0, 3})
    for (std::int64_t i = 0; i < parts.batches(); ++i) {
      const std::vector<Array> got = parts.batch(epoch, i), wanted = whole.batch(epoch, i);
      CHECK(same(got, wanted));
      CHECK(got[1].addressable_shards()[1].device == Device{3});
    }
}
