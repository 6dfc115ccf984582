// Steps that are launched together: neighbours that are independent, in their values and in the memory they lie in.
#include "codegen/together.h"

#include <doctest/doctest.h>

#include "codegen/lower.h"
#include "ir/text.h"
#include "passes/pipeline.h"

using namespace sheaf;

namespace {

/// How many steps each launch has, in the order of the program.
std::string launches(const std::string& text, std::vector<bool> donated = {}) {
  const auto module = ir::parse(text);
  REQUIRE_MESSAGE(module.ok(), std::string(module.status().message()));
  const codegen::Program p =
      codegen::lower(passes::run_pipeline(module->functions[0], {.donated = std::move(donated)}));
  std::string all;
  int steps = 0;
  for (const codegen::Step& step : p.steps) {
    ++steps;
    if (step.joins_next) continue;
    all += (all.empty() ? "" : " ") + std::to_string(steps);
    steps = 0;
  }
  return all;
}

}  // namespace

TEST_CASE("updates of arrays of different shapes are one launch, in place of the old ones too") {
  const std::string text =
      R"(func @f(%a: f32[10, 20], %b: f32[30], %c: f32[7], %da: f32[10, 20], %db: f32[30], %dc: f32[7]) -> f32[10, 20], f32[30], f32[7] {
    %0: f32[10, 20] = sub %a, %da
    %1: f32[30] = sub %b, %db
    %2: f32[7] = sub %c, %dc
    return %0, %1, %2
  })";
  CHECK(launches(text) == "3");
  CHECK(launches(text, {true, true, true, false, false, false}) == "3");
}

TEST_CASE("a step that reads what another makes waits for it") {
  CHECK(launches(R"(func @f(%a: f32[20000, 2], %b: f32[30]) -> f32[], f32[30], f32[2, 20000] {
    %t: f32[2, 20000] = transpose %a {perm=[1, 0]}
    %e: f32[30] = exp %b
    %s: f32[] = reduce %t {kind=sum, dims=[0, 1]}
    %all: f32[30] = broadcast %s {shape=[30], dims=[]}
    %y: f32[30] = mul %e, %all
    return %s, %y, %t
  })")
            .find(' ') != std::string::npos);
}

TEST_CASE("a step that takes the place of what another reads is launched after it") {
  // %b's update writes over it where it is donated.
  const std::string text = R"(func @f(%a: f32[40], %b: f32[20]) -> f32[40], f32[20] {
    %all: f32[40] = concatenate %b, %b {dim=[0]}
    %0: f32[40] = mul %a, %all
    %1: f32[20] = exp %b
    return %0, %1
  })";
  CHECK(launches(text) == "2");
  CHECK(launches(text, {false, true}) == "1 1");
}

TEST_CASE("products and what the host does are launched alone") {
  CHECK(launches(R"(func @f(%a: f32[8, 8], %b: f32[8, 8], %c: f32[9]) -> f32[8, 8], f32[8, 8], f32[9] {
    %0: f32[8, 8] = dot %a, %b {lhs=[1], rhs=[0]}
    %1: f32[8, 8] = dot %b, %a {lhs=[1], rhs=[0]}
    %2: f32[9] = exp %c
    return %0, %1, %2
  })") == "1 1 1");
}
