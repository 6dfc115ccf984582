// Propagation against cases of Shardy's own tests, restated: where every value of a small program lies afterwards.
#include "passes/sharding/propagate.h"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <regex>

#include "ir/builder.h"
#include "ir/op.h"
#include "ir/ops/attrs.h"
#include "ir/text.h"
#include "ir/verify.h"
#include "passes/emit.h"
#include "passes/sharding/constraints.h"
#include "passes/transforms.h"

using namespace sheaf;
using namespace sheaf::ir;
using passes::Strategy;

namespace {

FunctionRef parsed(const std::string& text) {
  const auto module = parse(text);
  REQUIRE_MESSAGE(module.ok(), std::string(module.status().message()));
  return module->functions[0];
}

// `x <a,b?>` stands for a with_sharding of that spec.
FunctionRef on_mesh(const std::string& mesh, const std::string& body) {
  static const std::regex spec("(%\\w+) <([^>]*)>");
  const std::string constraint = "with_sharding $1 {mesh=\"" + mesh + "\", spec=\"$2\"}";
  return parsed("mesh @m = [" + mesh + "]\nfunc @f" + std::regex_replace(body, spec, constraint));
}

// "[a,b][ ]" of one value.
std::string layout(Type t) {
  std::string s;
  for (int d = 0; d < t.rank(); ++d)
    s += t.data().dim_axes.empty() || t.data().dim_axes[d].empty()
             ? "[ ]"
             : fmt::format("[{}]", fmt::join(t.data().dim_axes[d], ","));
  if (!t.data().unreduced.empty()) s += fmt::format(" U{{{}}}", fmt::join(t.data().unreduced, ","));
  return s;
}

// "dot [a][ ]; add [ ][b]": of every equation in order, but constants.
std::string layouts(const Function& f) {
  std::string s;
  for (const Eqn* e : f.eqns())
    if (e->op != &ops::constant)
      s += (s.empty() ? "" : "; ") + std::string(e->op->name) + " " + layout(e->out().type());
  return s;
}

std::string propagated(const std::string& mesh, const std::string& function,
                       const passes::PropagateOptions& options = {},
                       const std::vector<std::optional<Spec>>& wanted = {}) {
  const FunctionRef f = propagate(passes::with_wanted(on_mesh(mesh, function), wanted), options).function;
  CHECK(verify(*f).ok());
  return layouts(*f);
}

}  // namespace

TEST_CASE("P1: elementwise and dot pass axes on, forward and backward") {
  CHECK(propagated("a=2, b=2", R"((%x0: f32[8, 8], %y0: f32[8, 8], %w0: f32[8, 16]) -> f32[8, 16] on @m {
          %x: f32[8, 8] = %x0 <a?,b?>
          %y: f32[8, 8] = sin %y0
          %z: f32[8, 8] = add %x, %y
          %w: f32[8, 16] = sin %w0
          %d: f32[8, 16] = dot %z, %w {lhs=[1], rhs=[0]}
          return %d
        })",
                   {.strategy = Strategy::basic}) ==
        "with_sharding [a][b]; sin [a][b]; add [a][b]; sin [b][ ]; dot [a][ ]");
}

TEST_CASE("P3: basic propagation takes no side") {
  CHECK(propagated("a=2, b=2", R"((%x0: f32[8], %y0: f32[8]) -> f32[8] on @m {
          %x: f32[8] = %x0 <a+b?>
          %y: f32[8] = %y0 <b+a?>
          %z: f32[8] = add %x, %y
          return %z
        })",
                   {.strategy = Strategy::basic}) == "with_sharding [a,b]; with_sharding [b,a]; add [ ]");
}

TEST_CASE("P5: atoms in use elsewhere are not given") {
  CHECK(propagated("a=2, b=2", R"((%x0: f32[8], %y0: f32[8]) -> f32[8] on @m {
          %x: f32[8] = %x0 <a+b?>
          %y: f32[8]{sum@a} = sin %y0
          %z: f32[8] = add %x, %y
          return %z
        })",
                   {.strategy = Strategy::basic}) == "with_sharding [a,b]; sin [ ] U{a}; add [ ]");
}

