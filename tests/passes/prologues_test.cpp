// Which elementwise work a product on a GPU does where it fills its tiles: what nobody else reads, and costs less to
// make for every tile that reads it than to store; and that a result of what follows takes an operand's place.
#include <doctest/doctest.h>

#include "ir/op.h"
#include "ir/ops/attrs.h"
#include "ir/text.h"
#include "passes/pipeline.h"

using namespace sheaf;
using namespace sheaf::ir;

namespace {

passes::Plan plan_of(const std::string& text, const std::string& gpu = "sm_80") {
  const auto module = parse(text);
  REQUIRE_MESSAGE(module.ok(), std::string(module.status().message()));
  return passes::run_pipeline(module->functions[0], {.target = {gpu}});
}

/// The names of its kernels, in their order.
std::string kernels(const std::string& text, const std::string& gpu = "sm_80") {
  std::string all;
  const passes::Plan plan = plan_of(text, gpu);
  for (const Eqn* e : plan.function->eqns())
    if (e->op == &ops::kernel) all += (all.empty() ? "" : ", ") + e->attrs<ops::Kernel>().name;
  return all;
}

/// Weights in 8 bits with a scale for each column, and `rows` rows.
std::string dequantised(int rows) {
  const std::string m = std::to_string(rows);
  return "func @f(%x: bf16[" + m + ", 4096], %w: i8[4096, 4096], %s: bf16[4096]) -> bf16[" + m + R"(, 4096] {
    %wide: bf16[4096, 4096] = convert %w {to=bf16}
    %each: bf16[4096, 4096] = broadcast %s {shape=[4096, 4096], dims=[1]}
    %scaled: bf16[4096, 4096] = mul %wide, %each
    %r: bf16[)" +
         m + R"(, 4096] = dot %x, %scaled {lhs=[1], rhs=[0]}
    return %r
  })";
}

}  // namespace

TEST_CASE("weights that few rows read are made where they are read") {
  CHECK(kernels(dequantised(8)) == "convert_mul_dot");
  CHECK(kernels(dequantised(8), "sm_90a") == "convert_mul_dot");
  CHECK(kernels(dequantised(8), "sm_75") == "convert_mul_dot");
  CHECK(kernels(dequantised(8), "") == "convert_mul, dot");
}

TEST_CASE("a large product is the library's, or copies tensors, and finds its operands stored") {
  CHECK(kernels(dequantised(1024)) == "convert_mul, dot");
}

TEST_CASE("a product of fewer terms than the library is asked for keeps what follows it, however large it is") {
  const auto with = [](const std::string& terms) {
    return "func @f(%x: f32[4096, " + terms + "], %w: f32[" + terms + R"(, 4096], %y: f32[4096, 4096]) -> f32[4096, 4096] {
    %r: f32[4096, 4096] = dot %x, %w {lhs=[1], rhs=[0]}
    %s: f32[4096, 4096] = add %r, %y
    return %s
  })";
  };
  CHECK(kernels(with("16")) == "dot_add");
  CHECK(kernels(with("64")) == "dot, add");
}

TEST_CASE("what many tiles read is made once if making it is work") {
  const auto with = [](const std::string& rows) {
    return "func @f(%x: f32[" + rows + ", 8192], %w: f32[8192, 8192]) -> f32[" + rows + R"(, 8192] {
    %y: f32[)" +
           rows + R"(, 8192] = tanh %x
    %r: f32[)" +
           rows + R"(, 8192] = dot %y, %w {lhs=[1], rhs=[0]}
    return %r
  })";
  };
  CHECK(kernels(with("32")) == "tanh, dot");
  CHECK(kernels(with("2")) == "tanh_dot");
}

TEST_CASE("what others read as well, or the program returns, is stored") {
  CHECK(kernels(R"(func @f(%x: f32[64, 64], %w: f32[64, 64]) -> f32[64, 64], f32[64, 64] {
    %y: f32[64, 64] = mul %x, %x
    %r: f32[64, 64] = dot %y, %w {lhs=[1], rhs=[0]}
    return %r, %y
  })") == "mul, dot");
  CHECK(kernels(R"(func @f(%x: f32[64, 64], %w: f32[64, 64]) -> f32[64, 64], f32[64] {
    %y: f32[64, 64] = mul %x, %x
    %r: f32[64, 64] = dot %y, %w {lhs=[1], rhs=[0]}
    %s: f32[64] = reduce %y {kind=sum, dims=[1]}
    return %r, %s
  })") == "mul_reduce, dot");
}

TEST_CASE("both operands, views of what is made, and what follows are one kernel") {
  const std::string all = kernels(R"(func @f(%x: f32[64, 32], %w: f32[64, 48], %b: f32[32, 48]) -> f32[32, 48] {
    %y: f32[64, 32] = mul %x, %x
    %t: f32[32, 64] = transpose %y {perm=[1, 0]}
    %v: f32[64, 48] = neg %w
    %p: f32[32, 48] = dot %t, %v {lhs=[1], rhs=[0]}
    %r: f32[32, 48] = add %p, %b
    return %r
  })");
  CAPTURE(all);
  CHECK(all.find(',') == std::string::npos);
}

TEST_CASE("an operand is made of what lies in no strides, and with a border, without a copy") {
  CHECK(kernels(R"(func @f(%x: f32[6, 8], %w: f32[16, 4], %z: f32[]) -> f32[5, 4] {
    %p: f32[8, 10] = pad %x, %z {low=[1, 1], high=[1, 1], interior=[0, 0]}
    %y: f32[5, 16] = reshape %p {shape=[5, 16]}
    %r: f32[5, 4] = dot %y, %w {lhs=[1], rhs=[0]}
    return %r
  })") == "pad_reshape_dot");
}

TEST_CASE("what follows a product takes the place of a residual that dies there, but not the product itself") {
  const auto in_place = [](const std::string& summed) {
    const passes::Plan plan = plan_of(R"(func @f(%x: f32[64, 64], %w: f32[64, 64]) -> f32[64], f32[64] {
      %e: f32[64, 64] = exp %x
      %s: f32[64] = reduce %e {kind=sum, dims=[1]}
      %m: f32[64, 64] = broadcast %s {shape=[64, 64], dims=[0]}
      %y: f32[64, 64] = div %e, %m
      %z: f32[64, 64] = dot %y, %w {lhs=[1], rhs=[0]}
      %p: f32[64, 64] = dot %z, %w {lhs=[1], rhs=[0]}
      %q: f32[64, 64] = add %p, %y
      %a: f32[64] = reduce %q {kind=sum, dims=[0]}
      %b: f32[64] = reduce )" + summed +
                                      R"( {kind=sum, dims=[1]}
      return %a, %b
    })");
    std::string last;
    for (const Eqn* e : plan.function->eqns())
      if (e->op == &ops::kernel && e->attrs<ops::Kernel>().schedule == Schedule::contract)
        last = sheaf::to_string(e->attrs<ops::Kernel>().in_place);
    return last;
  };
  CHECK(in_place("%q") == "[1]");
  CHECK(in_place("%p") == "[-1, 1]");
}
