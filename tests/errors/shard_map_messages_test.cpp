// Every way a program of parts can be wrong, and what is said of it: the argument, the dim, the axis, the sizes, the
// line.
#include <doctest/doctest.h>

#include "sheaf/sheaf.h"
#include "tests/message.h"

using namespace sheaf;
using sheaf::tests::message_here;

namespace {

struct Layer {
  Array W, b;
};

const Mesh mesh = Mesh::abstract({{"data", 4}, {"model", 2}});

// Traced only: nothing runs.
template <class F, class... A>
std::string said(const F& f, const A&... args) {
  return message_here([&] { jit(f).trace(args...); });
}

Array itself(Array x) { return x; }
Array first(const Layer& layer) { return layer.W; }

}  // namespace

TEST_CASE("a spec that does not fit its argument") {
  const auto with = [](PartitionSpec spec) { return shard_map(itself, {.mesh = mesh, .in = {spec}, .out = {P()}}); };
  const Array x = zeros({8, 6});
  CHECK(said(with(P("rows")), x) ==
        "HERE: shard_map: P(\"rows\") of argument 0, f32[8, 6]: dim 0 is split over \"rows\", and the mesh [data=4, "
        "model=2] has no such axis");
  CHECK(said(with(P("data", "data")), x) ==
        "HERE: shard_map: P(\"data\", \"data\") of argument 0, f32[8, 6]: dim 0 and dim 1 are both split over axis "
        "\"data\"");
  CHECK(said(with(P("data", none, "model")), x) ==
        "HERE: shard_map: P(\"data\", none, \"model\") of argument 0, f32[8, 6]: the spec has 3 dims, the array 2");
  CHECK(said(with(P("model", "data")), x) ==
        "HERE: shard_map: P(\"model\", \"data\") of argument 0, f32[8, 6]: dim 1 of size 6 does not divide over axis "
        "\"data\" of size 4");
  CHECK(said(with(P(unconstrained)), x) ==
        "HERE: shard_map: P(unconstrained) of argument 0, f32[8, 6]: dim 0 is unconstrained, which only with_sharding "
        "takes");
  const auto layer =
      shard_map(first, {.mesh = mesh, .in = {specs({{".W", P("data")}, {".b", P()}})}, .out = {P("data")}});
  CHECK(said(layer, Layer{zeros({6}), zeros({3})}) ==
        "HERE: shard_map: P(\"data\") of argument 0 .W, f32[6]: dim 0 of size 6 does not divide over axis \"data\" of "
        "size 4");
  CHECK(said(shard_map(itself, {.mesh = mesh, .in = {P()}, .out = {P(unconstrained)}}), x) ==
        "HERE: shard_map: P(unconstrained) of the result, f32[8, 6]: dim 0 is unconstrained, which only with_sharding "
        "takes");
  const auto partial = shard_map(first, {.mesh = mesh, .in = {specs({{".W", P("data")}})}, .out = {P("data")}});
  CHECK(said(partial, Layer{zeros({8}), zeros({3})}) ==
        "HERE: shard_map: argument 0 has the leaf .b, and specs only for .W");
}

TEST_CASE("specs, meshes and axes that are missing or too many") {
  const Array x = zeros({8});
  CHECK(said(shard_map(itself, {.in = {P()}, .out = {P()}}), x) == "HERE: shard_map: give it a mesh: .mesh");
  CHECK(said(shard_map(itself, {.mesh = mesh, .out = {P()}}), x) == "HERE: shard_map: 0 specs in .in for 1 argument");
  CHECK(said(shard_map(itself, {.mesh = mesh, .in = {P()}}), x) == "HERE: shard_map: 0 specs in .out for 1 result");
  CHECK(said(shard_map(itself, {.mesh = mesh, .in = {P()}, .out = {P()}, .axis_names = {"rows"}}), x) ==
        "HERE: the mesh [data=4, model=2] has no axis \"rows\"");
  CHECK(said(shard_map(itself, {.mesh = mesh, .in = {P()}, .out = {P()}, .axis_names = {"data", "data"}}), x) ==
        "HERE: shard_map: .axis_names has \"data\" twice");
  CHECK(
      said(shard_map(itself, {.mesh = mesh, .in = {P("model")}, .out = {P()}, .axis_names = {"data"}}), x) ==
      "HERE: shard_map: P(\"model\") of argument 0, f32[8]: dim 0 is split over \"model\", and the function is written "
      "for \"data\" only");
  const auto run = shard_map(itself, {.mesh = mesh, .in = {P()}, .out = {P()}});
  CHECK(message_here([&] { run(x); }) == "HERE: shard_map: the mesh [data=4, model=2] is abstract: it has no devices");
}