std::string reshaped(const std::string& mesh, const std::string& from, const std::string& spec, const std::string& to) {
  return propagated(mesh, "(%x0: f32[" + from + "]) -> f32[" + to + "] on @m {\n" + "%x: f32[" + from + "] = %x0 <" +
                              spec + ">\n%y: f32[" + to + "] = reshape %x {shape=[" + to + "]}\nreturn %y\n}")
      .substr(std::string("with_sharding ").size());
}

TEST_CASE("P7: dims that become one dim put their axes one behind the other, as far as they are full") {
  CHECK(reshaped("a=2, b=4", "2, 4", "a,b", "8") == "[a][b]; reshape [a,b]");
  CHECK(reshaped("a=2, b=4", "2, 4", "a,_", "8") == "[a][ ]; reshape [a]");
  CHECK(reshaped("a=2, b=4", "2, 4", "_,b", "8") == "[ ][b]; reshape [ ]");
}

TEST_CASE("P9: a dim that becomes two gives its axes to the major one until that is full") {
  CHECK(reshaped("a=4, b=2", "8", "b+a", "2, 4") == "[b,a]; reshape [b][a]");
  CHECK(reshaped("a=2, b=2", "16", "b+a", "4, 4") == "[b,a]; reshape [b,a][ ]");
  CHECK(reshaped("a=4, b=2", "8", "a+b", "2, 4") == "[a,b]; reshape [a:(1)2][a:(2)2,b]; with_sharding [ ][ ]");
}

TEST_CASE("P11: axes go from dim to dim of a reshape where the pieces stay whole") {
  CHECK(reshaped("a=4, b=2, c=2", "8, 4", "c+a,b", "2, 16") == "[c,a][b]; reshape [c][a,b]");
  CHECK(reshaped("a=3, b=3", "6, 4", "a,_", "24") == "[a][ ]; reshape [a]");
  CHECK(reshaped("a=4, b=2, c=2", "8, 4", "b+a,c", "32") == "[b,a][c]; reshape [b,a,c]");
}

TEST_CASE("P13: of what does not divide, the head that does") {
  const auto merged = [](const std::string& mesh, const std::string& from, const std::string& to) {
    return propagated(mesh, "(%x: f32[" + from + "]) -> f32[] on @m {\n%y: f32[" + to + "] = reshape %x {shape=[" + to +
                                "]}\n%s: f32[] = reduce %y {dims=[0]}\nreturn %s\n}");
  };
  CHECK(merged("a=3, b=3", "6@(a, b), 4", "24") == "reshape [a]; reduce ");
  CHECK(merged("a=4, b=2", "4@(b, a), 4", "16") == "reshape [b,a:(1)2]; reduce ");
  CHECK(merged("a=4, b=2, c=2", "4@(b, a), 4@c", "16") == "reshape [b,a:(1)2,c]; reduce ");
}

TEST_CASE("P15: results pull operands") {
  CHECK(propagated("a=2, b=2", R"((%x0: f32[8, 8], %y0: f32[8, 16]) -> f32[8, 16] on @m {
          %x: f32[8, 8] = sin %x0
          %y: f32[8, 16] = sin %y0
          %z: f32[8, 16] = dot %x, %y {lhs=[1], rhs=[0]}
          return %z
        })",
                   {}, {*parse_spec("a,b")}) == "sin [a][ ]; sin [ ][b]; dot [a][b]; with_sharding [a][b]");
}

TEST_CASE("P17: a closed dim stays as it is") {
  CHECK(propagated("a=2, b=2", R"((%x: f32[8@a, 8], %y: f32[8, 16@b]) -> f32[8, 16] on @m {
          %z: f32[8, 16] = dot %x, %y {lhs=[1], rhs=[0]}
          return %z
        })",
                   {}, {*parse_spec("_,?")}) == "dot [a][b]; with_sharding [ ][b]");
}

TEST_CASE("P19: along a blocked factor nothing moves") {
  const MeshAtoms atoms(*Mesh::parse("a=2, b=2"));
  Factors f;
  const int i = f.add(8), j = f.add(8);
  f.in = {{{i}, {j}}};
  f.out = f.in;
  const passes::Placement x{.dims = {{atoms.of("a"), false}, {atoms.of("b"), false}}}, y{.dims = {{}, {}}};
  std::vector<passes::Projected> tensors{project(x, f.in[0], f.factors, atoms), project(y, f.out[0], f.factors, atoms)};
  using enum passes::Direction;
  spread({.factors = f.factors, .directions = {none, both}, .tensors = tensors, .operands = 1}, Strategy::aggressive,
         atoms);
  CHECK(unproject(tensors[1], f.out[0], f.factors, atoms) == std::vector<Atoms>{{}, atoms.of("b")});
}

