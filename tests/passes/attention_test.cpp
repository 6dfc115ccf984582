// The loops over blocks that attention and its derivatives become: the values of the definition, and memory that does
// not grow with queries times keys.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cmath>

#include "codegen/lower.h"
#include "ir/ops/attrs.h"
#include "ir/sample.h"
#include "ir/schedule.h"
#include "ir/text.h"
#include "passes/pipeline.h"
#include "passes/transforms.h"
#include "tests/ir/one_op.h"

using namespace sheaf;
using namespace sheaf::ir;

namespace {

FunctionRef function_of(const std::string& sample) {
  const auto s = parse_sample(sample);
  REQUIRE_MESSAGE(s.ok(), std::string(s.status().message()));
  return s->function;
}

std::int64_t count_of(const Function& f, Op op) {
  std::int64_t n = 0;
  for (const Eqn* e : f.eqns()) {
    n += e->op == op;
    for (const FunctionRef& r : e->regions) n += count_of(*r, op);
  }
  return n;
}

/// Of all loops, an inner one's for each step of the outer; 0: there are none.
std::int64_t steps_of(const Function& f) {
  std::int64_t n = 0;
  for (const Eqn* e : f.eqns())
    if (e->op == &ops::scan) n += e->attrs<ops::Scan>().length * std::max<std::int64_t>(steps_of(*e->regions[0]), 1);
  return n;
}

void check_blocks(const std::string& sample, std::int64_t steps) {
  INFO("sample: ", sample);
  const FunctionRef f = function_of(sample), blocks = passes::expand_ops(f);
  CHECK(steps_of(*blocks) == steps);
  const Literals in = random_inputs(*f, 3), want = ir::eval(*f, in), got = ir::eval(*blocks, in);
  for (std::size_t j = 0; j < want.size(); ++j) {
    REQUIRE(got[j].type() == want[j].type());
    double largest = 0;
    for (std::int64_t i = 0; i < want[j].size(); ++i)
      if (!std::isinf(want[j].get(i))) largest = std::max(largest, std::abs(want[j].get(i)));
    for (std::int64_t i = 0; i < want[j].size(); ++i) {
      const double g = got[j].get(i), w = want[j].get(i);
      if (g == w) continue;
      CHECK_MESSAGE(std::abs(g - w) <= 1e-13 * largest, "result ", j, " element ", i, ": ", g, " for ", w);
    }
  }
}

/// Bytes a program holds besides its operands and results.
std::int64_t arena_bytes(const FunctionRef& f) { return codegen::lower(passes::run_pipeline(f)).arena_bytes; }

}  // namespace

TEST_CASE("blocks of queries and keys give what the definition does, with ragged ends padded and masked") {
  check_blocks("attention f64[40, 2, 3], f64[300, 2, 3], f64[300, 2, 2] {scale=0.5}", 2);
  check_blocks("attention f64[130, 32, 1], f64[270, 16, 1], f64[270, 16, 1] {scale=0.5}", 2);
  check_blocks("attention f64[1030, 1, 1], f64[5, 1, 1], f64[5, 1, 1]", 5);
  check_blocks("attention f64[40, 1, 2], f64[30, 1, 2], f64[30, 1, 2]", 0);
}

TEST_CASE("blocks that causality or a window masks as a whole are not visited") {
  check_blocks("attention f64[300, 2, 1], f64[300, 2, 1], f64[300, 2, 1] {after=0}", 6);
  check_blocks("attention f64[300, 2, 1], f64[600, 2, 1], f64[600, 2, 1] {before=10, after=10}", 5);
  check_blocks("attention f64[300, 2, 1], f64[600, 2, 1], f64[600, 2, 1] {before=1000}", 15);
}

