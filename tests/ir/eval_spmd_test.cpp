// The reference for several devices: what each collective gives, with whom it meets, and loops and branches around it.
#include "ir/eval_spmd.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <numeric>

#include "ir/check.h"
#include "ir/text.h"

using namespace sheaf;
using namespace sheaf::ir;

namespace {

FunctionRef parsed(const std::string& text) {
  const auto module = parse(text);
  REQUIRE_MESSAGE(module.ok(), std::string(module.status().message()));
  return module->functions[0];
}

Literal floats(const Shape& dims, const std::vector<double>& values) { return Literal(DType::f32, dims, values); }

std::vector<double> values_of(const Literal& x) {
  std::vector<double> values;
  for (std::int64_t i = 0; i < x.size(); ++i) values.push_back(x.get(i));
  return values;
}

/// Runs the one equation on a mesh, device d having 10 d, 10 d + 1, ... as its operand: what each device gets.
std::vector<std::vector<double>> results(const std::string& mesh, const std::string& operand, const std::string& result,
                                         const std::string& equation) {
  const FunctionRef f =
      parsed(fmt::format("mesh @m = [{}]\nfunc @f(%x: {}) -> {} on @m {{\n  %y: {} = {}\n  return %y\n}}\n", mesh,
                         operand, result, result, equation));
  std::vector<Literals> inputs;
  for (int d = 0; d < f->mesh().size(); ++d) {
    Literal x(f->params()[0].type());
    for (std::int64_t i = 0; i < x.size(); ++i) x.set(i, 10.0 * d + static_cast<double>(i));
    inputs.push_back({x});
  }
  std::vector<std::vector<double>> out;
  for (const Literals& of_device : eval_spmd(f, inputs)) {
    REQUIRE(of_device[0].type() == f->results()[0].type());
    out.push_back(values_of(of_device[0]));
  }
  return out;
}

using Rows = std::vector<std::vector<double>>;

}  // namespace

TEST_CASE("all_reduce combines the operands of a group and gives all the same") {
  CHECK(results("x=2", "f32[2]", "f32[2]", "all_reduce %x {axes=[x]}") == Rows{{10, 12}, {10, 12}});
  CHECK(results("x=2", "i32[2]", "i32[2]", "all_reduce %x {axes=[x], kind=max}") == Rows{{10, 11}, {10, 11}});
  CHECK(results("x=2, y=2", "f32[1]", "f32[1]", "all_reduce %x {axes=[y]}") == Rows{{10}, {10}, {50}, {50}});
  CHECK(results("x=2, y=2", "f32[1]", "f32[1]", "all_reduce %x {axes=[x]}") == Rows{{20}, {40}, {20}, {40}});
  CHECK(results("x=2, y=2", "f32[]", "f32[]", "all_reduce %x {axes=[x, y], kind=min}") == Rows{{0}, {0}, {0}, {0}});
  CHECK(results("x=1", "f32[1]", "f32[1]", "all_reduce %x {axes=[x]}") == Rows{{0}});
}

TEST_CASE("a part of an axis is a group of its own") {
  CHECK(results("x=4", "f32[]", "f32[]", "all_reduce %x {axes=[\"x:(2)2\"]}") == Rows{{10}, {10}, {50}, {50}});
  CHECK(results("x=4", "f32[]", "f32[]", "all_reduce %x {axes=[\"x:(1)2\"]}") == Rows{{20}, {40}, {20}, {40}});
}

TEST_CASE("sums of half types are kept in f32 and rounded once, in the order of the group") {
  const FunctionRef f = parsed(
      "mesh @m = [x=3]\nfunc @f(%x: bf16[]) -> bf16[] on @m {\n  %y: bf16[] = all_reduce %x {axes=[x]}\n  return %y\n}\n");
  const std::vector<Literals> inputs = {
      {Literal::scalar(DType::bf16, 256)}, {Literal::scalar(DType::bf16, 1)}, {Literal::scalar(DType::bf16, 1)}};
  for (const Literals& y : eval_spmd(f, inputs)) CHECK(y[0].get(0) == 258);
}

