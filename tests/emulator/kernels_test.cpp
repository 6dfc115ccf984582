// Every schedule template as CUDA text on the engine: bit for bit what the interpreter of KIR computes, in every order
// of threads and blocks, without a fault.
#include <doctest/doctest.h>

#include <cmath>
#include <random>

#include "codegen/kir/templates/template.h"
#include "tests/emulator/kernel_runs.h"
#include "tests/kir/all_ops.h"
#include "tests/kir/group_maker.h"

using namespace sheaf;
using namespace sheaf::emulator;
using ir::ScalarOp;
namespace low = ir::lowering;

namespace {

kir::Group chain(DType t) {
  kir::GroupMaker m;
  const Shape dims{10, 77};
  const int x = m.input(t, dims), bias = m.input(t, {77});
  const int sum = m.map(ScalarOp::add, {x, m.broadcast(bias, {1}, dims)}, dims);
  m.group.results = {m.map(*ir::scalar_function("exp", t), {m.map(ScalarOp::max, {sum, x}, dims)}, dims)};
  return m.group;
}

kir::Group sum(const Shape& dims, const std::vector<std::int64_t>& over, DType t) {
  kir::GroupMaker m;
  m.group.results = {m.reduce(ir::ReduceKind::sum, m.input(t, dims), over)};
  return m.group;
}

kir::Group transpose() {
  kir::GroupMaker m;
  m.group.results = {m.broadcast(m.input(DType::f32, {70, 150}), {1, 0}, {150, 70})};
  return m.group;
}

kir::Group argmax() {
  kir::GroupMaker m;
  const int x = m.input(DType::f32, {5, 300});
  m.group.results = {m.node(low::ArgReduce{true, 1}, {x}, DType::i32, {5}),
                     m.node(low::ArgReduce{false, 0}, {x}, DType::i64, {300})};
  return m.group;
}

kir::Group sort(const Shape& dims) {
  kir::GroupMaker m;
  const int key = m.input(DType::f32, dims), index = m.node(low::Iota{1}, {}, DType::i32, dims);
  const int sorted = m.node(low::Sort{1, 1}, {key, index}, DType::f32, dims);
  const int order = m.node(low::Sort{1, 1}, {key, index}, DType::i32, dims);
  m.group.nodes[order].first = sorted;
  m.group.nodes[order].result = 1;
  m.group.results = {sorted, order};
  return m.group;
}

kir::Group scatter() {
  kir::GroupMaker m;
  const int x = m.input(DType::f32, {5, 70}), indices = m.input(DType::i32, {40, 1}), u = m.input(DType::f32, {40, 70});
  m.group.results = {
      m.node(low::Scatter{low::Scatter::Combine::add, {1}, {0}, {0}, {}, {}, 1}, {x, indices, u}, DType::f32, {5, 70})};
  return m.group;
}

kir::Group recurrence(low::Recurrence::Kind kind, int dim) {
  kir::GroupMaker m;
  const Shape dims{40, 70};
  std::vector<int> operands = {m.input(DType::f32, dims)};
  if (kind == low::Recurrence::Kind::affine) operands.push_back(m.input(DType::f32, dims));
  m.group.results = {m.node(low::Recurrence{.kind = kind, .dim = dim}, operands, DType::f32, dims)};
  return m.group;
}

/// out[2, 70, 50] = lhs[2, 70, 40] rhs[2, 40, 50]
kir::Kernel contract(DType operands, DType accumulate) {
  constexpr std::int64_t m = 70, n = 50, k = 40;
  kir::Contract c;
  c.batch = {{2}, {m * k}, {k * n}, {m * n}};
  c.m = {{m}, {k}, {0}, {n}};
  c.n = {{n}, {0}, {1}, {1}};
  c.k = {{k}, {1}, {n}, {0}};
  c.lhs = c.rhs = c.out = operands;
  c.accumulate = accumulate;
  using Access = kir::Param::Access;
  return {.name = "dot",
          .params = {{operands, 2 * m * k, Access::read},
                     {operands, 2 * k * n, Access::read},
                     {operands, 2 * m * n, Access::write}},
          .phases = {},
          .contract = c};
}

std::vector<KernelCase> cases() {
  std::vector<KernelCase> all;
  const auto add = [&](std::string name, const kir::Group& g,
                       std::optional<ir::Schedule> schedule = {}) -> KernelCase& {
    ir::ops::Kernel plan = kir::plan_for(g);
    if (schedule) plan.schedule = *schedule;
    if (schedule == ir::Schedule::tile_transpose) plan.tile = {0, 1};
    return all.emplace_back(KernelCase{std::move(name), build_kernel(g, plan, kir::kCudaGrain), {}});
  };
  for (DType t : {DType::f32, DType::f16, DType::bf16, DType::f64}) add("chain", chain(t));
  add("softmax", kir::softmax({6, 200}, DType::f32));
  add("softmax", kir::softmax({2, 3, 17}, DType::bf16));
  add("softmax by reductions", kir::softmax({6, 200}, DType::f32), ir::Schedule::reduce);
  add("sum of all", sum({40000}, {0}, DType::f32));
  add("sum of all", sum({3000}, {0}, DType::f64));
  add("sum of columns", sum({100, 70}, {0}, DType::i32));
  add("sum within", sum({3, 40, 70}, {1}, DType::f32));
  add("argmax", argmax()).prepare = [](int, ir::Literal& x) { x.set(150, NAN), x.set(190, NAN), x.set(7, 50); };
  add("transpose", transpose(), ir::Schedule::tile_transpose);
  add("sort", sort({3, 90})).prepare = [](int, ir::Literal& x) {
    for (std::int64_t i = 0; i < x.size(); i += 5) x.set(i, i % 10 ? NAN : -0.0);
  };
  add("scatter", scatter()).prepare = [](int input, ir::Literal& x) {
    for (std::int64_t i = 0; input == 1 && i < x.size(); ++i) x.set_int(i, i % 7 - 1);
  };
  for (const auto& [operands, accumulate] :
       {std::pair(DType::f32, DType::f32), {DType::bf16, DType::f32}, {DType::i32, DType::i32}})
    all.push_back({"dot", contract(operands, accumulate), {}});
  using Kind = low::Recurrence::Kind;
  add("cumulative sum", recurrence(Kind::sum, 1), ir::Schedule::recurrence);
  add("cumulative logsumexp", recurrence(Kind::logsumexp, 0), ir::Schedule::recurrence);
  add("linear recurrence", recurrence(Kind::affine, 0), ir::Schedule::recurrence);
  return all;
}

}  // namespace