TEST_CASE("a result that differs along an axis its spec leaves out, and one that its spec does not fit") {
  const auto loss = [](Array x) { return sum(x); };
  const Array x = zeros({8, 6});
  CHECK(said(shard_map(loss, {.mesh = mesh, .in = {P("data")}, .out = {P()}}), x) ==
        "HERE: shard_map: the result is f32[]{V@data} and differs along \"data\", which its spec P() does not name: "
        "return psum(.., \"data\") or another collective over it, or name the axis in the spec");
  const auto pair = [](Array v) { return Layer{psum(v, "data"), v}; };
  CHECK(said(shard_map(pair, {.mesh = mesh, .in = {P("data", "model")}, .out = {P(none, "model")}}), x) ==
        "HERE: shard_map: result .b is f32[2, 3]{V@(data, model)} and differs along \"data\", which its spec P(none, "
        "\"model\") does not name: return psum(.., \"data\") or another collective over it, or name the axis in the "
        "spec");
  CHECK(said(shard_map(loss, {.mesh = mesh, .in = {P("data")}, .out = {P("data")}}), x) ==
        "HERE: shard_map: P(\"data\") of the result, f32[]{V@data}: the spec has 1 dims, the array 0");
  const auto unchecked = shard_map(loss, {.mesh = mesh, .in = {P("data")}, .out = {P()}, .unchecked = true});
  CHECK(jit(unchecked).trace(x).text().find("unchecked=true") != std::string::npos);
}

TEST_CASE("values of kinds that do not go together, and casts to write") {
  const auto on = [](auto f) {
    return said(shard_map(f, {.mesh = mesh, .in = {P("data")}, .out = {P("data")}, .axis_names = {"data"}}),
                zeros({8, 6}));
  };
  const auto unreduced = [](Array x) { return pcast(x, "data", {.to = Along::unreduced}); };
  CHECK(
      on(unreduced) ==
      "HERE: shard_map: the result is f32[2, 6]{U@data} and yet to be summed along \"data\": return psum(.., \"data\") "
      "or psum_scatter(.., \"data\")");
  CHECK(
      on([&](Array x) { return sin(unreduced(x)); }) ==
      "HERE: sin: operand 0 (f32[2, 6]{U@data}) is yet to be summed along \"data\", and the op is not linear in it: psum "
      "it first\n  operand: f32[2, 6]{U@data}   (made at HERE)");
  CHECK(on([&](Array x) { return unreduced(x) * x; }) ==
        "HERE: mul: operand 0 (f32[2, 6]{U@data}) is yet to be summed along \"data\", along which operand 1 (f32[2, "
        "6]{V@data}) differs\n  lhs: f32[2, 6]{U@data}   (made at HERE)\n  rhs: f32[2, 6]{V@data}   (argument 0 of "
        "shard_map, HERE)");
  CHECK(
      on([&](Array x) { return pmax(unreduced(x), "data"); }) ==
      "HERE: pmax: operand 0 (f32[2, 6]{U@data}) is yet to be summed along \"data\": psum it first\n  operand: f32[2, "
      "6]{U@data}   (made at HERE)");
  CHECK(on([&](Array x) { return unreduced(psum(x, "data")); }) ==
        "HERE: pcast: operand 0 (f32[2, 6]) is invarying along \"data\", which cannot be cast to unreduced\n  operand: "
        "f32[2, 6]   (made at HERE)");
  CHECK(
      on([&](Array x) { return pscatter(x, "data", {.tiled = true}); }) ==
      "HERE: pscatter: dim 0 must be a multiple of the size of axis \"data\", 4\n  operand: f32[2, 6]{V@data}   (argument "
      "0 of shard_map, HERE)");
  CHECK(
      on([&](Array x) {
        return scan([&](Array c, Array row) { return std::pair{c + unreduced(row), none}; }, zeros({6}), x).first;
      }) ==
      "HERE: add: operand 1 (f32[6]{U@data}) is yet to be summed along \"data\", and operand 0 (f32[6]) is not: psum the "
      "one, or cast the other\n  lhs carry: f32[6]   (argument 0 of scan, HERE)\n  rhs: f32[6]{U@data}   (made at HERE)");
  CHECK(on([&](Array x) {
          return scan([&](Array, Array row) { return std::pair{unreduced(row), none}; }, zeros({6}), x).first;
        }) ==
        "HERE: scan: the carry must leave the body with the type it enters with\n  it enters as f32[6], leaves as "
        "f32[6]{U@data}: start from pcast(pcast(.., \"data\"), \"data\", {.to = Along::unreduced}) or return psum(.., "
        "\"data\")");
  CHECK(
      on([&](Array x) {
        return cond(sum(x) > 0, [](Array v) { return v; }, [](Array v) { return v; }, unreduced(x));
      }) ==
      "HERE: cond: what the cond at HERE decides by differs along \"data\", along which f32[2, 6]{U@data} is yet to be "
      "summed: psum it first");
  CHECK(on([&](Array x) {
          return grad([](Array v) { return sum(all_gather(v, "data", {.to = Along::reduced})); })(x);
        }) ==
        "HERE: grad: the function returns f32[]{R@data}, which is reduced along \"data\", so that its cotangent is no "
        "one value: return pmean(.., \"data\")");
}

