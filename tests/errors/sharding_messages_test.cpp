// The exact texts of what can be wrong with meshes, specs and the arrays that are to lie as they say.
#include <doctest/doctest.h>

#include "tests/api/arrays.h"
#include "tests/message.h"

using namespace sheaf;
using sheaf::tests::eight;
using sheaf::tests::message_here;

TEST_CASE("a mesh that cannot be says why") {
  ensure_devices(8);
  const auto text = [](const auto& f) { return message_here<ShardingError>(f); };
  const std::string count = std::to_string(devices().size());
  CHECK(text([] { Mesh({{"data", 5000}}); }) ==
        "HERE: Mesh [data=5000]: it takes 5000 devices, and there are " + count +
            ": set SHEAF_CPU_DEVICES=5000 or call ensure_devices(5000), or plan with Mesh::abstract");
  CHECK(text([] { Mesh({{"data", 2}, {"data", 2}}); }) == "HERE: Mesh [data=2, data=2]: two axes are called \"data\"");
  CHECK(text([] { Mesh({{"2d", 2}}); }) ==
        "HERE: Mesh [2d=2]: axis 0 is called \"2d\": a name is letters, digits and _");
  CHECK(text([] { Mesh({{"data", 0}}); }) == "HERE: Mesh [data=0]: axis \"data\" has size 0");
  CHECK(text([] { Mesh::abstract({{"a", 1 << 30}, {"b", 1 << 30}}); }) ==
        "HERE: Mesh [a=1073741824, b=1073741824]: it has more than 2^31 devices");
  CHECK(text([] { Mesh({{"x", 2}}, std::vector<Device>{{0}}); }) ==
        "HERE: Mesh [x=2]: it takes 2 devices, and the list has 1");
  CHECK(text([] { Mesh({{"x", 2}}, {{1}, {1}}); }) == "HERE: Mesh [x=2]: the list has cpu:1 twice");
  CHECK(text([] { Mesh({{"x", 2}}, {{0}, {4000}}); }) ==
        "HERE: Mesh [x=2]: there is no device cpu:4000, only cpu:0 to cpu:" + std::to_string(devices().size() - 1));
  CHECK(text([] { Mesh({{"x", 2}}).size("y"); }) == "HERE: the mesh [x=2] has no axis \"y\"");
}

TEST_CASE("a spec that does not fit says which dim, axis and sizes") {
  const Mesh mesh = Mesh::abstract({{"data", 4}, {"model", 2}, {"one", 1}});
  const auto text = [&](const PartitionSpec& spec, const Shape& shape) {
    return message_here<ShardingError>([&] { NamedSharding{mesh, spec}.shard_shape(shape); });
  };
  CHECK(text(P("data", "data"), {8, 8}) ==
        "HERE: shard_shape: P(\"data\", \"data\") of [8, 8]: dim 0 and dim 1 are both split over axis \"data\"");
  CHECK(text(P({"one", "one"}), {8}) ==
        "HERE: shard_shape: P({\"one\", \"one\"}) of [8]: dim 0 is split over axis \"one\" twice");
  CHECK(text(P("data", "data:(2)2"), {8, 8}) ==
        "HERE: shard_shape: P(\"data\", \"data:(2)2\") of [8, 8]: dim 0 and dim 1 are both split over axis "
        "\"data:(2)2\"");
  CHECK(text(P(none, "modle"), {8, 8}) ==
        "HERE: shard_shape: P(none, \"modle\") of [8, 8]: dim 1 is split over \"modle\", and the mesh [data=4, "
        "model=2, one=1] has no such axis");
  CHECK(text(P("data:(3)2"), {8}) ==
        "HERE: shard_shape: P(\"data:(3)2\") of [8]: dim 0 is split over \"data:(3)2\", and the mesh [data=4, "
        "model=2, one=1] has no such axis");
  CHECK(text(P("data", none), {8}) == "HERE: shard_shape: P(\"data\", none) of [8]: the spec has 2 dims, the array 1");
  CHECK(text(P("data"), {10}) ==
        "HERE: shard_shape: P(\"data\") of [10]: dim 0 of size 10 does not divide over axis \"data\" of size 4");
  CHECK(text(P(none, {"data", "model"}), {3, 12}) ==
        "HERE: shard_shape: P(none, {\"data\", \"model\"}) of [3, 12]: dim 1 of size 12 does not divide over axes "
        "\"data\" of size 4 and \"model\" of size 2");
  CHECK(text(P(unconstrained), {8}) ==
        "HERE: shard_shape: P(unconstrained) of [8]: dim 0 is unconstrained, which only with_sharding takes");
  CHECK(message_here<ShardingError>([] { NamedSharding{}.shard_shape({8}); }) == "HERE: shard_shape: P() has no mesh");
  CHECK(message_here<ShardingError>([&] { NamedSharding{mesh, P("data")}.devices_indices({8}); }) ==
        "HERE: devices_indices: the mesh [data=4, model=2, one=1] is abstract: it has no devices");
}