TEST_CASE("the templates' kernels compute the interpreter's bits in every order") {
  const KernelBatch batch(cases());
  const Text text(batch.functions);
  for (std::size_t i = 0; i < batch.cases.size(); ++i) {
    const KernelCase& c = batch.cases[i];
    CAPTURE(c.name);
    const std::vector<Bytes> inputs = inputs_of(c), want = interpreted(c.kernel, inputs);
    for (Order order : {Order::forward, Order::reverse, Order::random}) {
      check_equal(c, run_on_engine(text, c, batch.texts[i], inputs, {.order = order, .seed = 3}, false), want);
    }
  }
}

TEST_CASE("eight bits of float are rounded to and read as everywhere") {
  std::vector<KernelCase> all;
  for (DType t : {DType::f8e4m3, DType::f8e5m2}) {
    kir::GroupMaker m;
    ir::ScalarBuilder to, back;
    const int x = m.input(DType::f32, {8192});
    const int small = m.map(to.finish(to.convert(to.arg(0, DType::f32), t)), {x}, {8192});
    m.group.results = {small, m.map(back.finish(back.convert(back.arg(0, t), DType::f32)), {small}, {8192})};
    all.push_back(
        {std::string(name(t)), build_kernel(m.group, kir::plan_for(m.group), kir::kCudaGrain),
         [](int, ir::Literal& values) {
           std::mt19937 random(2);
           for (std::int64_t i = 0; i < values.size(); ++i) {
             const double v = std::ldexp(std::uniform_real_distribution<double>(-2, 2)(random),
                                         static_cast<int>(random() % 40) - 22);
             values.set(i, i % 61 == 0 ? INFINITY : i % 67 == 0 ? -NAN : i % 3 ? v : std::ldexp(std::rint(v * 64), -6));
           }
         }});
  }
  const KernelBatch batch(std::move(all));
  const Text text(batch.functions);
  for (std::size_t i = 0; i < batch.cases.size(); ++i) {
    const KernelCase& c = batch.cases[i];
    CAPTURE(c.name);
    const std::vector<Bytes> inputs = inputs_of(c);
    check_equal(c, run_on_engine(text, c, batch.texts[i], inputs, {}), interpreted(c.kernel, inputs));
  }
}

TEST_CASE("every op of every dtype has the interpreter's bits") {
  const KernelBatch batch({{"all ops", kir::all_ops(), {}}});
  const Text text(batch.functions);
  const double special[] = {0.0,       -0.0, 1.0,          -1.5, 1e30,  -1e-40, INFINITY,
                            -INFINITY, NAN,  2147483647.0, -129, 65520, 6e-8,   3};
  std::mt19937_64 random(5);
  for (int round = 0; round < 40; ++round) {
    const KernelCase& c = batch.cases[0];
    std::vector<Bytes> inputs = inputs_of(c);
    for (std::size_t p = 0; p < std::size(kir::kAllTypes); ++p) {
      const DType t = kir::kAllTypes[p];
      for (std::size_t e = 0; e < 3; ++e) {
        const std::uint64_t bits = is_bool(t)     ? random() % 2
                                   : random() % 2 ? ir::to_bits(t, special[random() % std::size(special)])
                                                  : random();
        std::memcpy(inputs[p].data() + e * size_bytes(t), &bits, size_bytes(t));
      }
    }
    check_equal(c, run_on_engine(text, c, batch.texts[0], inputs, {}, true), interpreted(c.kernel, inputs));
  }
}