TEST_CASE("a window wider than all queries and keys leaves out nothing, however wide") {
  const std::string operands = "f64[200, 1, 1], f64[300, 1, 1], f64[300, 1, 1]";
  const FunctionRef all = function_of("attention " + operands);
  const Literals in = random_inputs(*all, 3), want = ir::eval(*all, in);
  for (const char* width : {"300", "2147483647", "4294967296", "9223372036854775807"}) {
    const std::string window = fmt::format(" {{before={}, after={}}}", width, width);
    CHECK(ir::eval(*function_of("attention " + operands + window), in)[0] == want[0]);
    check_blocks("attention " + operands + window, 6);
    check_blocks("attention_tangent " + operands + ", f64[1, 200], " + operands + window, 6);
    check_blocks("attention_backward " + operands + ", f64[1, 200], f64[200, 1, 1], f64[1, 200]" + window, 6);
  }
}

TEST_CASE("beside infinities a weight of 0 gives NaN where its block is read, and a block that is not gives none") {
  const std::string operands = "f64[300, 1, 1], f64[300, 1, 1], f64[300, 1, 1]";
  const std::vector<std::string> samples{
      "attention " + operands, "attention_tangent " + operands + ", f64[1, 300], " + operands,
      "attention_backward " + operands + ", f64[1, 300], f64[300, 1, 1], f64[1, 300]"};
  for (const std::string& sample : samples) {
    const FunctionRef f = function_of(sample + " {after=0}"), blocks = passes::expand_ops(f);
    Literals in = random_inputs(*f, 3);
    in[2].set(250, kInf);
    const Literals want = ir::eval(*f, in), got = ir::eval(*blocks, in);
    for (std::size_t j = 0; j < want.size(); ++j)
      for (std::int64_t i = 0; i < want[j].size(); ++i)
        CHECK_MESSAGE(std::isnan(got[j].get(i)) == std::isnan(want[j].get(i)), sample, " result ", j, " element ", i);
    CHECK(std::isfinite(want[0].get(199)));
    CHECK(std::isnan(want[0].get(200)));
  }
}

TEST_CASE("a bias and a mask are cut where they have more than one element") {
  const std::string operands = "attention f64[2, 140, 4, 1], f64[2, 300, 2, 1], f64[2, 300, 2, 1], ";
  for (const char* dims : {"[2, 4, 140, 300]", "[1, 4, 1, 300]", "[2, 1, 140, 1]", "[1, 1, 1, 1]", "[1, 1, 140, 300]"})
    check_blocks(operands + "f64" + dims + ", bool" + dims + " {scale=0.5, bias=true, mask=true, after=100}", 5);
}

TEST_CASE("a large batch is taken in parts, one after the other") {
  check_blocks("attention f64[6, 40, 16, 1], f64[6, 300, 16, 1], f64[6, 300, 16, 1]", 6 * 2);
  check_blocks("attention f64[2, 2, 130, 16, 1], f64[2, 2, 40, 16, 1], f64[2, 2, 40, 16, 1]", 2);
  check_blocks("attention f64[8, 130, 4, 1], f64[8, 100, 4, 1], f64[8, 100, 4, 1], f64[1, 4, 130, 100] {bias=true}", 4);
  const std::string operands = "attention f64[3, 130, 16, 1], f64[3, 200, 8, 1], f64[3, 200, 8, 1], ";
  for (const char* dims : {"[3, 1, 130, 200]", "[1, 16, 130, 1]"})
    check_blocks(operands + "f64" + dims + ", bool" + dims + " {scale=0.5, bias=true, mask=true}", 3);
  // Of so many small ones no part would be worth a step.
  check_blocks("attention f64[4099, 2, 1, 1], f64[4099, 65, 1, 1], f64[4099, 65, 1, 1]", 0);
}