namespace {

struct Layer {
  Array W, b;
};

}  // namespace

TEST_CASE("arrays that do not fit where they are put are told by the field that they are in") {
  const Mesh& m = eight();
  const Layer layer{zeros({4, 6}), zeros({6})};
  const auto text = [&](const Specs& specs) { return message_here<Error>([&] { device_put(layer, m, specs); }); };
  CHECK(text(specs({{".W", P()}, {".b", P("data")}})) ==
        "HERE: device_put: .b: P(\"data\") of f32[6]: dim 0 of size 6 does not divide over axis \"data\" of size 4");
  CHECK(text(P(none, none)) == "HERE: device_put: .b: P(none, none) of f32[6]: the spec has 2 dims, the array 1");
  CHECK(text(specs({{".W", P()}})) == "HERE: device_put: the tree has the leaf .b, and specs only for .W");
  CHECK(text(specs({{"", P()}, {".c", P()}})) == "HERE: device_put: the tree has no leaf .c to give a spec");
  CHECK(message_here<ShardingError>([&] { device_put(layer, Mesh::abstract({{"x", 2}}), P()); }) ==
        "HERE: device_put: .W: the mesh [x=2] is abstract: it has no devices");
  CHECK(message_here<ShardingError>([&] { device_put(layer, Device{4000}); }) ==
        "HERE: device_put: there is no device cpu:4000, only cpu:0 to cpu:" + std::to_string(devices().size() - 1));
  const auto uneven = jit([&](Array x) { return with_sharding(x, m, P("data")); }, {.name = "f"});
  CHECK(message_here<ShardingError>([&] { uneven(zeros({6})); }) ==
        "HERE: with_sharding: P(\"data\") of f32[6]: dim 0 of size 6 does not divide over axis \"data\" of size 4");
}

TEST_CASE("arrays on two meshes are both told, with where they were put there") {
  const Mesh& m = eight();
  const Mesh line({{"x", 8}});
  const Array a = device_put(zeros({8, 2}), m, P("data")), b = device_put(zeros({8, 2}), line, P("x"));
  CHECK(message_here<ShardingError>([&] { a + b; }) ==
        "HERE: add: the arrays are on different meshes or devices: move one with device_put\n"
        "  lhs: f32[8@data, 2] on [data=4, model=2]   (made at HERE)\n"
        "  rhs: f32[8@x, 2] on [x=8]   (made at HERE)");
  const Array c = device_put(zeros({8, 2}), Device{3});
  const auto f = jit([](Array x, Layer l) { return dot(x, l.W); }, {.name = "step", .args = {"x", "layer"}});
  CHECK(message_here<ShardingError>([&] { f(a, Layer{transpose(c), c}); }) ==
        "HERE: jit step: the arrays are on different meshes or devices: move one with device_put\n"
        "  x: f32[8@data, 2] on [data=4, model=2]   (made at HERE)\n"
        "  layer.W: f32[2, 8] on cpu:3   (made at HERE)");
  const auto g = jit([&](Array x) { return with_sharding(x, line, P()); }, {.name = "g", .args = {"x"}});
  CHECK(message_here<ShardingError>([&] { g(a); }) ==
        "HERE: jit g: the program is for the mesh [x=8]: move the arrays with device_put\n"
        "  x: f32[8@data, 2] on [data=4, model=2]   (made at HERE)");
  const auto h = jit([&](Array x) { return with_sharding(with_sharding(x, line, P()), m, P()); }, {.name = "h"});
  CHECK(message_here<ShardingError>([&] { h(zeros({8})); }) ==
        "HERE: jit h: a program runs on one mesh\n"
        "  with_sharding at HERE: [x=8]\n"
        "  with_sharding at HERE: [data=4, model=2]");
}

