// The exact texts of errors: the user's line, what is wrong, both sides, and the names the user gave.
#include <doctest/doctest.h>

#include <functional>
#include <string>

#include "sheaf/sheaf.h"
#include "tests/message.h"

using namespace sheaf;
using sheaf::tests::message_of;

namespace {

struct Layer {
  Array W, b;
};
struct Model {
  Layer in, out;
};

Model model() { return {{zeros({784, 256}), zeros({256})}, {zeros({512, 10}), zeros({10})}}; }

}  // namespace

TEST_CASE("a wrong product inside jit names the operands as the user does") {
  std::string text;
  const int base = __LINE__;
  auto step = jit([](Model m, Array x) { return dot(x, m.out.W); }, {.name = "step", .args = {"m", "x"}});
  text = message_of<ShapeError>([&] { step(model(), zeros({64, 784})); }, base);
  CHECK(text ==
        "HERE+1: dot: lhs dim 1 (784) and rhs dim 0 (512) must match\n"
        "  lhs x: f32[64, 784]   (argument 1 of jit step, HERE+1)\n"
        "  rhs m.out.W: f32[512, 10]   (argument 0)");
}

TEST_CASE("without names an argument is known by position and path") {
  std::string text;
  const int base = __LINE__;
  auto step = jit([](Model m, Array x) { return x + m.in.b; });
  text = message_of<ShapeError>([&] { step(model(), zeros({64, 784})); }, base);
  CHECK(text ==
        "HERE+1: add: shapes [64, 784] and [256] cannot be broadcast together\n"
        "  lhs: f32[64, 784]   (argument 1 of jit, HERE+1)\n"
        "  rhs .in.b: f32[256]   (argument 0)");
}

TEST_CASE("eager errors name the lines that made the operands") {
  std::string text;
  const int base = __LINE__;
  const Array x = zeros({3});
  const Array y = ones({4});
  text = message_of<ShapeError>([&] { x* y; }, base);
  CHECK(text ==
        "HERE+3: mul: shapes [3] and [4] cannot be broadcast together\n"
        "  lhs: f32[3]   (made at HERE+1)\n"
        "  rhs: f32[4]   (made at HERE+2)");
}

TEST_CASE("a traced value has no bool") {
  std::string text;
  const int base = __LINE__;
  auto f = jit([](Array x) { return x > 0 ? x : -x; }, {.name = "f"});
  text = message_of<TracedBoolError>([&] { f(1.0f); }, base);
  CHECK(
      text ==
      "HERE+1: a traced value has no bool: bool[] made at HERE+1 while tracing jit f, HERE+1. Its value is not known while "
      "tracing: use where(condition, a, b)");
}

TEST_CASE("a traced value is no number") {
  std::string text;
  const int base = __LINE__;
  auto f = jit([](Array x) { return zeros({x.item<int>()}); }, {.name = "f"});
  text = message_of<TracedBoolError>([&] { f(3); }, base);
  CHECK(
      text ==
      "HERE+1: a traced value has no number: i32[] made at HERE+1 while tracing jit f, HERE+1. It has a value only when the "
      "compiled function runs: return it, and read it outside");
}

TEST_CASE("a traced value used after its trace names the line that made it") {
  std::string text;
  const int base = __LINE__;
  Array leaked;
  auto f = jit([&](Array x) { return leaked = x * 2; }, {.name = "f"});
  f(ones({2}));
  text = message_of<LeakedTracerError>([&] { leaked + 1; }, base);
  CHECK(
      text ==
      "HERE+4: a traced value is used after its trace ended: f32[2] made at HERE+2 while tracing jit f, HERE+2. Return it from "
      "the traced function instead of storing it elsewhere");
  CHECK(sum(ones({3})).item<float>() == 3);  // and nothing is left behind
}

TEST_CASE("an exception from user code leaves no trace open") {
  auto f = jit([](Array x) -> Array {
    throw std::runtime_error("mine");
    return x;
  });
  CHECK_THROWS_WITH(f(1.0), "mine");
  CHECK(sum(ones({3})).item<float>() == 3);
}