std::string sum_of(const std::string& mesh, const std::string& x, const std::string& y, const std::string& dims,
                   const std::string& result = "?,?") {
  return propagated(mesh,
                    "(%x0: f32[" + dims + "], %y0: f32[" + dims + "]) -> f32[" + dims + "] on @m {\n%x: f32[" + dims +
                        "] = %x0 <" + x + ">\n%y: f32[" + dims + "] = %y0 <" + y + ">\n%z: f32[" + dims +
                        "] = add %x, %y\nreturn %z\n}",
                    {}, {*parse_spec(result)});
}

TEST_CASE("P21: of operands of one size aggressive propagation takes the side of the first") {
  CHECK(sum_of("a=2", "a?,?", "?,a?", "8, 8") ==
        "with_sharding [a][ ]; with_sharding [ ][a]; add [a][ ]; with_sharding [a][ ]");
}

TEST_CASE("P23: aggressive propagation takes the side of more shards") {
  CHECK(sum_of("a=2, b=2", "?,a?", "b+a?,?", "8, 8") ==
        "with_sharding [b][a]; with_sharding [b,a][ ]; add [b,a][ ]; with_sharding [b,a][ ]");
}

TEST_CASE("P25: an operand is not given more than the result takes") {
  const auto one = [](const std::string& mesh, const std::string& x, const std::string& y, const std::string& result) {
    return propagated(mesh, "(%x0: f32[8], %y0: f32[8]) -> f32[8] on @m {\n%x: f32[8] = %x0 <" + x +
                                ">\n%y: f32[8] = %y0 <" + y + ">\n%z: f32[8] = add %x, %y\n%w: f32[8] = %z <" + result +
                                ">\nreturn %w\n}");
  };
  CHECK(one("a=2, b=2", "a+b?", "?", "a") == "with_sharding [a,b]; with_sharding [a]; add [a]; with_sharding [a]");
  CHECK(one("a=2", "a?", "?", "_") == "with_sharding [a]; with_sharding [ ]; add [ ]; with_sharding [ ]");
  CHECK(propagated("a=4", R"((%x: f32[8@a:(1)2], %y0: f32[8]) -> f32[] on @m {
          %y: f32[8] = sin %y0
          %z: f32[8] = add %x, %y
          %s: f32[] = reduce %z {dims=[0]}
          return %s
        })") == "sin [a:(1)2]; add [a:(1)2]; reduce ");
}

TEST_CASE("P27: a batch dim grows to what the result has, where it is free") {
  CHECK(propagated("a=2, b=2", R"((%x0: f32[4, 8, 4], %y0: f32[4, 4, 8]) -> f32[4, 8, 8] on @m {
          %x: f32[4, 8, 4] = %x0 <a,b,_>
          %y: f32[4, 4, 8] = sin %y0
          %z: f32[4, 8, 8] = dot %x, %y {lhs=[2], rhs=[1], lhs_batch=[0], rhs_batch=[0]}
          %w: f32[4, 8, 8] = %z <a+b,_,_>
          return %w
        })") == "with_sharding [a][b][ ]; sin [a,b][ ][ ]; dot [a,b][ ][ ]; with_sharding [a,b][ ][ ]");
}

TEST_CASE("P29: partial sums keep their axes from dims") {
  CHECK(propagated("a=2, b=2", R"((%x: f32[8@a, 8@b], %y0: f32[8, 16], %q0: f32[8, 16]) -> f32[8, 16] on @m {
          %y: f32[8, 16] = sin %y0
          %d: f32[8, 16]{sum@b} = dot %x, %y {lhs=[1], rhs=[0]}
          %q: f32[8, 16] = sin %q0
          %z: f32[8, 16] = add %d, %q
          %w: f32[8, 16] = %z <?,b>
          return %w
        })") == "sin [b][ ]; dot [a][ ] U{b}; sin [a][b]; add [a][b]; with_sharding [a][b]");
}