TEST_CASE("meshes of the same axes are told apart by their devices") {
  ensure_devices(8);
  const Mesh low({{"x", 4}}), high({{"x", 4}}, {{7}, {6}, {5}, {4}});
  const Array a = device_put(zeros({8}), low, P("x")), b = device_put(zeros({8}), high, P("x"));
  CHECK(message_here<ShardingError>([&] { a + b; }) ==
        "HERE: add: the arrays are on different meshes or devices: move one with device_put\n"
        "  lhs: f32[8@x] on [x=4] of cpu:0-3   (made at HERE)\n"
        "  rhs: f32[8@x] on [x=4] of cpu:7,6,5,4   (made at HERE)");
  const auto captures = jit([b](Array x) { return x + b; }, {.name = "f"});
  CHECK(message_here<ShardingError>([&] { captures(a); }) ==
        "HERE: jit f: the arrays are on different meshes or devices: move one with device_put\n"
        "  arg0: f32[8@x] on [x=4] of cpu:0-3   (made at HERE)\n"
        "  a captured array: f32[8@x] on [x=4] of cpu:7,6,5,4   (made at HERE)");
  const auto g = jit([&](Array x) { return with_sharding(x, high, P()); }, {.name = "g", .args = {"x"}});
  CHECK(message_here<ShardingError>([&] { g(a); }) ==
        "HERE: jit g: the program is for the mesh [x=4] of cpu:7,6,5,4: move the arrays with device_put\n"
        "  x: f32[8@x] on [x=4] of cpu:0-3   (made at HERE)");
  const auto h = jit([&](Array x) { return with_sharding(with_sharding(x, low, P("x")), high, P()); }, {.name = "h"});
  CHECK(message_here<ShardingError>([&] { h(zeros({8})); }) ==
        "HERE: jit h: a program runs on one mesh\n"
        "  with_sharding at HERE: [x=4] of cpu:0-3\n"
        "  with_sharding at HERE: [x=4] of cpu:7,6,5,4");
  const auto compiled = jit([](Array x) { return x; }, {.name = "c"}).trace(a).lower().compile();
  CHECK(
      message_here<ShardingError>([&] { compiled(b); }) ==
      "HERE: compiled jit c: argument 0: f32[8@x] on [x=4] of cpu:0-3 was compiled, f32[8@x] on [x=4] of cpu:7,6,5,4 is "
      "given: move it with device_put");
}

TEST_CASE("an array without a value is not run on, wherever it was put") {
  const Array x = abstract({8, 2}, f32, {eight(), P("data")});
  const std::string wanted = "HERE: an array made by abstract() has no value: f32[8@data, 2]";
  CHECK(message_here<TypeError>([&] { jit([](Array v) { return v * 2; })(x); }) == wanted);
  CHECK(message_here<TypeError>([&] { x * 2; }) == wanted);
  CHECK(message_here<TypeError>([&] { device_put(x, eight(), P()); }) == wanted);
  CHECK(message_here<TypeError>([&] { device_put(x, Device{1}); }) == wanted);
  CHECK(message_here<TypeError>([&] { x.to_vector<float>(); }) == wanted);
  CHECK(message_here<TypeError>([&] { x.addressable_shards(); }) == wanted);
}

TEST_CASE("the loader says which of its arrays a batch cannot be split of") {
  const Array x = zeros({20, 6}), y = zeros({20}, i32);
  const auto text = [&](const LoaderOptions& options) {
    return message_here<ShardingError>([&] { Loader({x, y}, options); });
  };
  CHECK(
      text({.batch = 6, .sharding = {eight(), P("data")}}) ==
      "HERE: Loader: array 0: P(\"data\") of f32[6, 6]: dim 0 of size 6 does not divide over axis \"data\" of size 4");
  CHECK(
      text({.batch = 8, .drop_last = false, .sharding = {eight(), P({"data", "model"})}}) ==
      "HERE: Loader: array 0 of the last batch: P({\"data\", \"model\"}) of f32[4, 6]: dim 0 of size 4 does not divide "
      "over axes \"data\" of size 4 and \"model\" of size 2");
  CHECK(text({.batch = 8, .sharding = {eight(), P("data", "model")}}) ==
        "HERE: Loader: array 1: P(\"data\", \"model\") of i32[8]: the spec has 2 dims, the array 1");
  CHECK(text({.batch = 8, .sharding = {Mesh::abstract({{"x", 2}}), P("x")}}) ==
        "HERE: Loader: the mesh [x=2] is abstract: it has no devices");
}

TEST_CASE("zero_shard says which axis there is not") {
  CHECK(message_here<ShardingError>([] { zero_shard(zeros({8}), eight(), "dta"); }) ==
        "HERE: zero_specs: the mesh [data=4, model=2] has no axis \"dta\"");
  CHECK(message_here<ShardingError>([] { zero_shard(zeros({8}), Mesh(), "data"); }) ==
        "HERE: zero_specs: no mesh has no axis \"data\"");
}