TEST_CASE("grad says what it needs of the value and of the arguments") {
  std::string text;
  const int base = __LINE__;
  text = message_of<ShapeError>([&] { grad([](Array x) { return x * 2; })(ones({3})); }, base);
  CHECK(text == "HERE+1: grad: the function must return a scalar, not f32[3]; reduce it with sum() or mean()");
  text = message_of<TypeError>([&] { grad([](Layer p) { return sum(p.W); })({ones({3}), arange(3)}); }, base);
  CHECK(text ==
        "HERE+3: grad: argument 0 .b is i32[3]; only floats have gradients. Pass it in an argument that is not "
        "differentiated, or give grad {.allow_int = true}, which makes its gradient zero");
}

TEST_CASE("vmap lists every mapped argument with its size") {
  std::string text;
  const int base = __LINE__;
  auto f = [](Layer p, Array x) { return p.W + x; };
  text = message_of<ShapeError>([&] { vmap(f)({ones({3}), ones({3})}, ones({4})); }, base);
  CHECK(text ==
        "HERE+2: vmap: the mapped axes must have the same size\n"
        "  argument 0 .W: f32[3], axis 0, size 3\n"
        "  argument 0 .b: f32[3], axis 0, size 3\n"
        "  argument 1: f32[4], axis 0, size 4");
  text = message_of<ShapeError>([&] { vmap(sheaf::sin, {.in = {1}})(ones({4})); }, base);
  CHECK(text == "HERE+8: vmap: argument 0 is f32[4] and has no axis 1 to map");
}

TEST_CASE("axes, shapes and dtypes out of range are refused with the operand") {
  std::string text;
  const int base = __LINE__;
  const Array x = zeros({2, 3});
  text = message_of<ShapeError>([&] { sum(x, {.axes = {2}}); }, base);
  CHECK(text == "HERE+2: sum: axis 2 is out of range for rank 2\n  operand: f32[2, 3]   (made at HERE+1)");
  text = message_of<ShapeError>([&] { reshape(x, {4, -1}); }, base);
  CHECK(text == "HERE+4: reshape: 6 elements do not fill the shape [4, -1]\n  operand: f32[2, 3]   (made at HERE+1)");
  text = message_of<ShapeError>([&] { x[2]; }, base);
  CHECK(text ==
        "HERE+6: index: index 2 is out of range for axis 0 of extent 2\n  operand: f32[2, 3]   (made at HERE+1)");
  text = message_of<ShapeError>([&] { x(0, 3); }, base);
  CHECK(text ==
        "HERE+9: index: index 3 is out of range for axis 1 of extent 3\n  operand: f32[2, 3]   (made at HERE+1)");
  text = message_of<TypeError>([&] { x & 1; }, base);
  CHECK(text == "HERE+12: and: takes bool or an integer, not f32\n  lhs: f32[2, 3]   (made at HERE+1)");
  text = message_of<TypeError>([&] { Array() + 1; }, base);
  CHECK(text == "HERE+14: an Array that was never given a value is used");
  text = message_of<TypeError>([&] { jit([](Layer p, Array y) { return p.W + y; })({x, Array()}, x); }, base);
  CHECK(text == "HERE+16: argument 0 .b was never given a value");
}

TEST_CASE("an array that no machine has room for is out of memory on the line that asks for it") {
  std::string text;
  const int base = __LINE__;
  text = message_of<RuntimeError>([&] { zeros({std::int64_t{1} << 40}); }, base);
  CHECK(text.starts_with("HERE+1: out of memory: 4096.0 GiB asked at HERE+1; "));
}

TEST_CASE("an impure function is rejected with the first operation that differs") {
  if (const char* on = std::getenv("SHEAF_CHECK_PURE"); !on || *on != '1') return;
  std::string text;
  const int base = __LINE__;
  int calls = 0;
  auto f = jit([&](Array x) { return ++calls % 2 ? sin(x) : cos(x); }, {.name = "f"});
  text = message_of<PurityError>([&] { f(1.0); }, base);
  CHECK(
      text ==
      "HERE+2: jit f: tracing it twice gave two programs; the first difference is sin at HERE+2. A traced function must depend "
      "on its arguments alone, not on counters, clocks, host random numbers or other changing state");
}
