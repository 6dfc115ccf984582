// Plan -> Program -> interpreter against the reference, for every sample of every op and for a few whole programs.
#include "codegen/lower.h"

#include <doctest/doctest.h>

#include <cmath>
#include <set>

#include "codegen/fingerprint.h"
#include "codegen/kir/interp.h"
#include "codegen/kir/kir.h"
#include "ir/complex.h"
#include "ir/eval.h"
#include "ir/op.h"
#include "ir/sample.h"
#include "ir/text.h"
#include "passes/pipeline.h"

using namespace sheaf;
using ir::Literal;
using ir::Literals;

namespace {

Literals run(const codegen::Program& p, Literals inputs) {
  Literals outputs;
  for (ir::Type t : p.outputs) outputs.emplace_back(t);
  std::vector<std::byte> arena(static_cast<std::size_t>(p.arena_bytes), std::byte{0xa5});
  for (const codegen::Step& step : p.steps) {
    std::vector<void*> buffers;
    for (const codegen::BufferRef& r : step.buffers) {
      switch (r.space) {
        case codegen::BufferRef::Space::input: buffers.push_back(inputs[r.index].data()); break;
        case codegen::BufferRef::Space::output: buffers.push_back(outputs[r.index].data()); break;
        case codegen::BufferRef::Space::arena:
          REQUIRE(r.index + r.bytes <= p.arena_bytes);
          buffers.push_back(arena.data() + r.index);
          break;
        case codegen::BufferRef::Space::constant:
          buffers.push_back(const_cast<std::byte*>(p.constants[r.index].data.data()));
          break;
        case codegen::BufferRef::Space::slot: FAIL("a slot outside a loop"); break;
      }
    }
    kir::Interpreter(*p.kernels[step.kernel].kir).run(buffers.data());
  }
  return outputs;
}

Literals compiled(const ir::FunctionRef& f, const Literals& inputs) {
  return run(codegen::lower(passes::run_pipeline(f)), inputs);
}

/// Absolute and relative error, for sums whose order differs from the reference's.
bool is_close(const Literal& got, const Literal& want) {
  if (is_complex(want.dtype())) return is_close(got, want.as_parts());  // programs know pairs only
  const DType t = got.dtype();
  if (!is_float(t)) return got == want;
  const double epsilon = t == DType::f64 ? 1e-13 : t == DType::f32 ? 4e-6 : t == DType::f16 ? 4e-3 : 3e-2;
  for (std::int64_t i = 0; i < got.size(); ++i) {
    const double a = got.get(i), b = want.get(i);
    if (a == b || (std::isnan(a) && std::isnan(b))) continue;
    if (!(std::abs(a - b) <= epsilon * std::max(1.0, std::abs(b)))) return false;
  }
  return true;
}

Literals numbered_inputs(const ir::Function& f) {
  Literals inputs;
  for (ir::Value p : f.params()) {
    inputs.emplace_back(p.type());
    for (std::int64_t i = 0; i < inputs.back().size(); ++i)
      inputs.back().set(i, std::sin(static_cast<double>(i * 7 + 1)) * 2);
  }
  return inputs;
}

void check_sample(std::string_view text) {
  CAPTURE(text);
  const auto sample = ir::parse_sample(text);
  REQUIRE(sample.status().ToString() == "OK");
  const ir::Eqn& e = *sample->function->results()[0].eqn();
  const bool is_constant = e.op == &ir::ops::constant;
  const bool is_lowered = !is_constant && e.op->lower && !ir::has_complex(*sample->function);
  if (is_lowered && std::holds_alternative<ir::lowering::Library>(e.op->lower(e)))
    return;  // tests/runtime/lapack_test.cpp
  const Literals inputs = ir::random_inputs(*sample, 1);
  const Literals got = compiled(sample->function, inputs), want = ir::eval(*sample->function, inputs);
  REQUIRE(got.size() == want.size());
  for (std::size_t j = 0; j < want.size(); ++j) CHECK(is_close(got[j], want[j]));
}

void check_program(const char* text) {
  CAPTURE(text);
  const auto module = ir::parse(text);
  REQUIRE(module.status().ToString() == "OK");
  const ir::FunctionRef f = module->functions[0];
  const Literals inputs = numbered_inputs(*f), got = compiled(f, inputs), want = ir::eval(*f, inputs);
  for (std::size_t j = 0; j < want.size(); ++j) CHECK(is_close(got[j], want[j]));
}

}  // namespace

TEST_CASE("every sample of every op gives the reference's result") {
  for (ir::Op op : ir::all_ops()) {
    if (!op->samples || op->num_results == 0) continue;
    for (std::string_view text : op->samples()) CHECK_NOTHROW(check_sample(text));
  }
}

TEST_CASE("a contraction reads through the views of its operands") {
  check_program(
      "func @main(%x: f32[5, 3], %w: f32[4, 5]) -> f32[3, 4] {\n"
      "  %0: f32[3, 4] = dot %x, %w {lhs=[0], rhs=[1]}\n"
      "  return %0\n"
      "}\n");
}

TEST_CASE("layers that are alike are steps of one kernel, each with its own operands and results") {
  constexpr const char* text =
      "func @main(%x: f32[6, 6], %w: f32[6, 6], %u: f32[6, 6]) -> f32[6, 6] {\n"
      "  %0: f32[6, 6] = dot %x, %w {lhs=[1], rhs=[1]}\n"
      "  %1: f32[6, 6] = tanh %0\n"
      "  %2: f32[6, 6] = dot %1, %u {lhs=[1], rhs=[1]}\n"
      "  %3: f32[6, 6] = tanh %2\n"
      "  %4: f32[6, 6] = dot %3, %w {lhs=[1], rhs=[1]}\n"
      "  %5: f32[6, 6] = tanh %4\n"
      "  return %5\n"
      "}\n";
  check_program(text);
  const codegen::Program p = codegen::lower(passes::run_pipeline(ir::parse(text)->functions[0]));
  CHECK(p.steps.size() == 3);
  CHECK(p.kernels.size() == 1);
}

TEST_CASE("equal kernels are one, and fingerprints differ with every byte") {
  const auto module = ir::parse(
      "func @main(%x: f32[5, 3], %y: f32[5, 3]) -> f32[5], f32[5] {\n"
      "  %0: f32[5] = reduce %x {dims=[1]}\n"
      "  %1: f32[5] = reduce %y {dims=[1]}\n"
      "  return %0, %1\n"
      "}\n");
  REQUIRE(module.status().ToString() == "OK");
  const codegen::Program p = codegen::lower(passes::run_pipeline(module->functions[0]));
  CHECK(p.steps.size() == 2);
  CHECK(p.kernels.size() == 1);
  CHECK(codegen::fingerprint("") == "6c62272e07bb014262b821756295c58d");
  CHECK(codegen::fingerprint("a") != codegen::fingerprint("b"));
}