TEST_CASE("what jit is told of layouts has to fit its arguments and results") {
  const Mesh& m = eight();
  const Array x = device_put(zeros({8, 2}), m, P("data"));
  const auto identity = [](Array v) { return v; };
  const auto f = jit(identity, {.name = "f", .args = {"v"}, .in_shardings = {P(none, "data")}});
  const std::string no_mesh =
      "HERE: jit f: in_shardings and out_shardings are of a mesh: give .mesh, or put an argument on one";
  CHECK(message_here<ShardingError>([&] { f(zeros({8, 4})); }) == no_mesh);
  CHECK(message_here<ShardingError>([&] { f(device_put(zeros({8, 4}), Device{3})); }) == no_mesh);
  const std::string uneven =
      "HERE: jit f: in_shardings of v: P(none, \"data\") of f32[8@data, 2]: dim 1 of size 2 does not divide over axis "
      "\"data\" of size 4";
  CHECK(message_here<ShardingError>([&] { f(x); }) == uneven);
  const auto strict = jit(identity, {.name = "f", .in_shardings = {P("model")}, .limits = {.no_implicit_comm = true}});
  CHECK(message_here<ShardingError>([&] { strict(x); }) ==
        "HERE: jit f: ppermute over data:(1)2+model of 16 bytes is not what the program says; HERE: operand 0 of "
        "with_sharding wanted as [model, _], is [data, _]");
  const auto g = jit(identity, {.name = "g", .mesh = m, .out_shardings = {P(none, "data")}});
  CHECK(
      message_here<ShardingError>([&] { g(zeros({8, 2})); }) ==
      "HERE: jit g: out_shardings of the result: P(none, \"data\") of f32[8, 2]: dim 1 of size 2 does not divide over "
      "axis \"data\" of size 4");
  CHECK(
      message_here<ShardingError>([&] { grad([&](Array v) { return sum(g(v)); })(zeros({8, 2})); }) ==
      "HERE: jit g: out_shardings of the result: P(none, \"data\") of f32[8, 2]: dim 1 of size 2 does not divide over "
      "axis \"data\" of size 4");
  const auto outer = jit([&](Array v) { return f(v); }, {.name = "outer"});
  CHECK(message_here<ShardingError>([&] { outer(x); }) ==
        "HERE: jit f: in_shardings and out_shardings are of a mesh: give .mesh, as this call is part of the program of "
        "jit outer, HERE");
  const auto limited = jit([&](Array v) { return strict(v); }, {.name = "limited"});
  CHECK(message_here<TypeError>([&] { limited(x); }) ==
        "HERE: jit f: .limits are of a whole program, and this call is part of that of jit limited, HERE: give them to "
        "the jit around it");
  const auto part = jit(identity, {.name = "p", .mesh = m, .out_shardings = {P("data:(1)2")}});
  CHECK(message_here<ShardingError>([&] { part(zeros({8})); }) ==
        "HERE: jit p: out_shardings of the result: P(\"data:(1)2\") of f32[8]: dim 0 is to be split over a part of an "
        "axis, which only the compiler does");
  const Mesh line({{"x", 8}});
  const auto two_meshes = jit([&](Array v) { return with_sharding(v, line, P("x")); }, {.name = "t", .mesh = m});
  CHECK(message_here<ShardingError>([&] { two_meshes(zeros({8})); }) ==
        "HERE: jit t: .mesh is [data=4, model=2] of cpu:0-7, and this with_sharding is for [x=8] of cpu:0-7");
  const auto two = jit(identity, {.name = "two", .in_shardings = {P(), P()}});
  CHECK(message_here<TypeError>([&] { two(x); }) == "HERE: jit two: 2 in_shardings for 1 arguments");
}

TEST_CASE("limits on communication name what is over them and why it is needed") {
  const Array x = device_put(zeros({4096, 64}), eight(), P("data"));
  const auto total = [](Array v) { return sum(v, {.axes = {0}}); };
  const auto text = [&](const CommunicationLimits& limits) {
    const auto f = jit(total, {.name = "total", .limits = limits});
    return message_here<Error>([&] { f(x); });
  };
  CHECK(
      text({.no_implicit_comm = true}) ==
      "HERE: jit total: all_reduce(sum) over data of 256 bytes is not what the program says; HERE: reduce reduces a dim "
      "split on data");
  CHECK(text({.max_bytes = 4}) ==
        "HERE: jit total: all_reduce(sum) over data of 256 bytes takes what a device sends to 384 bytes, past 4; HERE: "
        "reduce reduces a dim split on data");
  CHECK(
      text({.forbid = {{"all_reduce", "data"}}}) ==
      "HERE: jit total: all_reduce(sum) over data of 256 bytes is forbidden; HERE: reduce reduces a dim split on data");
  CHECK(text({.max_bytes = 1000, .forbid = {{"all_gather", ""}, {"", "model"}}}) == "nothing was thrown");
  CHECK(text({.forbid = {{"gather", ""}}}) == "HERE: jit total: the limits forbid \"gather\", which is no collective");
}