TEST_CASE("a second derivative of a product with an unreduced value") {
  const auto f =
      shard_map([](Array x, Array w) { return psum(sum(pcast(sin(x), "data", {.to = Along::unreduced}) * w), "data"); },
                {.mesh = mesh, .in = {P("data"), P()}, .out = {P()}, .axis_names = {"data"}});
  const auto slope = [=](Array x, Array w) { return sum(grad<1>(f)(x, w)); };
  CHECK(said(slope, zeros({8}), zeros({2})) == "nothing was thrown");
  CHECK(said([=](Array x, Array w) { return grad<0>(slope)(x, w); }, zeros({8}), zeros({2})) ==
        "HERE: shard_map: a second derivative of a product with an unreduced value: psum it first");
}

TEST_CASE("a rule whose cotangent is not that of its argument says which sum it lacks") {
  const auto rule = custom_vjp([](Array w) { return w; }, [](Array w) { return std::pair{w, none}; },
                               [](None, Array ct) { return std::tuple{ct * convert(axis_index("data"), f32)}; });
  const auto f =
      shard_map([&](Array w) { return rule(w); }, {.mesh = mesh, .in = {P()}, .out = {P()}, .axis_names = {"data"}});
  CHECK(
      said(f, zeros({3})) ==
      "HERE: custom_vjp: the backward function returns another type than it must\n  cotangent [0]: must be f32[3], is "
      "f32[3]{V@data}; return psum(.., \"data\")");
}

TEST_CASE("maps inside maps that disagree") {
  const Mesh other = Mesh::abstract({{"data", 2}});
  const auto nested = [](const Mesh& inner, std::vector<std::string> axes) {
    return shard_map(
        [=](Array v) { return shard_map(itself, {.mesh = inner, .in = {P()}, .out = {P()}, .axis_names = axes})(v); },
        {.mesh = mesh, .in = {P("data")}, .out = {P("data")}, .axis_names = {"data"}});
  };
  CHECK(said(nested(other, {}), zeros({8})) ==
        "HERE: shard_map: the mesh [data=2] is not that of the shard_map around it, [data=4, model=2]");
  CHECK(said(nested(mesh, {"data"}), zeros({8})) ==
        "HERE: shard_map: .axis_names has \"data\", which the shard_map around it has already");
  const auto spread = shard_map(itself, {.mesh = mesh, .in = {P("data")}, .out = {P("data")}, .axis_names = {"data"}});
  const auto over = [&](const char* axis, std::int64_t n) {
    return said([=](Array v) { return vmap(spread, {.spmd_axis_name = axis})(v); }, zeros({n, 8}));
  };
  CHECK(over("data", 4) == "HERE: shard_map: vmap spreads over \"data\", over which the function is spread already");
  CHECK(over("pod", 4) == "HERE: shard_map: vmap spreads over \"pod\", which the mesh [data=4, model=2] lacks");
  const auto inner =
      shard_map(itself, {.mesh = mesh, .in = {P("model")}, .out = {P("model")}, .axis_names = {"model"}});
  const auto around = shard_map([=](Array v) { return inner(v); },
                                {.mesh = mesh, .in = {P("data")}, .out = {P("data")}, .axis_names = {"data"}});
  CHECK(said([=](Array v) { return vmap(around, {.spmd_axis_name = "model"})(v); }, zeros({2, 8})) ==
        "HERE: shard_map: vmap spreads over \"model\", over which the function is spread already");
  CHECK(over("model", 3) ==
        "HERE: shard_map: vmap spreads 3 examples over \"model\" of size 2, which does not divide them");
}