TEST_CASE("all_gather joins or stacks in the order of the axes given") {
  CHECK(results("x=2", "f32[1, 2]", "f32[1, 4]", "all_gather %x {axes=[x], size=2, dim=1, tiled=true}") ==
        Rows{{0, 1, 10, 11}, {0, 1, 10, 11}});
  CHECK(results("x=2", "f32[2]", "f32[2, 2]", "all_gather %x {axes=[x], size=2, dim=1}") ==
        Rows{{0, 10, 1, 11}, {0, 10, 1, 11}});
  CHECK(results("x=2, y=2", "f32[1]", "f32[4]", "all_gather %x {axes=[y, x], size=4, tiled=true}")[3] ==
        std::vector<double>{0, 20, 10, 30});
}

TEST_CASE("reduce_scatter leaves each device its block of the sum") {
  CHECK(results("x=2", "f32[2, 2]", "f32[2, 1]", "reduce_scatter %x {axes=[x], size=2, dim=1, tiled=true}") ==
        Rows{{10, 14}, {12, 16}});
  CHECK(results("x=2", "f32[2, 2]", "f32[2]", "reduce_scatter %x {axes=[x], size=2}") == Rows{{10, 12}, {14, 16}});
}

TEST_CASE("all_to_all hands block i to device i, and joins what comes") {
  CHECK(results("x=2", "f32[2, 1]", "f32[1, 2]", "all_to_all %x {axes=[x], size=2, split=0, concat=1, tiled=true}") ==
        Rows{{0, 10}, {1, 11}});
  CHECK(results("x=2", "f32[1, 4]", "f32[1, 4]", "all_to_all %x {axes=[x], size=2, split=1, concat=1, tiled=true}") ==
        Rows{{0, 1, 10, 11}, {2, 3, 12, 13}});
  CHECK(results("x=2", "f32[2, 2]", "f32[2, 2]", "all_to_all %x {axes=[x], size=2, split=0, concat=1}") ==
        Rows{{0, 10, 1, 11}, {2, 12, 3, 13}});
}

TEST_CASE("ppermute sends along its pairs, and who gets nothing has zeros") {
  CHECK(results("x=3", "f32[1]", "f32[1]", "ppermute %x {axes=[x], sources=[0, 1], targets=[1, 2]}") ==
        Rows{{0}, {0}, {10}});
  CHECK(results("x=2, y=2", "f32[]", "f32[]", "ppermute %x {axes=[y], sources=[0, 1], targets=[1, 0]}") ==
        Rows{{10}, {0}, {30}, {20}});
}

TEST_CASE("axis_index is the coordinate that the axes span") {
  const auto coordinates = [](const std::string& axes) {
    Rows rows = results("x=2, y=2", "f32[]", "i32[]", fmt::format("axis_index {{axes=[{}]}}", axes));
    std::vector<double> of;
    for (const auto& row : rows) of.push_back(row[0]);
    return of;
  };
  CHECK(coordinates("x") == std::vector<double>{0, 0, 1, 1});
  CHECK(coordinates("y") == std::vector<double>{0, 1, 0, 1});
  CHECK(coordinates("y, x") == std::vector<double>{0, 2, 1, 3});
}

TEST_CASE("loops run in lockstep around a collective") {
  const FunctionRef f = parsed(R"(mesh @m = [x=2]
func @f(%c: f32[], %xs: f32[3]) -> f32[], f32[3] on @m {
  %a: f32[], %b: f32[3] = scan %c, %xs {carry=1, length=3, reverse=true} (%c: f32[], %x: f32[]) {
    %0: f32[] = add %c, %x
    %1: f32[] = all_reduce %0 {axes=[x]}
    return %1, %0
  }
  return %a, %b
}
)");
  const std::vector<Literals> inputs = {{floats({}, {0}), floats({3}, {1, 2, 3})},
                                        {floats({}, {0}), floats({3}, {10, 20, 30})}};
  const std::vector<Literals> out = eval_spmd(f, inputs);
  CHECK(values_of(out[0][0]) == std::vector<double>{187});
  CHECK(values_of(out[1][0]) == std::vector<double>{187});
  CHECK(values_of(out[0][1]) == std::vector<double>{89, 35, 3});
  CHECK(values_of(out[1][1]) == std::vector<double>{98, 53, 30});
}

namespace {

/// Doubles a group's sum along y until it is at least 100; devices of another x may take more or fewer turns.
const char* const kUntilHundred = R"(mesh @m = [x=2, y=2]
func @f(%c: f32[]) -> f32[] on @m {
  %r: f32[] = while %c (%c: f32[]) {
    %0: bool[] = lt %c, 100.0:f32
    return %0
  } (%c: f32[]) {
    %0: f32[] = all_reduce %c {axes=[AXIS]}
    return %0
  }
  return %r
}
)";