TEST_CASE("P31: single uses first, so that a value read twice is moved once") {
  CHECK(propagated("a=2", R"((%x: f32[8@a, 8], %p: f32[8, 8], %q: f32[8, 8]) -> f32[8, 8], f32[8, 8] on @m {
          %s: f32[8, 8] = sin %x
          %u: f32[8, 8] = add %s, %p
          %v: f32[8, 8] = cos %u
          %m: f32[8, 8] = add %s, %q
          %n: f32[8, 8] = cos %m
          %vw: f32[8, 8] = %v <_,a>
          %nw: f32[8, 8] = %n <_,a>
          return %vw, %nw
        })") ==
        "sin [a][ ]; add [ ][a]; cos [ ][a]; with_sharding [ ][a]; add [ ][a]; cos [ ][a]; with_sharding [ ][a]");
}

TEST_CASE("P33: broadcasts pull before they push") {
  CHECK(propagated("a=2", R"((%x: f32[32@a]) -> f32[32, 16, 8] on @m {
          %y: f32[32, 16] = broadcast %x {shape=[32, 16], dims=[0]}
          %z: f32[32, 16, 8] = broadcast %y {shape=[32, 16, 8], dims=[0, 1]}
          %w: f32[32, 16, 8] = %z <?,a?,?>
          return %w
        })") == "broadcast [ ][a]; broadcast [ ][a][ ]; with_sharding [ ][a][ ]");
}

TEST_CASE("P35: lower priorities take what earlier ones left") {
  CHECK(propagated("a=2, b=2, c=2", R"((%x0: f32[8, 8], %y0: f32[8, 8], %q0: f32[8, 8]) -> f32[8, 8] on @m {
          %x: f32[8, 8] = %x0 <a,b:p4>
          %y: f32[8, 8] = sin %y0
          %u: f32[8, 8] = add %x, %y
          %q: f32[8, 8] = %q0 <?,c?:p1>
          %v: f32[8, 8] = add %u, %q
          return %v
        })") == "with_sharding [a][b]; sin [a][c]; add [a][c]; with_sharding [a][c]; add [a][c]");
}

TEST_CASE("a function without a mesh is left alone") {
  const FunctionRef f = parsed("func @f(%x: f32[8]) -> f32[8] {\n%y: f32[8] = sin %x\nreturn %y\n}");
  CHECK(passes::propagate(f) == f);
}

namespace {

// Layers of a dot and a tanh, and the gradient of the sum of squares of what comes out.
FunctionRef chain(int layers, const std::string& mesh) {
  const MeshAtoms atoms(*Mesh::parse(mesh));
  Builder b("chain");
  Value h = b.param(Type(f32, {1024, 64}));
  passes::Mask wrt{true};
  for (int i = 0; i < layers; ++i) {
    h = b.emit(ops::tanh, {b.emit(ops::dot, {h, b.param(Type(f32, {64, 64}))}, ops::Dot{.lhs = {1}, .rhs = {0}})});
    wrt.push_back(true);
  }
  const FunctionRef f = b.finish({b.emit(ops::reduce, {h * h}, ops::Reduce{.dims = {0, 1}})});
  const FunctionRef gradient = passes::inline_calls(passes::value_and_grad(f, wrt));
  Builder on("chain");
  Values params;
  for (const Value p : gradient->params()) {
    Sharding s = Sharding::replicated(2);
    s.dims[params.empty() ? 0 : 1] = atoms.of(params.empty() ? "data" : "model");
    params.push_back(on.param(with_sharding(p.type(), atoms, s)));
  }
  return on.finish(passes::inline_into(on, *gradient, params))->on_mesh(atoms.mesh());
}

}  // namespace

TEST_CASE("visits grow with the layers of a program and not with the devices") {
  const auto visits = [](int layers, const std::string& mesh) {
    return passes::propagate(chain(layers, mesh), {}).visits;
  };
  const std::int64_t hundred = visits(100, "data=4, model=2"), more = visits(200, "data=4, model=2") - hundred;
  CHECK(visits(400, "data=4, model=2") == hundred + 3 * more);
  CHECK(more < 100 * 80);
  CHECK(visits(100, "data=32, model=32") == hundred);
}

