// Collectives under way while other steps run: what is begun early and awaited where, and that values, errors and
// memory are as if nothing was.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <random>

#include "ir/eval_spmd.h"
#include "tests/runtime/spmd.h"

using namespace sheaf;
using namespace sheaf::tests;
using ir::FunctionRef;
using ir::Literal;
using ir::Literals;

namespace {

/// The steps of a program: k a kernel, C a collective that is waited for at once, B one that is begun, A an await.
std::string order(std::span<const codegen::Step> steps) {
  std::string s;
  for (const codegen::Step& step : steps) {
    if (!step.control) {
      s += 'k';
    } else if (const auto* what = std::get_if<codegen::Collective>(&step.control->what)) {
      s += what->waits ? 'C' : 'B';
    } else if (std::holds_alternative<codegen::Await>(step.control->what)) {
      s += 'A';
    } else if (const auto* loop = std::get_if<codegen::Loop>(&step.control->what)) {
      s += fmt::format("{{{}}}", order(loop->body));
    }
  }
  return s;
}

/// The order of the program's steps, having checked its values against the reference.
std::string order_of(const std::string& body) {
  const FunctionRef f = parsed("mesh @m = [x=2, y=2]\nfunc @f" + body);
  const runtime::ExecutablePtr executable = load_local(f);
  const std::vector<Literals> inputs = inputs_of(f), expected = ir::eval_spmd(f, inputs);
  const PerDevice on_devices = to_devices(inputs);
  for (int run = 0; run < (is_on_gpus() ? 2 : 20); ++run) CHECK(to_host(start(executable, on_devices), *f) == expected);
  return order(executable->program().steps);
}

}  // namespace

TEST_CASE("a collective is begun where it stands and awaited where its result is read") {
  CHECK(order_of(R"((%a: f32[8, 8], %b: f32[8, 8]) -> f32[8, 8], f32[8, 8], f32[8, 8] on @m {
  %0: f32[8, 8] = all_reduce %a {axes=[x]}
  %1: f32[8, 8] = dot %b, %b {lhs=[1], rhs=[0]}
  %2: f32[8, 8] = neg %0
  return %0, %1, %2
})") == "BkAk");
}

TEST_CASE("what is next reads it, or is nothing: then it is waited for at once") {
  CHECK(order_of(R"((%a: f32[8]) -> f32[8] on @m {
  %0: f32[8] = all_reduce %a {axes=[x]}
  return %0
})") == "C");
  CHECK(order_of(R"((%a: f32[8]) -> f32[8] on @m {
  %0: f32[8] = all_reduce %a {axes=[x]}
  %1: f32[8] = neg %0
  return %1
})") == "Ck");
}

TEST_CASE("one collective of a kind is under way over one set of axes, of several kinds or over several sets several") {
  CHECK(order_of(R"((%a: f32[8, 8], %b: f32[8, 8]) -> f32[8, 8], f32[8, 8], f32[8, 8], f32[16, 8] on @m {
  %0: f32[8, 8] = all_reduce %a {axes=[x]}
  %1: f32[8, 8] = all_reduce %b {axes=[y]}
  %2: f32[8, 8] = dot %b, %b {lhs=[1], rhs=[0]}
  %3: f32[16, 8] = all_gather %b {axes=[x], size=2, dim=0, tiled=true}
  return %0, %1, %2, %3
})") == "BBBkAAA");
  CHECK(order_of(R"((%a: f32[8, 8], %b: f32[8, 8]) -> f32[8, 8], f32[8, 8], f32[8, 8] on @m {
  %0: f32[8, 8] = all_reduce %a {axes=[x]}
  %1: f32[8, 8] = all_reduce %b {axes=[x]}
  %2: f32[8, 8] = dot %b, %b {lhs=[1], rhs=[0]}
  return %0, %1, %2
})") == "CBkA");
}

TEST_CASE("of what is passed on along one axis four are under way") {
  std::string body;
  const char* const pairs[] = {"[0], targets=[0]", "[0], targets=[1]", "[1], targets=[0]", "[1], targets=[1]",
                               "[0, 1], targets=[1, 0]"};
  for (int k = 0; k < 5; ++k)
    body += fmt::format("  %{}: f32[8] = ppermute %a {{axes=[x], sources={}}}\n", k, pairs[k]);
  CHECK(order_of("(%a: f32[8], %b: f32[8, 8]) -> f32[8], f32[8], f32[8], f32[8], f32[8], f32[8, 8] on @m {\n" + body +
                 R"(  %5: f32[8, 8] = dot %b, %b {lhs=[1], rhs=[0]}
  return %0, %1, %2, %3, %4, %5
})") == "BBBBABkAAAA");
}

TEST_CASE("what is begun in a step of a loop is done at the step's end") {
  CHECK(order_of(R"((%a: f32[8, 8], %b: f32[5, 8, 8]) -> f32[8, 8], f32[5, 8, 8] on @m {
  %0: f32[8, 8], %1: f32[5, 8, 8] = scan %a, %b {carry=1, length=5} (%c: f32[8, 8], %v: f32[8, 8]) {
    %2: f32[8, 8] = all_reduce %v {axes=[x, y]}
    %3: f32[8, 8] = dot %c, %v {lhs=[1], rhs=[0]}
    %4: f32[8, 8] = min %3, 9.0:f32
    return %2, %4
  }
  return %0, %1
})")
            .find("B") != std::string::npos);
}