TEST_CASE("collectives over axes that are not there, twice, or where not all devices get") {
  const auto on = [](auto f) {
    return said(shard_map(f, {.mesh = mesh, .in = {P("data")}, .out = {P("data")}, .axis_names = {"data"}}),
                zeros({8, 6}));
  };
  CHECK(on([](Array x) { return psum(x, "model"); }) ==
        "HERE: psum: no enclosing vmap or shard_map has an axis \"model\"; there is \"data\"");
  CHECK(on([](Array x) { return psum(x, {"data", "data"}); }) == "HERE: psum: goes over axis \"data\" twice");
  CHECK(on([](Array x) { return psum(x, std::vector<std::string>{}); }) == "HERE: psum: there is no axis to go over");
  CHECK(
      on([](Array x) { return psum_scatter(x, "data", {.dim = 1, .tiled = true}); }) ==
      "HERE: psum_scatter: dim 1 must be a multiple of the size of axis \"data\", 4\n  operand: f32[2, 6]{V@data}   (argument 0 of shard_map, HERE)");
  CHECK(
      on([](Array x) { return psum_scatter(x, "data"); }) ==
      "HERE: psum_scatter: dim 0 must have the size of axis \"data\", 4\n  operand: f32[2, 6]{V@data}   (argument 0 of shard_map, HERE)");
  CHECK(
      on([](Array x) { return all_to_all(x, "data", {.split = 1, .concat = 0, .tiled = true}); }) ==
      "HERE: all_to_all: dim 1 must be a multiple of the size of axis \"data\", 4\n  operand: f32[2, 6]{V@data}   (argument 0 of shard_map, HERE)");
  CHECK(on([](Array x) { return all_gather(x, "data", {.dim = 2, .tiled = true}); }) ==
        "HERE: all_gather: dim 2 is out of range for a result of rank 2");
  CHECK(
      on([](Array x) {
        return cond(sum(x) > 0, [](Array v) { return psum(v, "data"); }, [](Array v) { return v; }, x);
      }) ==
      "HERE: psum: devices along \"data\" may not all get here: what the cond at HERE decides by differs along it; take "
      "the psum out of it, or decide by a value that all share");
  CHECK(
      on([](Array x) {
        const auto more = [](Array v) { return sum(v) < 1; };
        return while_loop(more, [](Array v) { return v + psum(v, "data"); }, x);
      }) ==
      "HERE: psum: devices along \"data\" may not all get here: what the while_loop at HERE decides by differs along it; "
      "take the psum out of it, or decide by a value that all share");
}

TEST_CASE("pmap over devices that are not there, and static arguments that are arrays") {
  ensure_devices(4);
  const auto few = static_cast<std::int64_t>(devices().size()) + 1;
  const std::string count = std::to_string(devices().size());
  CHECK(said(pmap(itself), zeros({few})) ==
        "HERE: pmap: " + std::to_string(few) + " examples for " + count + " devices: each takes one");
  CHECK(said(pmap(itself, {.devices = {devices()[0]}}), zeros({2})) ==
        "HERE: pmap: 2 examples for 1 device: each takes one");
  CHECK(said(pmap(itself), zeros({0})) == "HERE: pmap: there are no examples, and so no devices to run on");
  CHECK(said(pmap(itself, {.static_broadcasted = {0}}), zeros({2})) ==
        "HERE: pmap: argument 0 is static_broadcasted and has 1 array, whose values no program can depend on: pass "
        "numbers, or give it the axis none");
  CHECK(said(pmap(itself, {.static_broadcasted = {1}}), zeros({2})) ==
        "HERE: pmap: .static_broadcasted has 1, and there are 1 arguments");
  CHECK(said(pmap(itself, {.donate = {1}}), zeros({2})) == "HERE: pmap: .donate has 1, and there are 1 arguments");
  CHECK(said(pmap(itself, {.axis_name = "i", .out = {none}}), zeros({2})) ==
        "HERE: pmap: the result differs from device to device, so its out axis cannot be none: return psum(.., \"i\") "
        "or another collective over it");
  CHECK(said(pmap(itself), zeros({})) == "HERE: pmap: argument 0 is f32[] and has no axis 0 to map");
  const auto inside = shard_map([](Array v) { return pmap(itself)(v); }, {.mesh = mesh, .in = {P()}, .out = {P()}});
  CHECK(said(inside, zeros({2})) == "HERE: pmap: a function that runs on one device cannot be mapped over more");
}

