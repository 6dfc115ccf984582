// Ahead of time: texts, exact costs, memory, what a compiled program accepts, and that it never compiles again.
#include <doctest/doctest.h>

#include "runtime/cache.h"
#include "sheaf/sheaf.h"
#include "tests/message.h"

using namespace sheaf;

namespace {

using V = std::vector<double>;
V values(const Array& x) { return x.to_vector<double>(); }

struct Layer {
  Array W, b;
};
struct Scaled {
  Array x;
  int times;
};

template <class E, class F>
std::string said(F f) {
  try {
    f();
  } catch (const E& e) { return e.what(); }
  return "nothing was thrown";
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("trace, lower and compile give the text of each stage, and a program that is called like the function") {
  auto f = jit([](Layer l, Array x) { return std::pair{tanh(dot(x, l.W) + l.b), x + 0.0}; }, {.name = "layer"});
  const Layer shapes{abstract({3, 2}), abstract({2})};
  const auto traced = f.trace(shapes, abstract({4, 3}));
  CHECK(
      has(traced.text(), "func @layer(%arg0.W: f32[3, 2], %arg0.b: f32[2], %arg1: f32[4, 3]) -> f32[4, 2], f32[4, 3]"));
  const std::pair<Array, Array> results = traced.results();
  CHECK(results.first.shape() == Shape{4, 2});
  CHECK(results.second.dtype() == f32);

  const auto lowered = traced.lower();
  CHECK(has(lowered.text(), " = tanh "));
  CHECK(!has(lowered.text(), "kernel"));
  const auto compiled = lowered.compile();
  CHECK(has(compiled.text(), " = kernel "));
  const Layer l{ones({3, 2}), zeros({2})};
  const Array x = full({4, 3}, 0.5);
  const auto [y, same_x] = compiled(l, x);
  CHECK(all_equal(y, f(l, x).first));
  CHECK(all_equal(same_x, x));
  CHECK(traces(f) == 1);
}

TEST_CASE("what is compiled ahead of time compiles nothing when it is called, nor does the function itself") {
  auto f = jit([](Array x, Array y) { return sum(exp(x) * y - 3.25, {.axes = {1}}); });
  const auto lowered = f.trace(abstract({5, 70}), abstract({5, 70})).lower();
  const std::int64_t before = stats().programs;
  const auto compiled = lowered.compile();
  CHECK(stats().programs == before + 1);
  const Array x = ones({5, 70});
  runtime::KernelCache::global().wait_for_background();  // what other cases have run often
  const Stats after = stats();
  for (int i = 0; i < 20; ++i) compiled(x, x).wait();
  f(x, x).wait();
  CHECK(stats().kernels_compiled == after.kernels_compiled);
  CHECK(stats().kernels_loaded == after.kernels_loaded);
  CHECK(stats().interpreted_launches == after.interpreted_launches);
  CHECK(stats().programs == after.programs);
  CHECK(traces(f) == 1);
}

TEST_CASE("the cost of a product is two operations for each term") {
  const auto lowered =
      jit([](Array a, Array b) { return dot(a, b); }).trace(abstract({8, 32}), abstract({32, 4})).lower();
  for (const aot::Cost& c : {lowered.cost(), lowered.compile().cost()}) {
    CHECK(c.flops == 2 * 8 * 4 * 32);
    CHECK(c.bytes == 4 * (8 * 32 + 32 * 4 + 8 * 4));
    CHECK(c.transcendentals == 0);
  }
}

TEST_CASE("fusion saves the bytes of what stays inside a kernel, and no operation") {
  const auto f = [](Array x, Array y) { return exp(x * y + y) * abs(x); };
  const auto lowered = jit(f).trace(abstract({1000}), abstract({1000})).lower();
  const auto compiled = lowered.compile();
  for (const aot::Cost& c : {lowered.cost(), compiled.cost()}) {
    CHECK(c.flops == 4 * 1000);  // mul, add, abs, mul
    CHECK(c.transcendentals == 1000);
  }
  CHECK(lowered.cost().bytes == 4000 * (3 + 3 + 2 + 2 + 3));
  CHECK(compiled.cost().bytes == 4000 * 3);
}

TEST_CASE("a scan costs its length, a while its bound or one trip, a cond its dearest branch") {
  const auto scanned = [](Array x, Array rows) {
    return scan([](Array c, Array row) { return std::pair{c * row + c, none}; }, x, rows).first;
  };
  CHECK(jit(scanned).trace(abstract({10}), abstract({7, 10})).lower().cost().flops == 7 * 2 * 10);
  CHECK(jit(scanned).trace(abstract({10}), abstract({7, 10})).lower().compile().cost().flops == 7 * 2 * 10);
  const auto until = [](WhileOptions options) {
    return [options](Array x) {
      return while_loop([](Array c) { return c[0] < 9; }, [](Array c) { return c + c; }, x, options);
    };
  };
  CHECK(jit(until({})).trace(abstract({10})).lower().cost().flops == 1 + 10);
  CHECK(jit(until({.max_trips = 5})).trace(abstract({10})).lower().cost().flops == 5 * (1 + 10));
  const auto branched = [](Array p, Array x) {
    return cond(p, [](Array v) { return v; }, [](Array v) { return tanh(v * v); }, x);
  };
  const aot::Cost c = jit(branched).trace(abstract({}, bool_), abstract({10})).lower().cost();
  CHECK(c.transcendentals == 10);
}

TEST_CASE("memory is counted in bytes: arguments with captured arrays, outputs, temporaries, constants, code") {
  const Array captured = ones({100});
  const auto f = jit([=](Array x) { return std::pair{cumsum(sort(x)) + captured, sum(x)}; });
  const aot::Memory m = f.trace(abstract({100})).lower().compile().memory();
  CHECK(m.arguments == 800);
  CHECK(m.outputs == 404);
  CHECK(m.aliased == 0);
  CHECK(m.temporaries >= 400);
  CHECK(m.temporaries % 256 == 0);
  CHECK(m.constants == 0);
  CHECK(m.code > 0);
  const auto donating = jit([](Array x) { return x + 1.0f; }, {.donate = {0}});
  CHECK(donating.trace(abstract({64})).lower().compile().memory().aliased == 256);
}

TEST_CASE("a donated argument of a compiled program is used up") {
  const auto compiled = jit([](Array x) { return x + 1.0f; }, {.donate = {0}}).trace(abstract({64})).lower().compile();
  const Array x = ones({64});
  CHECK(values(compiled(x)) == V(64, 2.0));
  CHECK_THROWS_AS(x.to_vector<float>(), RuntimeError);
}

TEST_CASE("a compiled program names every argument that is not what it was compiled for") {
  const auto compiled = jit([](Layer l, Array s, int n) { return (l.W + l.b) * s * n; }, {.name = "step"})
                            .trace(Layer{abstract({2, 3}), abstract({3})}, abstract({}), 2)
                            .lower()
                            .compile();
  const Layer right{ones({2, 3}), ones({3})}, wrong{ones({2, 4}), ones({3}, f64)};
  CHECK(values(compiled(right, 0.5, 2)) == V(6, 2.0));
  const auto types = [&] { compiled(wrong, array({1}), 2); };
  CHECK(said<TypeError>(types) ==
        "aot_test.cpp:147: compiled jit step: the arguments are not those it was compiled for\n"
        "  argument 0 .W: f32[2, 3] was compiled, f32[2, 4] is given\n"
        "  argument 0 .b: f32[3] was compiled, f64[3] is given\n"
        "  argument 1: f32[] was compiled, i32[1] is given");
  const auto statics = [&] { compiled(right, 0.5, 3); };
  CHECK(said<TypeError>(statics) ==
        "aot_test.cpp:153: compiled jit step: the arguments are not those it was compiled for\n"
        "  argument 2: 2 was compiled, 3 is given");
  const auto list =
      jit([](std::vector<Array> x) { return x[0]; }).trace(std::vector<Array>{ones({2})}).lower().compile();
  const auto longer = [&] { list({ones({2}), ones({2})}); };
  CHECK(said<TypeError>(longer) ==
        "aot_test.cpp:159: compiled jit: the arguments are not those it was compiled for\n"
        "  argument 0: 1 leaves were compiled, 2 are given");
  const auto scaled = jit([](Scaled s) { return s.x * s.times; }).trace(Scaled{abstract({2}), 2}).lower().compile();
  CHECK(values(scaled(Scaled{ones({2}), 2})) == V{2, 2});
  const auto inside = [&] { scaled(Scaled{ones({2}), 3}); };
  CHECK(said<TypeError>(inside) ==
        "aot_test.cpp:165: compiled jit: the arguments are not those it was compiled for\n"
        "  argument 0: .times = 2 was compiled, .times = 3 is given");
  const auto number = jit([](Array x) { return x * 2; }).trace(2.0).lower().compile();
  CHECK(values(number(4.0)) == V{8});
  const auto strong = [&] { number(zeros({})); };
  CHECK(said<TypeError>(strong) ==
        "aot_test.cpp:171: compiled jit: the arguments are not those it was compiled for\n"
        "  argument 0: f32[] (a C++ number) was compiled, f32[] is given");
}

TEST_CASE("machine code cannot be transformed") {
  const auto compiled = jit([](Array x) { return x * x; }, {.name = "square"}).trace(abstract({})).lower().compile();
  const auto nested = [&] { grad([&](Array x) { return compiled(x); })(zeros({})); };
  CHECK(said<TypeError>(nested) ==
        "aot_test.cpp:179: compiled jit square: machine code cannot be traced: inside jit, grad, vmap and other "
        "transforms call the function it was made from, aot_test.cpp:178");
  const auto inside = [&] {
    jit([&](Array x) { return jit([&](Array y) { return x + y; }, {.name = "inner"}).trace(x).lower().compile()(x); })(
        zeros({}));
  };
  CHECK(said<TypeError>(inside) ==
        "aot_test.cpp:184: jit inner: it uses values or a named axis of the trace around it, and so has no program of "
        "its own");
}

TEST_CASE("every transform of a compiled program says what to call instead, and none is needed for concrete arrays") {
  const auto compiled = jit([](Array x) { return x * x; }, {.name = "square"}).trace(abstract({})).lower().compile();
  const Array x = ones({2}), one = ones({});
  const std::string why = "machine code cannot be traced";
  CHECK(has(said<TypeError>([&] { vmap(compiled)(x); }), why));
  CHECK(has(said<TypeError>([&] { jit(compiled)(one); }), why));
  CHECK(has(said<TypeError>([&] { jvp(compiled, one, one); }), why));
  CHECK(has(said<TypeError>([&] { sheaf::vjp(compiled, one); }), why));
  CHECK(has(said<TypeError>([&] { checkpoint(compiled)(one); }), why));
  CHECK(values(jit([&](Array y) { return y + compiled(3.0f); })(one)) == V{10});
}

TEST_CASE("the kernels of a compiled program are shown as loops, LLVM and assembly") {
  const auto compiled = jit([](Array x) { return x * x + 1.0f; }).trace(abstract({512})).lower().compile();
  const std::vector<aot::Kernel> kernels = compiled.kernels();
  REQUIRE(kernels.size() == 1);
  CHECK(has(kernels[0].name, "mul"));
  CHECK(has(kernels[0].loops, "store"));
  CHECK(has(kernels[0].llvm, "fmul"));
  // In whatever instruction set: a function of the kernel's name that returns.
  CHECK(has(kernels[0].assembly, "sheaf"));
  CHECK(has(kernels[0].assembly, "ret"));
}

TEST_CASE("generic lambdas and functions of nothing are compiled ahead of time too") {
  CHECK(
      values(jit([](auto a, Array x) { return a * x; }).trace(2.0, abstract({2})).lower().compile()(2.0, ones({2}))) ==
      V{2, 2});
  CHECK(values(jit([] { return full({2}, 3.0); }).trace().lower().compile()()) == V{3, 3});
}

TEST_CASE("what becomes of each donated buffer is told, and why if no result lies there") {
  struct Pair {
    Array a, b;
  };
  const auto f = jit([](Pair p, Array z, Array e) { return std::tuple{p.a + p.b, sum(z), e}; }, {.donate = {0, 1, 2}});
  const std::vector<aot::Donation> d =
      f.trace(Pair{abstract({64}), abstract({64})}, abstract({3}), abstract({0})).lower().memory().donations;
  REQUIRE(d.size() == 4);
  CHECK(d[0].argument == "argument 0 .a");
  CHECK(d[0].result == "result [0]");
  CHECK(d[0].otherwise.empty());
  CHECK(d[1].argument == "argument 0 .b");
  CHECK(d[1].result.empty());
  CHECK(d[1].otherwise == "every result of 256 bytes lies in another argument's buffer");
  CHECK(d[2].argument == "argument 1");
  CHECK(d[2].otherwise == "no result has 12 bytes");
  CHECK(d[3].otherwise == "it has no elements");
  const auto turned = jit([](Array x) { return flip(x); }, {.donate = {0}});
  const std::vector<aot::Donation> t = turned.trace(abstract({8})).lower().compile().memory().donations;
  REQUIRE(t.size() == 1);
  CHECK(sheaf::tests::with_here(t[0].otherwise, {}) == "HERE reads it when the result is being written, or later");
  CHECK(jit([](Array x) { return x; }).trace(abstract({8})).lower().memory().donations.empty());
}