TEST_CASE("what a collective reads is not written over while it is under way") {
  // %1 is read last by the all_reduce, and the products need room.
  const std::string steps = order_of(R"((%a: f32[64, 64], %b: f32[64, 64]) -> f32[64, 64], f32[64, 64] on @m {
  %0: f32[64, 64] = dot %a, %b {lhs=[1], rhs=[0]}
  %1: f32[64, 64] = min %0, 5.0:f32
  %2: f32[64, 64] = all_reduce %1 {axes=[x, y]}
  %3: f32[64, 64] = dot %b, %b {lhs=[1], rhs=[0]}
  %4: f32[64, 64] = min %3, 3.0:f32
  %5: f32[64, 64] = dot %4, %b {lhs=[1], rhs=[0]}
  %6: f32[64, 64] = min %5, 2.0:f32
  %7: f32[64, 64] = dot %6, %a {lhs=[1], rhs=[0]}
  %8: f32[64, 64] = add %2, %2
  return %8, %7
})");
  CHECK(steps.find_first_of("CB") != std::string::npos);
}

namespace {

/// A body of `steps` steps, each of one or two earlier values: products, sums, and collectives over one axis or both.
/// All values are small integers.
std::string random_body(std::mt19937& bits, int steps) {
  std::string body;
  const auto pick = [&](int among) { return fmt::format("%v{}", bits() % static_cast<unsigned>(among)); };
  const char* const kAxes[] = {"x", "y", "x, y"};
  for (int k = 2; k < steps + 2; ++k) {
    const std::string axes = kAxes[bits() % 3], one = axes.substr(0, 1);
    std::string made;
    switch (bits() % 6) {
      case 0: made = fmt::format("dot {}, {} {{lhs=[1], rhs=[0]}}", pick(k), pick(k)); break;
      case 1: made = fmt::format("add {}, {}", pick(k), pick(k)); break;
      case 2: made = fmt::format("all_reduce {} {{axes=[{}]}}", pick(k), axes); break;
      case 3: made = fmt::format("all_reduce {} {{axes=[{}], kind=max}}", pick(k), axes); break;
      case 4: made = fmt::format("ppermute {} {{axes=[{}], sources=[0, 1], targets=[1, 0]}}", pick(k), one); break;
      default: made = fmt::format("all_to_all {} {{axes=[{}], size=2, split=0, concat=0, tiled=true}}", pick(k), one);
    }
    body += fmt::format("  %r{}: f32[8, 8] = {}\n  %v{}: f32[8, 8] = clamp -3.0:f32, %r{}, 3.0:f32\n", k, made, k, k);
  }
  return body;
}

}  // namespace

TEST_CASE("whatever the order, values are those of the reference, with steps of loops and with several ways at once") {
  std::mt19937 bits(5);
  int under_way = 0;
  const int programs = is_on_gpus() ? 6 : 40;  // each is compiled there
  for (int program = 0; program < programs; ++program) {
    const int steps = 4 + static_cast<int>(bits() % 12);
    const std::string body = random_body(bits, steps), last = fmt::format("%v{}, %v{}", steps, steps + 1);
    INFO(body);
    under_way += order_of(fmt::format(R"((%v0: f32[8, 8], %v1: f32[8, 8]) -> f32[8, 8], f32[8, 8] on @m {{
{}  return {}
}})",
                                      body, last))
                     .find('B') != std::string::npos;
    under_way += order_of(fmt::format(
                              R"((%a: f32[8, 8], %b: f32[8, 8]) -> f32[8, 8], f32[8, 8] on @m {{
  %0: f32[8, 8], %1: f32[8, 8] = scan %a, %b {{carry=2, length=3}} (%v0: f32[8, 8], %v1: f32[8, 8]) {{
{}  return {}
  }}
  return %0, %1
}})",
                              body, last))
                     .find('B') != std::string::npos;
  }
  CHECK(under_way > programs);
}

TEST_CASE("a device that fails while a collective is under way ends the run") {
  const FunctionRef f = parsed(R"(mesh @m = [x=2, y=2]
func @f(%a: f32[8, 8], %b: f32[8, 8], %ok: bool[]) -> f32[8, 8], f32[8, 8], token[] on @m {
  %0: f32[8, 8] = all_reduce %a {axes=[x, y]}
  %1: f32[8, 8] = dot %b, %b {lhs=[1], rhs=[0]}
  %2: token[] = check %ok {message="is fine"}  loc(model.cpp:7)
  return %0, %1, %2
}
)");
  const runtime::ExecutablePtr executable = load_local(f);
  std::vector<Literals> inputs = inputs_of(f);
  for (Literals& of_device : inputs) of_device[2] = Literal::scalar(DType::bool_, 1);
  inputs[2][2] = Literal::scalar(DType::bool_, 0);
  for (int run = 0; run < 20; ++run) {
    const PerDevice outputs = start(executable, to_devices(inputs));
    CHECK(outputs[0][0]->wait().message() == of_platform("cpu:2 failed: model.cpp:7: check failed: is fine"));
  }
}