TEST_CASE("xmap of dims and axes that disagree") {
  const auto over = [](XmapOptions o, auto... x) {
    return said(xmap([](Array a, Array b) { return a + b; }, std::move(o)), x...);
  };
  const Array a = zeros({4, 3}), b = zeros({6, 3});
  CHECK(over({.in = {{"i", none}}, .out = {{"i", none}}}, a, a) ==
        "HERE: xmap: 1 lists of dims in .in for 2 arguments");
  CHECK(over({.in = {{"i"}, {"i", none}}, .out = {{"i", none}}}, a, a) ==
        "HERE: xmap: the dims {\"i\"} of argument 0 do not fit its rank 2");
  CHECK(over({.in = {{"i", ellipsis, ellipsis}, {"i", none}}, .out = {{"i", none}}}, a, a) ==
        "HERE: xmap: the dims {\"i\", ellipsis, ellipsis} of argument 0 have two ellipses");
  CHECK(over({.in = {{"i", "i"}, {"i", none}}, .out = {{"i", none}}}, a, a) ==
        "HERE: xmap: the dims {\"i\", \"i\"} of argument 0 have \"i\" twice");
  CHECK(over({.in = {{"i", none}, {"i", none}}, .out = {{"i", none}}}, a, b) ==
        "HERE: xmap: axis \"i\" has size 4 in argument 0 and 6 in argument 1");
  CHECK(over({.in = {{"i", none}, {"i", none}}, .out = {{"i", none}}, .axis_sizes = {{"i", 5}}}, a, a) ==
        "HERE: xmap: axis \"i\" has size 4 in argument 0 and 5 in .axis_sizes");
  CHECK(over({.in = {{"i", none}, {"i", none}}, .out = {{"j", none}}}, a, a) ==
        "HERE: xmap: the result has the axis \"j\", which no argument and no .axis_sizes has");
  CHECK(over({.in = {{"i", none}, {"i", none}}, .out = {{none}}}, a, a) ==
        "HERE: xmap: the result differs along \"i\", which its dims in .out do not name: return psum(.., \"i\") or "
        "another collective over it, or name it");
  CHECK(over({.in = {{"i", none}, {"i", none}}, .out = {{"i", none}}, .axis_resources = {{"i", "data"}}}, a, a) ==
        "HERE: xmap: .axis_resources needs a mesh: .mesh");
  CHECK(over({.mesh = mesh, .in = {{"i", none}, {"i", none}}, .out = {{"i", none}}, .axis_resources = {{"j", "data"}}},
             a, a) == "HERE: xmap: .axis_resources has \"j\", which no argument and no .axis_sizes has");
  CHECK(over({.mesh = mesh, .in = {{"i", none}, {"i", none}}, .out = {{"i", none}}, .axis_resources = {{"i", "data"}}},
             b, b) == "HERE: xmap: axis \"i\" of size 6 does not divide over 4 devices");
  CHECK(over({.mesh = mesh,
              .in = {{"i", "j"}, {"i", "j"}},
              .out = {{"i", "j"}},
              .axis_resources = {{"i", "data"}, {"j", "data"}}},
             zeros({4, 4}), zeros({4, 4})) == "HERE: xmap: the mesh axis \"data\" is given to \"i\" and to \"j\"");
}

TEST_CASE("collectives that would see a part, and axes of nothing or of others") {
  const auto centred = shard_map([](Array v) { return v - pmean(v, "b"); },
                                 {.mesh = mesh, .in = {P("data")}, .out = {P("data")}, .axis_names = {"data"}});
  const auto spread = [&](Array v) { return vmap(centred, {.axis_name = "b", .spmd_axis_name = "model"})(v); };
  CHECK(said(spread, zeros({4, 8})) ==
        "HERE: shard_map: vmap spreads \"b\" over \"model\": a collective over the former would see only a part of it");
  const auto none_to_combine = [](Array v) { return preduce(v, "i", [](Array a, Array b) { return a + b; }); };
  CHECK(said([&](Array v) { return vmap(none_to_combine, {.axis_name = "i"})(v); }, zeros({0})) ==
        "HERE: preduce: axis \"i\" has no examples to combine");
  const auto inner = xmap(itself, {.mesh = mesh, .in = {{"i"}}, .out = {{"i"}}, .axis_resources = {{"i", "data"}}});
  const auto outer = shard_map([&](Array v) { return inner(v); }, {.mesh = mesh, .in = {P()}, .out = {P()}});
  CHECK(said(outer, zeros({8})) == "HERE: xmap: the mesh axis \"data\" is taken by the map around it");
}