TEST_CASE("the derivatives' blocks give what their definitions do") {
  const std::string primals =
      "f64[140, 4, 1], f64[300, 2, 1], f64[300, 2, 2], f64[1, 140, 300], bool[4, 1, 300], f64[4, 140], ";
  const std::string options = " {scale=0.25, after=100, bias=true, mask=true, derives_bias=true}";
  check_blocks(
      "attention_tangent " + primals + "f64[140, 4, 1], f64[300, 2, 1], f64[300, 2, 2], f64[1, 140, 300]" + options, 5);
  check_blocks("attention_backward " + primals + "f64[140, 4, 2], f64[4, 140]" + options, 5);
}

TEST_CASE("the derivatives of a large batch are taken in parts, but for the sum a bias of all needs") {
  const std::string primals = "f64[3, 60, 16, 1], f64[3, 200, 8, 1], f64[3, 200, 8, 1], ";
  const std::string tangents = "f64[3, 60, 16, 1], f64[3, 200, 8, 1], f64[3, 200, 8, 1], ";
  const std::string cotangents = "f64[3, 60, 16, 1], f64[3, 16, 60]";
  const std::string options = " {bias=true, derives_bias=true}";
  for (const auto& [bias, steps] : {std::pair("f64[3, 1, 60, 200]", 3), std::pair("f64[1, 1, 60, 200]", 0)}) {
    check_blocks("attention_tangent " + primals + bias + ", f64[3, 16, 60], " + tangents + bias + options, 3);
    check_blocks("attention_backward " + primals + bias + ", f64[3, 16, 60], " + cotangents + options, steps);
  }
}

TEST_CASE("a step of attention has two products, a step of its gradient five") {
  const FunctionRef f = function_of("attention f32[1024, 8, 64], f32[1024, 8, 64], f32[1024, 8, 64] {after=0}");
  CHECK(count_of(*passes::expand_ops(f), &ops::dot) == 2);
  const passes::Vjp v = passes::vjp(f, {true, true, true});
  CHECK(count_of(*passes::expand_ops(v.backward), &ops::dot) == 5);
}

TEST_CASE("attention over 4096 queries and keys and its gradient never hold all scores") {
  const FunctionRef f =
      function_of("attention f32[4096, 4, 64], f32[4096, 4, 64], f32[4096, 4, 64] {scale=0.125, after=0}");
  constexpr std::int64_t kScores = std::int64_t{4} * 4096 * 4096 * 4, kOperand = std::int64_t{4096} * 4 * 64 * 4;
  CHECK(arena_bytes(f) < 8 * kOperand);
  CHECK(arena_bytes(f) < kScores / 8);
  const passes::Vjp v = passes::vjp(f, {true, true, true});
  CHECK(arena_bytes(v.forward) < kScores / 8);
  CHECK(arena_bytes(v.backward) < 16 * kOperand);
  CHECK(arena_bytes(v.backward) < kScores / 4);
}

TEST_CASE("a target with a kernel of attention keeps the equation, any other gets the loop") {
  const auto kernels = [](const std::string& sample, const std::string& gpu) {
    const passes::Plan plan = passes::run_pipeline(function_of(sample), {.target = {gpu}});
    std::int64_t n = 0;
    for (const Eqn* e : plan.function->eqns())
      n += e->op == &ops::kernel && e->attrs<ops::Kernel>().schedule == Schedule::attention;
    return n;
  };
  const std::string halves = "attention bf16[600, 2, 8], bf16[600, 1, 8], bf16[600, 1, 8] {after=0}";
  CHECK(kernels(halves, "sm_90a") == 1);
  CHECK(kernels(halves, "sm_75") == 0);
  CHECK(kernels(halves, "") == 0);
  CHECK(kernels("attention f32[600, 2, 8], f32[600, 1, 8], f32[600, 1, 8] {after=0}", "sm_90a") == 0);
  CHECK(kernels("attention_backward f16[6, 2, 8], f16[6, 1, 8], f16[6, 1, 8], f32[2, 6], f32[6, 2, 8], f32[2, 6]",
                "sm_90a") == 1);
  CHECK(kernels("attention_tangent bf16[6, 1, 8], bf16[6, 1, 8], bf16[6, 1, 8], f32[1, 6], bf16[6, 1, 8], "
                "bf16[6, 1, 8], bf16[6, 1, 8]",
                "sm_90a") == 0);
}