TEST_CASE("a compiled program refuses arrays that lie otherwise") {
  const auto compiled = jit([](Array x) { return x * 2; }, {.name = "f"})
                            .trace(abstract({8}, f32, {eight(), P("data")}))
                            .lower()
                            .compile();
  const Array other = device_put(zeros({8}), eight(), P("model"));
  CHECK(message_here<ShardingError>([&] { compiled(other); }) ==
        "HERE: compiled jit f: argument 0: f32[8@data] on [data=4, model=2] was compiled, f32[8@model] on [data=4, "
        "model=2] is given: move it with device_put");
}

TEST_CASE("making an array of parts says which part is wrong") {
  const NamedSharding s{Mesh({{"x", 2}}), P("x")};
  const Array two = zeros({2}), on_one = device_put(zeros({2}), Device{1}), on_seven = device_put(two, Device{7});
  CHECK(message_here<ShapeError>([&] { make_array_from_callback({4}, s, [](const auto&) { return zeros({3}); }); }) ==
        "HERE: make_array_from_callback: the part of cpu:0 has to be f32[2], not f32[3]");
  int calls = 0;
  const auto mixed = [&](const std::vector<Slice>&) { return zeros({2}, calls++ ? i32 : f32); };
  CHECK(message_here<TypeError>([&] { make_array_from_callback({4}, s, mixed); }) ==
        "HERE: make_array_from_callback: the part of cpu:1 has to be f32[2] as those before, not i32[2]");
  CHECK(message_here<ShapeError>([&] { make_array_from_process_local_data(s, two, Shape{4}); }) ==
        "HERE: make_array_from_process_local_data: this process has all of [4], not f32[2]");
  const auto text = [&](const std::vector<Array>& parts) {
    return message_here<Error>([&] { make_array_from_single_device_arrays({4}, s, parts); });
  };
  const std::string who = "HERE: make_array_from_single_device_arrays: ";
  CHECK(text({two}) == who + "P(\"x\") on [x=2] takes 2 parts, and there are 1");
  CHECK(text({two, zeros({3})}) == who + "part 1 has to be f32[2], not f32[3]");
  CHECK(text({two, zeros({2}, i32)}) == who + "part 1 has to be f32[2], not i32[2]");
  CHECK(text({two, on_seven}) == who + "part 1 is on cpu:7, and the mesh is [x=2] of cpu:0,1");
  CHECK(text({two, device_put(two, s.mesh, P())}) == who + "part 1 is on [x=2], and the mesh is [x=2] of cpu:0,1");
  CHECK(message_here<ShapeError>([&] { make_array_from_single_device_arrays({-4}, s, {two, on_one}); }) ==
        who + "the shape [-4] has a negative extent");
  CHECK(message_here<ShapeError>([&] { make_array_from_callback({-4}, s, [](const auto&) { return zeros({2}); }); }) ==
        "HERE: make_array_from_callback: the shape [-4] has a negative extent");
  CHECK(text({on_one, on_one}) == who + "part 0 and part 1 are both on cpu:1");
}

TEST_CASE("traced values have no layout yet") {
  const auto f = jit([](Array x) { return x.is_fully_replicated() ? x : -x; }, {.name = "f"});
  CHECK(message_here<TypeError>([&] { f(zeros({2})); }) ==
        "HERE: is_fully_replicated: where a traced value lies is decided when the program is compiled: f32[2] made at "
        "HERE while tracing jit f, HERE");
  const auto g = jit([](Array x) { return device_put(x, Device{1}); }, {.name = "g"});
  CHECK(message_here<TypeError>([&] { g(zeros({2})); }) ==
        "HERE: device_put: a traced function runs where its arguments are: put them on cpu:1 before the call");
  const NamedSharding rows{eight(), P("data")};
  const auto h = jit([&](Array) { return make_array_from_callback({8}, rows, [](const auto&) { return zeros({2}); }); },
                     {.name = "h"});
  CHECK(
      message_here<TracedBoolError>([&] { h(zeros({2})); }) ==
      "HERE: a traced value has no elements to read: f32[2] made at HERE while tracing jit h, HERE. It has a value only "
      "when the compiled function runs: return it, and read it outside");
}
