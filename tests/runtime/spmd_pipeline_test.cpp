// Programs over whole arrays, laid out on a mesh, down to what the devices compute: together it is what the reference
// computes on the whole arrays, to the bit, all values being small integers.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <random>

#include "ir/eval.h"
#include "ir/eval_spmd.h"
#include "tests/lap.h"
#include "tests/passes/parts.h"
#include "tests/runtime/spmd.h"

using namespace sheaf;
using namespace sheaf::tests;
using ir::FunctionRef;
using ir::Literal;
using ir::Literals;

namespace {

Literals small_integers(const ir::Function& f) {
  std::mt19937 bits(11);
  Literals values;
  for (ir::Value p : f.params()) {
    Literal& x = values.emplace_back(ir::without_sharding(p.type()));
    for (std::int64_t i = 0; i < x.size(); ++i) x.set(i, static_cast<double>(bits() % 3) - 1);
  }
  return values;
}

/// Puts the parts of `values` on the devices, runs the program, and puts the results together.
Literals run_on_mesh(const FunctionRef& f, const Literals& values) {
  const passes::Plan plan = passes::run_pipeline(f);
  auto executable = runtime::Executable::load(codegen::lower(plan), {.tier = runtime::Tier::interpreted});
  REQUIRE_MESSAGE(executable.ok(), std::string(executable.status().message()));
  const ir::MeshAtoms atoms(f->mesh());
  const std::vector<Literals> inputs = parts_of(values, layouts_of(plan.in_types, atoms), atoms);
  const std::vector<Literals> outputs = to_host(start(*executable, to_devices(inputs)), *plan.function);
  return whole_of(outputs, plan.out_types, layouts_of(plan.out_types, atoms), atoms);
}

void check_on_mesh(const std::string& text) {
  const FunctionRef f = parsed(text);
  const Literals values = small_integers(*f), wanted = ir::eval(*f, values), got = run_on_mesh(f, values);
  REQUIRE(got.size() == wanted.size());
  for (std::size_t j = 0; j < got.size(); ++j)
    CHECK(same_bits(got[j], wanted[j].as(ir::without_sharding(wanted[j].type()))));
}

/// Two layers and the gradients of their weights; X, W and V stand for how the examples and the weights are laid out.
std::string mlp(const std::string& mesh, const std::string& x, const std::string& w, const std::string& v) {
  return fmt::format(R"(mesh @m = [{}]
func @step(%x: f32[8{}, 16], %w: f32[16, 32{}], %v: f32[32{}, 16]) -> f32[8, 16], f32[16, 32], f32[32, 16] on @m {{
  %0: f32[8, 32] = dot %x, %w {{lhs=[1], rhs=[0]}}
  %1: f32[8, 32] = max %0, 0.0:f32
  %2: f32[8, 16] = dot %1, %v {{lhs=[1], rhs=[0]}}
  %3: f32[32, 16] = dot %1, %x {{lhs=[0], rhs=[0]}}
  %4: f32[8, 32] = dot %x, %v {{lhs=[1], rhs=[1]}}
  %5: f32[16, 32] = dot %x, %4 {{lhs=[0], rhs=[0]}}
  return %2, %5, %3
}}
)",
                     mesh, x, w, v);
}

}  // namespace

TEST_CASE("a step with its examples, its weights, or both spread over a mesh is the step on the whole") {
  check_on_mesh(mlp("data=8", "@data", "", ""));
  check_on_mesh(mlp("model=4", "", "@model", "@model"));
  check_on_mesh(mlp("data=2, model=2", "@data", "@model", "@model"));
  check_on_mesh(mlp("data=2, model=4", "@data", "@(model, data)", "@data"));
  check_on_mesh(mlp("data=3, model=2", "", "@model", ""));
}

TEST_CASE("a loop over layers, its stack of weights spread over the devices") {
  for (const char* layout : {"3, 8, 8", "3, 8@data, 8", "3, 8, 8@data"})
    check_on_mesh(fmt::format(R"(mesh @m = [data=4]
func @layers(%x: f32[4@data, 8], %ws: f32[{}]) -> f32[4, 8], f32[3, 4] on @m {{
  %y: f32[4, 8], %s: f32[3, 4] = scan %x, %ws {{carry=1, length=3}} (%c: f32[4, 8], %w: f32[8, 8]) {{
    %0: f32[4, 8] = dot %c, %w {{lhs=[1], rhs=[0]}}
    %1: f32[4, 8] = clamp -2.0:f32, %0, 2.0:f32
    %2: f32[4] = reduce %0 {{dims=[1]}}
    return %1, %2
  }}
  return %y, %s
}}
)",
                              layout));
}

TEST_CASE("sums over what is spread, kept whole and spread again") {
  check_on_mesh(R"(mesh @m = [x=2, y=3]
func @f(%a: f32[6@y, 4@x, 6]) -> f32[4, 6], f32[6], f32[], f32[6, 6, 4] on @m {
  %0: f32[4, 6] = reduce %a {dims=[0]}
  %1: f32[6] = reduce %0 {dims=[0], kind=max}
  %2: f32[] = reduce %a {dims=[0, 1, 2]}
  %3: f32[6, 6, 4] = transpose %a {perm=[0, 2, 1]}
  %4: f32[6, 6, 4] = with_sharding %3 {mesh="x=2, y=3", spec="x,y,_"}
  return %0, %1, %2, %4
}
)");
}
