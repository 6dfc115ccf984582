// A plan belongs to a target, and is right on any: one made for a GPU, where a product makes its operands and does what
// follows while it is in registers, does the same on a CPU in phases around the product.
#include <doctest/doctest.h>

#include "codegen/lower.h"
#include "ir/eval.h"
#include "ir/op.h"
#include "ir/ops/attrs.h"
#include "ir/text.h"
#include "passes/pipeline.h"
#include "runtime/executable.h"
#include "tests/lap.h"

using namespace sheaf;
using ir::Literal;
using ir::Literals;

namespace {

Literals small_integers(const ir::Function& f) {
  Literals values;
  for (ir::Value p : f.params()) {
    Literal& x = values.emplace_back(p.type());
    for (std::int64_t i = 0; i < x.size(); ++i) x.set(i, static_cast<double>((5 * i + p.index()) % 7 - 3));
  }
  return values;
}

Literals run(const codegen::Program& program, runtime::Tier tier, const Literals& inputs) {
  auto executable = runtime::Executable::load(program, {.tier = tier});
  REQUIRE_MESSAGE(executable.ok(), std::string(executable.status().message()));
  std::vector<runtime::BufferPtr> buffers;
  for (const Literal& x : inputs)
    buffers.push_back(*runtime::Buffer::from_host(runtime::device(0), std::span(x.data(), x.bytes()), Loc::current()));
  const auto outputs = (*executable)->run(runtime::device(0), buffers, {.donated = {}, .loc = Loc::current()});
  REQUIRE_MESSAGE(outputs.ok(), std::string(outputs.status().message()));
  Literals results;
  for (std::size_t j = 0; j < outputs->size(); ++j) {
    Literal& x = results.emplace_back(program.outputs[j]);
    REQUIRE((*outputs)[j]->to_host(std::span(x.data(), x.bytes())).ok());
  }
  return results;
}

/// A product of m rows and n columns whose operands are made, with something behind it; both it and that are results.
std::string made_product(int m, int n, int k) {
  const auto pair = [](int a, int b) { return "[" + std::to_string(a) + ", " + std::to_string(b) + "]"; };
  const std::string mk = pair(m, k), kn = pair(k, n), mn = pair(m, n);
  return "func @f(%x: f32" + mk + ", %w: i8" + kn + ", %b: f32" + mn + ") -> f32" + mn + ", f32" + mn + " {\n%y: f32" +
         mk + " = add %x, %x\n%v: f32" + kn + " = convert %w\n%p: f32" + mn +
         " = dot %y, %v {lhs=[1], rhs=[0]}\n%q: f32" + mn + " = mul %p, %b\nreturn %p, %q\n}\n";
}

}  // namespace

TEST_CASE("a plan made for a GPU is right on a CPU, interpreted and compiled") {
  for (const auto& [m, n, k] : {std::array{3, 5, 7}, {200, 260, 70}, {1, 300, 40}, {5, 6, 0}}) {
    CAPTURE(m);
    const auto module = ir::parse(made_product(m, n, k));
    REQUIRE_MESSAGE(module.ok(), std::string(module.status().message()));
    const ir::Function& f = *module->functions[0];
    const passes::Plan plan = passes::run_pipeline(module->functions[0], {.target = {"sm_80"}});
    const codegen::Program program = codegen::lower(plan, {});
    const Literals inputs = small_integers(f), want = ir::eval(f, inputs);
    if (k > 0) CHECK(program.kernels.size() == 1);
    for (const runtime::Tier tier : {runtime::Tier::interpreted, runtime::Tier::compiled}) {
      const Literals got = run(program, tier, inputs);
      for (std::size_t j = 0; j < want.size(); ++j) CHECK(tests::same_bits(got[j], want[j]));
    }
  }
}

TEST_CASE("what a result of a product takes the place of is read before that is written") {
  const auto module = ir::parse(R"(func @f(%x: f32[4, 6], %w: f32[6, 4], %u: f32[4, 4]) -> f32[4, 4], f32[4] {
    %d: f32[4, 4] = dot %u, %u {lhs=[1], rhs=[0]}
    %c: f32[4, 4] = dot %d, %u {lhs=[1], rhs=[0]}
    %z: f32[4, 6] = dot %d, %x {lhs=[1], rhs=[0]}
    %p: f32[4, 4] = dot %z, %w {lhs=[1], rhs=[0]}
    %t: f32[4, 4] = max %p, 1.0:f32
    %o: f32[4, 4] = mul %c, %t
    %b: f32[4] = reduce %t {kind=sum, dims=[0]}
    return %o, %b
  })");
  REQUIRE_MESSAGE(module.ok(), std::string(module.status().message()));
  const passes::Plan plan = passes::run_pipeline(module->functions[0], {.target = {"sm_80"}});
  std::string in_place;
  for (const ir::Eqn* e : plan.function->eqns())
    if (e->op == &ir::ops::kernel && e->num_out() == 2) in_place += to_string(e->attrs<ir::ops::Kernel>().in_place);
  CHECK(in_place == "[1, -1]");
  const Literals inputs = small_integers(*module->functions[0]), want = ir::eval(*module->functions[0], inputs);
  for (const runtime::Tier tier : {runtime::Tier::interpreted, runtime::Tier::compiled}) {
    const Literals got = run(codegen::lower(plan, {}), tier, inputs);
    for (std::size_t j = 0; j < want.size(); ++j) CHECK(tests::same_bits(got[j], want[j]));
  }
}