std::vector<double> until_hundred(std::string axis) {
  std::string text = kUntilHundred;
  text.replace(text.find("AXIS"), 4, axis);
  std::vector<double> out;
  const std::vector<Literals> inputs = {{floats({}, {1})}, {floats({}, {1})}, {floats({}, {30})}, {floats({}, {30})}};
  for (const Literals& y : eval_spmd(parsed(text), inputs)) out.push_back(y[0].get(0));
  return out;
}

}  // namespace

TEST_CASE("groups may leave a loop at different times, their members may not") {
  CHECK(until_hundred("y") == std::vector<double>{128, 128, 120, 120});
  CHECK(until_hundred("x") == std::vector<double>{124, 124, 124, 124});
  const FunctionRef f = parsed(R"(mesh @m = [x=2]
func @f(%i: i32[], %c: f32[]) -> f32[] on @m {
  %r: f32[] = cond %i, %c (%c: f32[]) {
    return %c
  } (%c: f32[]) {
    %0: f32[] = all_reduce %c {axes=[x]}
    return %0
  }
  return %r
}
)");
  const auto with = [&](double i, double j) {
    const std::vector<Literals> inputs = {{Literal::scalar(DType::i32, i), floats({}, {1})},
                                          {Literal::scalar(DType::i32, j), floats({}, {2})}};
    std::vector<double> out;
    for (const Literals& y : eval_spmd(f, inputs)) out.push_back(y[0].get(0));
    return out;
  };
  CHECK(with(0, 0) == std::vector<double>{1, 2});
  CHECK(with(1, 5) == std::vector<double>{3, 3});
  CHECK_THROWS_WITH_AS(with(1, 0), doctest::Contains("device 1 does not come to all_reduce"), InternalError);
}

TEST_CASE("complex values meet as pairs of reals") {
  const FunctionRef f = parsed(
      "mesh @m = [x=2]\nfunc @f(%x: c64[1]) -> c64[1] on @m {\n  %y: c64[1] = all_reduce %x {axes=[x]}\n  return %y\n}\n");
  Literal a(Type(DType::c64, {1})), b(Type(DType::c64, {1}));
  a.set_complex(0, 1, 2);
  b.set_complex(0, 10, 20);
  const std::vector<Literals> inputs = {{a}, {b}};
  for (const Literals& y : eval_spmd(f, inputs)) {
    CHECK(y[0].get_part(0, 0) == 11);
    CHECK(y[0].get_part(0, 1) == 22);
  }
}

TEST_CASE("parts of a value put together are the value") {
  const MeshAtoms atoms(*Mesh::parse("x=4, y=3"));
  Literal x(Type(DType::f32, {4, 6}));
  for (std::int64_t i = 0; i < x.size(); ++i) x.set(i, static_cast<double>(i));
  const Atoms a = atoms.of("x:(1)2"), b = atoms.of("x:(2)2"), y = atoms.of("y");
  Atoms ab = b;
  ab.insert(ab.end(), a.begin(), a.end());
  for (const Sharding& s :
       {Sharding::replicated(2), Sharding{.dims = {ab, y}}, Sharding{.dims = {a, y}, .unreduced = b},
        Sharding{.dims = {{}, {}}, .unreduced = y, .kind = ReduceKind::max},
        Sharding{.dims = {{}, b}, .unreduced = y, .kind = ReduceKind::prod}}) {
    INFO(to_string(s, atoms));
    const Literals parts = shard(x, atoms, s);
    CHECK(parts[0].type() == local_type(x.type(), atoms, s));
    const auto whole = unshard(parts, x.type(), atoms, s);
    REQUIRE(whole.ok());
    CHECK(*whole == x);
  }
  CHECK(values_of(shard(x, atoms, {.dims = {ab, y}})[3 * 3 + 1]) == std::vector<double>{20, 21});
  CHECK(values_of(shard(x, atoms, {.dims = {ab, y}})[2 * 3 + 1]) == std::vector<double>{8, 9});
}

TEST_CASE("replicas that differ are told") {
  const MeshAtoms atoms(*Mesh::parse("x=2, y=2"));
  const Sharding s{.dims = {atoms.of("x")}};
  Literals parts = shard(floats({2}, {1, 2}), atoms, s);
  parts[3].set(0, 7);
  CHECK(std::string(unshard(parts, Type(DType::f32, {2}), atoms, s).status().message()) ==
        "devices 2 and 3 hold different values of one part of f32[2] [x]");
}