TEST_CASE("reasons say through what and from where each dim is split") {
  const FunctionRef f = on_mesh("a=2, b=2", R"((%x: f32[8@a, 8], %w: f32[8, 8@b]) -> f32[8, 8] on @m {
    %0: f32[8, 8] = dot %x, %w {lhs=[1], rhs=[0]} loc(mlp.cpp:9)
    %1: f32[8, 8] = tanh %0 loc(mlp.cpp:10)
    return %1
  })");
  CHECK(passes::propagate(f, {.explains = true}).reasons ==
        std::vector<std::string>{"%x: dim 0 on a, as given", "%w: dim 1 on b, as given",
                                 "dot at mlp.cpp:9: dim 0 on a, through dot from %x",
                                 "dot at mlp.cpp:9: dim 1 on b, through dot from %w",
                                 "tanh at mlp.cpp:10: dim 0 on a, through tanh from dot at mlp.cpp:9",
                                 "tanh at mlp.cpp:10: dim 1 on b, through tanh from dot at mlp.cpp:9"});
}

TEST_CASE("a region has a layout of its own at each equation that runs it") {
  Builder body("body");
  const Value c = body.param(Type(f32, {8})), k = body.param(Type(f32, {8}));
  const FunctionRef region = body.finish({c * k, k});
  Builder b("f");
  const MeshAtoms atoms(*Mesh::parse("a=2, b=2"));
  Values results;
  for (const char* axis : {"a", "b"}) {
    const Value x = b.param(with_sharding(Type(f32, {8}), atoms, {.dims = {atoms.of(axis)}}));
    const Value rows = b.param(Type(f32, {3, 8}));
    const Values out = b.emit_all(&ops::scan, {x, rows},
                                  std::make_shared<const ops::Scan>(ops::Scan{.carry = 1, .length = 3}), {region});
    results.insert(results.end(), out.begin(), out.end());
  }
  CHECK(layouts(*passes::propagate(b.finish(results)->on_mesh(atoms.mesh()))) == "scan [a]; scan [b]");
}

TEST_CASE("a spec says priorities, none of them 0 aloud") {
  const Spec spec{{.axes = {"a", "b"}, .open = true, .priority = 1}, {.priority = 2}, {.axes = {"c"}}};
  CHECK(to_text(spec) == "a+b?:p1,_:p2,c");
  CHECK(*parse_spec("a+b?:p1,_:p2,c") == spec);
  CHECK(to_text({{.open = true, .of_weight = true}, {.axes = {"a"}, .of_weight = true}}) == "*?,a*");
  CHECK(*parse_spec("*?,a*") == Spec{{.open = true, .of_weight = true}, {.axes = {"a"}, .of_weight = true}});
  CHECK(parse_spec("a:p256").status().message() == "\"p256\" is not a priority from 0 to 255");
  CHECK(parse_spec("a:px").status().message() == "\"px\" is not a priority from 0 to 255");
}

TEST_CASE("what gradients of stacked weights must lie like reaches into the loop that makes them") {
  const FunctionRef f = on_mesh("data=4", R"((%x: f32[3, 64@data, 8], %g: f32[3, 64@data, 16]) -> f32[3, 8, 16] on @m {
    %w: f32[3, 8, 16] = scan %x, %g {carry=0, length=3, reverse=true} (%x1: f32[64, 8], %g1: f32[64, 16]) {
      %0: f32[8, 16] = dot %x1, %g1 {lhs=[0], rhs=[0]}
      return %0
    }
    return %w
  })");
  const FunctionRef out = passes::propagate(passes::with_wanted(f, {*parse_spec("_,data,_")}));
  CHECK(layouts(*out) == "scan [ ][data][ ]; with_sharding [ ][data][ ]");
  CHECK(layouts(*out->eqns()[0]->regions[0]) == "dot [data][ ]");
}

TEST_CASE("what a dot gives reaches what is computed from it before a wanted gradient reaches it from behind") {
  const std::string body = R"((%x: f32[16@f, 4], %w: f32[4, 8], %g: f32[16@f, 4]) -> f32[8, 4] on @m {
    %0: f32[16, 8] = dot %x, %w {lhs=[1], rhs=[0]}
    %1: f32[16, 8] = tanh %0
    %2: f32[8, 4] = dot %1, %g {lhs=[0], rhs=[0]}
    return %2
  })";
  CHECK(propagated("f=2", body, {}, {*parse_spec("f,_")}) ==
        "dot [f][ ]; tanh [f][ ]; dot [f][ ]; with_sharding [f][ ]");
}