TEST_CASE("the gradient of an attention of halves reads the cotangent in halves where that is what it was") {
  const FunctionRef f = function_of("attention bf16[60, 2, 8], bf16[60, 1, 8], bf16[60, 1, 8] {after=0}");
  const passes::Vjp v = passes::vjp(f, {true, true, true});
  const passes::Plan plan = passes::run_pipeline(v.backward, {.target = {"sm_90a"}});
  std::int64_t wide = 0;
  for (const Eqn* e : plan.function->eqns())
    for (Value out : e->outs()) wide += out.dtype() == DType::f32 && out.rank() == 3;
  CHECK(wide == 0);
}

TEST_CASE("a cotangent that was in halves is stored wide where a product reads a view of it too") {
  const auto module = parse(
      R"(func @f(%q: bf16[60, 2, 8], %lse: f32[2, 60], %ct: bf16[60, 2, 8], %sum: f32[2, 60], %w: f32[30, 7]) -> bf16[60, 2, 8], bf16[60, 2, 8], bf16[60, 2, 8], f32[2, 8, 7] {
  %0: f32[60, 2, 8] = convert %ct
  %1: bf16[60, 2, 8], %2: bf16[60, 2, 8], %3: bf16[60, 2, 8] = attention_backward %q, %q, %q, %lse, %0, %sum
  %4: f32[30, 2, 8] = slice %0 {start=[3, 0, 0], limit=[33, 2, 8], stride=[1, 1, 1]}
  %5: f32[2, 8, 7] = dot %4, %w {lhs=[0], rhs=[0]}
  return %1, %2, %3, %5
})");
  REQUIRE_MESSAGE(module.ok(), std::string(module.status().message()));
  const Target target{"sm_90a"};
  const passes::Plan plan = passes::run_pipeline(module->functions[0], {.target = target});
  CHECK(codegen::lower(plan, target).kernels.size() == 3);
}

TEST_CASE("attention names the dims, dtypes and attributes it cannot take") {
  const auto refused = [](const std::vector<Type>& types, ops::Attention a = {}) {
    return refusal(ops::attention, types, with(a));
  };
  const Type q(f32, {2, 5, 4, 8}), k(f32, {2, 6, 2, 8});
  CHECK(refused({q, k}) == "takes 3 operands, not 2");
  CHECK(refused({q, k, k}, {.mask = true}) == "takes 4 operands, not 3");
  CHECK(refused({q, k, k, Type(bool_, {2, 4, 5, 6})}, {.bias = true}) == "bias must be floating point, not bool");
  CHECK(refused({q, k, k, Type(c64, {2, 4, 5, 6})}, {.bias = true}) == "bias must be floating point, not c64");
  CHECK(refused({Type(c64, q.dims()), Type(c64, k.dims()), Type(c64, k.dims())}) ==
        "query, key and value must be all f16, bf16, f32 or f64, not c64, c64 and c64");
  CHECK(refused({q, k, k, Type(f32, {2, 4, 5, 6})}, {.mask = true}) == "mask must be bool, not f32");
  CHECK(refused({q, k, Type(f64, k.dims())}) ==
        "query, key and value must be all f16, bf16, f32 or f64, not f32, f32 and f64");
  CHECK(refused({Type(i32, q.dims()), Type(i32, k.dims()), Type(i32, k.dims())}) ==
        "query, key and value must be all f16, bf16, f32 or f64, not i32, i32 and i32");
  const std::string ranks = "query, key and value must all have dims [batch.., length, heads, features], and as many";
  CHECK(refused({Type(f32, {5, 8}), Type(f32, {6, 8}), Type(f32, {6, 8})}) == ranks);
  CHECK(refused({q, Type(f32, {6, 2, 8}), k}) == ranks);
  CHECK(refused({q, Type(f32, {3, 6, 2, 8}), k}) == "query dim 0 (2) and key dim 0 (3) must match");
  CHECK(refused({q, k, Type(f32, {1, 6, 2, 8})}) == "query dim 0 (2) and value dim 0 (1) must match");
  CHECK(refused({q, Type(f32, {2, 6, 2, 7}), k}) == "query dim 3 (8) and key dim 3 (7) must match");
  CHECK(refused({q, k, Type(f32, {2, 7, 2, 8})}) == "key dim 1 (6) and value dim 1 (7) must match");
  CHECK(refused({q, k, Type(f32, {2, 6, 1, 8})}) == "key dim 2 (2) and value dim 2 (1) must match");
  const Type three(f32, {2, 6, 3, 8});
  CHECK(refused({q, three, three}) == "query heads (4) must be a multiple of key heads (3)");
  CHECK(refused({q, k, k, Type(bool_, {5, 6})}, {.mask = true}) ==
        "mask must have the dims [batch.., heads, queries, keys] of [2, 4, 5, 6], or 1, not [5, 6]");
  CHECK(refused({q, k, k, Type(f32, {1, 4, 5, 5})}, {.bias = true}) == "bias dim 3 (5) must be 1 or 6");
  CHECK(refused({q, k, k}, {.before = -2}) == "before=-2 must be at least -1");
  CHECK(refused({q, k, k}, {.after = -3}) == "after=-3 must be at least -1");
  CHECK(refused({q, k, k}, {.derives_bias = true}) == "derives_bias is for derivatives with a bias");
  CHECK(refused({q, k, k}) == "accepted as f32[2, 5, 4, 8]");
}