TEST_CASE("arrays that lie elsewhere are refused at once as in jit, and meshes of the same axes are told apart") {
  ensure_devices(8);
  const std::vector<Device> all = devices();
  const Mesh one({{"x", 4}}), other({{"x", 4}}, {all[4], all[5], all[6], all[7]}),
      mixed({{"x", 4}}, {all[1], all[0], all[2], all[7]});
  const auto f = shard_map([](Array a, Array b) { return a + b; }, {.mesh = one, .in = {P("x"), P()}, .out = {P("x")}});
  const Array here = device_put(zeros({8}), one, P("x"));
  const Array there = device_put(zeros({8}), other, P("x"));
  const auto text = [](auto call) { return message_here<ShardingError>(call); };
  const std::string lies = "the program is for the mesh [x=4] of cpu:0-3: move the arrays with device_put\n  ";
  const std::string where = ": f32[8@x] on [x=4] of cpu:4-7   (made at HERE)";
  CHECK(text([&] { f(there, zeros({2})); }) == "HERE: shard_map: " + lies + "arg0" + where);
  CHECK(text([&] { jit(f)(there, zeros({2})); }) == "HERE: jit: " + lies + "arg0" + where);
  const auto captures =
      shard_map([&](Array a) { return a + sum(there); }, {.mesh = one, .in = {P("x")}, .out = {P("x")}});
  CHECK(text([&] { captures(zeros({8})); }) == "HERE: shard_map: " + lies + "rhs" + where);
  const Array second = device_put(zeros({2}), other, P());
  CHECK(text([&] { f(here, second); }) ==
        "HERE: shard_map: the arrays are on different meshes or devices: move one with device_put\n  arg0: f32[8@x] on "
        "[x=4] of cpu:0-3   (made at HERE)\n  arg1: f32[2] on [x=4] of cpu:4-7   (made at HERE)");
  CHECK(text([&] { f(device_put(zeros({8}), mixed, P("x")), zeros({2})); }) ==
        "HERE: shard_map: " + lies + "arg0: f32[8@x] on [x=4] of cpu:1,0,2,7   (made at HERE)");
  CHECK(f(here, zeros({2})).shape() == Shape{8});
  // Two in one program.
  const auto g = shard_map(itself, {.mesh = other, .in = {P("x")}, .out = {P("x")}});
  CHECK(said([&](Array v) { return g(f(v, zeros({2}))); }, zeros({8})) ==
        "HERE: jit: a program runs on one mesh\n  shard_map at HERE: [x=4] of cpu:0-3\n  shard_map at HERE: [x=4] of "
        "cpu:4-7");
  // What the axes are called makes no place another.
  const Mesh renamed({{"y", 4}});
  CHECK(f(device_put(ones({8}), renamed, P("y")), zeros({2})).sharding() == NamedSharding{one, P("x")});
}

TEST_CASE("a layout inside a map is of its mesh, and along the axes that are free there") {
  const Mesh other = Mesh::abstract({{"data", 4}});
  const auto on = [](auto f) {
    return said(shard_map(f, {.mesh = mesh, .in = {P("data")}, .out = {P("data")}, .axis_names = {"data"}}),
                zeros({8, 8}));
  };
  CHECK(
      on([](Array x) { return with_sharding(x, mesh, P(none, "data")); }) ==
      "HERE: with_sharding: P(none, \"data\") of f32[2, 8]{V@data}: dim 1 is split over \"data\", and the function here "
      "is of one device along it");
  CHECK(on([&](Array x) { return with_sharding(x, other, P()); }) ==
        "HERE: with_sharding: the mesh [data=4] is not that of the shard_map around it, [data=4, model=2]");
  CHECK(on([](Array x) { return with_sharding(x, mesh, P(none, "model")); }) == "nothing was thrown");
}

TEST_CASE("an axis of a vmap inside a map has a name of its own") {
  const auto f = [](Array x) { return vmap([](Array r) { return psum(r, "data"); }, {.axis_name = "data"})(x); };
  CHECK(said(shard_map(f, {.mesh = mesh, .in = {P("data")}, .out = {P()}, .axis_names = {"data"}}), zeros({8, 6})) ==
        "HERE: vmap: the axis \"data\" has the name of an axis of the shard_map around it");
}
