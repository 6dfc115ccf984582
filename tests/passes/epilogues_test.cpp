// What is done to a product's sums before they are stored: elementwise work behind it, and beside it where nobody else
// waits for that.
#include <doctest/doctest.h>

#include "ir/op.h"
#include "ir/ops/attrs.h"
#include "ir/text.h"
#include "passes/pipeline.h"

using namespace sheaf;
using namespace sheaf::ir;

namespace {

passes::Plan plan_of(const std::string& text) {
  const auto module = parse(text);
  REQUIRE_MESSAGE(module.ok(), std::string(module.status().message()));
  return passes::run_pipeline(module->functions[0], {});
}

std::string kernels(const passes::Plan& plan) {
  std::string all;
  for (const Eqn* e : plan.function->eqns())
    if (e->op == &ops::kernel) all += (all.empty() ? "" : ", ") + e->attrs<ops::Kernel>().name;
  return all;
}

std::string kernels(const std::string& text) { return kernels(plan_of(text)); }

}  // namespace

TEST_CASE("bias, activation and residual are one kernel with their product") {
  CHECK(kernels(R"(func @f(%x: f32[64, 32], %w: f32[32, 48], %b: f32[48], %r: f32[64, 48]) -> f32[64, 48] {
    %p: f32[64, 48] = dot %x, %w {lhs=[1], rhs=[0]}
    %all: f32[64, 48] = broadcast %b {shape=[64, 48], dims=[1]}
    %s: f32[64, 48] = add %p, %all
    %a: f32[64, 48] = tanh %s
    %y: f32[64, 48] = add %a, %r
    return %y
  })") == "dot_add_tanh_add");
}

TEST_CASE("a product joins what was begun before it, and takes with it what it is combined with") {
  // An optimizer's momentum, of which the program makes the first half before the gradient.
  CHECK(
      kernels(
          R"(func @f(%x: f32[32, 64], %dy: f32[32, 48], %w: f32[64, 48], %m: f32[64, 48]) -> f32[64, 48], f32[64, 48] {
    %old: f32[64, 48] = mul %m, 0.9:f32
    %g: f32[64, 48] = dot %x, %dy {lhs=[0], rhs=[0]}
    %new: f32[64, 48] = add %old, %g
    %step: f32[64, 48] = mul %new, 0.1:f32
    %next: f32[64, 48] = sub %w, %step
    return %next, %new
  })") == "mul_dot_add_mul_sub");
  // The other half is made behind it.
  CHECK(kernels(R"(func @f(%x: f32[64, 32], %w: f32[32, 48], %r: f32[64, 48]) -> f32[64, 48] {
    %p: f32[64, 48] = dot %x, %w {lhs=[1], rhs=[0]}
    %e: f32[64, 48] = exp %r
    %y: f32[64, 48] = mul %p, %e
    return %y
  })") == "dot_exp_mul");
}

TEST_CASE("what a product reads is not done to its sums") {
  CHECK(kernels(R"(func @f(%x: f32[64, 64], %w: f32[64, 64]) -> f32[64, 64] {
    %e: f32[64, 64] = exp %x
    %p: f32[64, 64] = dot %e, %w {lhs=[1], rhs=[0]}
    %y: f32[64, 64] = add %p, %e
    return %y
  })") == "exp, dot_add");
  CHECK(kernels(R"(func @f(%x: f32[64, 64], %w: f32[64, 64]) -> f32[64, 64] {
    %p: f32[64, 64] = dot %x, %w {lhs=[1], rhs=[0]}
    %e: f32[64, 64] = exp %p
    %q: f32[64, 64] = dot %e, %w {lhs=[1], rhs=[0]}
    %y: f32[64, 64] = add %p, %q
    return %y
  })") == "dot_exp, dot_add");
}

TEST_CASE("a product of one column keeps its kernel to itself") {
  CHECK(kernels(R"(func @f(%x: f32[64, 32], %w: f32[32, 1], %b: f32[64, 1]) -> f32[64, 1] {
    %p: f32[64, 1] = dot %x, %w {lhs=[1], rhs=[0]}
    %y: f32[64, 1] = add %p, %b
    return %y
  })") == "dot, add");
}