TEST_CASE("attention's derivatives name the operand that is not of the primal's kind") {
  const Type q(f16, {5, 4, 8}), sums(f32, {4, 5}), wide(f32, {5, 4, 8});
  const auto refused = [](const OpDef& op, const std::vector<Type>& types) {
    return refusal(op, types, with(ops::Attention{}));
  };
  CHECK(refused(ops::attention_tangent, {q, q, q, sums, q, q}) == "takes 7 operands, not 6");
  CHECK(refused(ops::attention_tangent, {q, q, q, sums, q, wide, q}) == "operand 5 must be f16, not f32");
  CHECK(refused(ops::attention_tangent, {q, q, q, Type(f32, {5, 4}), q, q, q}) ==
        "operand 3 must have the shape [4, 5], not [5, 4]");
  CHECK(refused(ops::attention_backward, {q, q, q, sums, wide, sums, sums}) == "takes 6 operands, not 7");
  CHECK(refused(ops::attention_backward, {q, q, q, sums, q, sums}) == "operand 4 must be f32, not f16");
  CHECK(refused(ops::attention_backward, {q, q, q, sums, wide, sums}) == "accepted as f16[5, 4, 8]");
}

TEST_CASE("the scale in the text is any number, and is printed so that it reads back") {
  const std::string operands = "attention f32[2, 1, 2], f32[3, 1, 2], f32[3, 1, 2] ";
  for (const char* scale : {"0.1", "-2.0", "1e-30", "inf", "0.35355339059327373"}) {
    const std::string text = print(function_of(operands + "{scale=" + scale + "}"));
    CHECK(text.find(std::string("{scale=") + scale + "}") != std::string::npos);
  }
  CHECK(parse_sample(operands + "{scale=1.0}")->function->eqns()[0]->attrs<ops::Attention>().scale == 1);
  for (const auto& [given, shown] : {std::pair("[1]", "a list"), std::pair("half", "'half'")}) {
    const std::string message(parse_sample(operands + "{scale=" + given + "}").status().message());
    CHECK(message.find(std::string("attribute 'scale' must be a number, not ") + shown) != std::string::npos);
  }
}
