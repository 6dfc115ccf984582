// Templates on hand-made groups: what a fused kernel computes must equal, to the bit, what its nodes compute one kernel
// at a time, compiled and interpreted, and for a few shapes what the definition says.
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "codegen/kir/interp.h"
#include "codegen/kir/print.h"
#include "codegen/kir/templates/template.h"
#include "codegen/kir/verify.h"
#include "ir/literal.h"
#include "tests/kir/group_maker.h"
#include "tests/llvm/compiled.h"

using namespace sheaf;
using namespace sheaf::kir;
using ir::Literal;
using ir::Literals;
using ir::ScalarOp;
namespace low = ir::lowering;

namespace {

Literal random_literal(ir::Type type, unsigned seed) {
  std::mt19937 random(seed);
  Literal l(type);
  for (std::int64_t i = 0; i < l.size(); ++i) l.set(i, std::uniform_real_distribution<double>(-4, 4)(random));
  return l;
}

Literals random_inputs(const Group& g) {
  Literals inputs;
  for (int i = 0; i < g.num_inputs; ++i)
    inputs.push_back(random_literal(g.nodes[i].type, static_cast<unsigned>(i) + 1));
  return inputs;
}

Literals run(const Group& g, Literals inputs, const ir::ops::Kernel& plan) {
  const Kernel kernel = build_kernel(g, plan);
  const absl::Status status = verify(kernel);
  CAPTURE(to_text(kernel));
  REQUIRE(status.ToString() == "OK");
  Literals outputs;
  for (int r : g.results) outputs.emplace_back(g.nodes[r].type);
  std::vector<std::vector<std::byte>> temporaries;
  std::vector<void*> buffers;
  for (Literal& l : inputs) buffers.push_back(l.data());
  for (Literal& l : outputs) buffers.push_back(l.data());
  for (const Param& p : kernel.params) {
    if (p.access != Param::Access::temporary) continue;
    temporaries.emplace_back(static_cast<std::size_t>(p.count * size_bytes(p.dtype)));
    buffers.push_back(temporaries.back().data());
  }
  codegen::check_compiled_equals_interpreted(kernel, buffers, {codegen::host_cpu_target()});
  Interpreter(kernel).run(buffers.data());
  return outputs;
}

Literals run(const Group& g, const Literals& inputs) { return run(g, inputs, plan_for(g)); }

/// Each node in a kernel of its own.
Literals run_one_by_one(const Group& g, const Literals& inputs) {
  Literals values = inputs;
  for (int n = g.num_inputs; n < static_cast<int>(g.nodes.size()); ++n) {
    Group one;
    Literals in;
    for (int operand : g.nodes[n].operands) {
      one.nodes.push_back({std::nullopt, {}, g.nodes[operand].type, 0, one.num_inputs});
      in.push_back(values[operand]);
      ++one.num_inputs;
    }
    GroupNode node = g.nodes[n];
    for (int k = 0; k < one.num_inputs; ++k) node.operands[k] = k;
    node.first = one.num_inputs;
    one.nodes.push_back(node);
    one.results = {one.num_inputs};
    values.push_back(run(one, in)[0]);
  }
  Literals results;
  for (int r : g.results) results.push_back(values[r]);
  return results;
}

void check_fusion_keeps_bits(const Group& g, const ir::ops::Kernel& plan) {
  const Literals inputs = random_inputs(g);
  const Literals fused = run(g, inputs, plan), plain = run_one_by_one(g, inputs);
  for (std::size_t j = 0; j < fused.size(); ++j) CHECK(fused[j] == plain[j]);
}

void check_fusion_keeps_bits(const Group& g) { check_fusion_keeps_bits(g, plan_for(g)); }

/// The definition of a sum over `count` elements: lanes, leaves, pairs.
float ordered_sum(const std::vector<float>& x) {
  std::vector<float> totals;
  for (std::size_t base = 0; base == 0 || base < x.size(); base += kLeaf) {
    float lanes[kLanes] = {};
    for (std::size_t i = base; i < std::min(x.size(), base + kLeaf); ++i) lanes[(i - base) % kLanes] += x[i];
    for (int half = kLanes / 2; half; half /= 2) {
      for (int l = 0; l < half; ++l) lanes[l] += lanes[l + half];
    }
    totals.push_back(lanes[0]);
  }
  while (totals.size() > 1) {
    std::vector<float> next;
    for (std::size_t i = 0; i + 1 < totals.size(); i += 2) next.push_back(totals[i] + totals[i + 1]);
    if (totals.size() % 2) next.push_back(totals.back());
    totals = next;
  }
  return totals[0];
}

void check_sum(const Shape& dims, const std::vector<std::int64_t>& over) {
  CAPTURE(to_string(dims));
  CAPTURE(to_string(Shape(over)));
  GroupMaker m;
  const int x = m.input(DType::f32, dims);
  m.group.results = {m.reduce(ir::ReduceKind::sum, x, over)};
  const Literals inputs = random_inputs(m.group);
  ir::ops::Kernel plan = plan_for(m.group);
  const Literal got = run(m.group, inputs, plan)[0];
  if (plan.schedule == ir::Schedule::row) {
    plan.schedule = ir::Schedule::reduce;
    CHECK(run(m.group, inputs, plan)[0] == got);
  }
  std::vector<std::vector<float>> rows(static_cast<std::size_t>(got.size()));
  const auto strides = ir::strides_of(got.dims());
  std::vector<std::int64_t> at(dims.size(), 0);
  std::int64_t position = 0;
  do {
    std::vector<std::int64_t> kept;
    for (std::size_t d = 0; d < dims.size(); ++d) {
      if (std::find(over.begin(), over.end(), static_cast<std::int64_t>(d)) == over.end()) kept.push_back(at[d]);
    }
    if (inputs[0].size() > 0)
      rows[static_cast<std::size_t>(ir::flatten(kept, strides))].push_back(
          static_cast<float>(inputs[0].get(position++)));
  } while (inputs[0].size() > 0 && ir::next_index(at, dims));
  std::size_t bad = 0;
  for (std::size_t i = 0; i < rows.size(); ++i)
    bad += static_cast<float>(got.get(static_cast<std::int64_t>(i))) != ordered_sum(rows[i]);
  CHECK(bad == 0);
}

}  // namespace

TEST_CASE("sums follow the order of the numeric contract, whatever dims they run over") {
  check_sum({1000}, {0});
  check_sum({5}, {0});
  check_sum({40000}, {0});
  check_sum({3, 100}, {1});
  check_sum({100, 3}, {0});
  check_sum({100, 70}, {0});
  check_sum({3, 40, 70}, {1});
  check_sum({20, 5, 64}, {0, 2});
  check_sum({20, 5, 30}, {0, 2});
  check_sum({7, 9, 11}, {0, 1, 2});
  check_sum({2, 20000}, {1});
  check_sum({70, 17000}, {1});
  check_sum({17000, 5}, {0});
  check_sum({0, 5}, {0});
  check_sum({5, 0}, {0});
  check_sum({5, 0}, {1});
}

TEST_CASE("softmax in one row kernel equals softmax op by op") {
  for (DType t : {DType::f32, DType::bf16, DType::f64}) {
    check_fusion_keeps_bits(softmax({6, 200}, t));
    check_fusion_keeps_bits(softmax({2, 3, 17}, t));
  }
  CHECK(build_kernel(softmax({6, 200}, DType::f32), {.name = "softmax", .schedule = ir::Schedule::row}).phases.size() ==
        1);
  const Group large = softmax({600, 2000}, DType::f32);
  CHECK(build_kernel(large, {.name = "softmax", .schedule = ir::Schedule::row}).phases[0].axes[0].extent > 1);
}

TEST_CASE("a transposed sum of a broadcast and a reversed operand is one map") {
  GroupMaker m;
  const Shape dims{70, 150};
  const int x = m.input(DType::f32, {150, 70}), y = m.input(DType::f32, {150}), z = m.input(DType::f32, dims);
  const int transposed = m.broadcast(x, {1, 0}, dims);
  const int row = m.broadcast(y, {1}, dims);
  const int reversed = m.node(low::View{{0, 1}, {1, -1}, {0, 149}}, {z}, DType::f32, dims);
  m.group.results = {m.map(ScalarOp::add, {m.map(ScalarOp::add, {transposed, row}, dims), reversed}, dims)};
  check_fusion_keeps_bits(m.group);
  const ir::ops::Kernel tiled{.name = "t", .schedule = ir::Schedule::tile_transpose, .tile = {0, 1}};
  check_fusion_keeps_bits(m.group, tiled);
  const Kernel kernel = build_kernel(m.group, tiled);
  CHECK(kernel.phases.size() == 1);
  CHECK(kernel.phases[0].axes[0].extent == 2 * 3);  // tiles of 64 by 64
}

TEST_CASE("softmax reduction by reduction equals softmax by rows") {
  const Group g = softmax({6, 200}, DType::f32);
  const ir::ops::Kernel plan{.name = "softmax", .schedule = ir::Schedule::reduce};
  CHECK(build_kernel(g, plan).phases.size() == 3);
  check_fusion_keeps_bits(g, plan);
}

TEST_CASE("a plan that does not fit its group is refused") {
  const auto refusal = [](const Group& g, ir::Schedule schedule) -> std::string {
    try {
      build_kernel(g, {.name = "k", .schedule = schedule});
    } catch (const ir::InternalError& e) { return e.what(); }
    return "built";
  };
  const auto is_refused = [&](const Group& g, ir::Schedule schedule, const std::string& why) {
    const std::string text = refusal(g, schedule);
    CAPTURE(text);
    CHECK(text.find(why) != std::string::npos);
  };
  const Group rows = softmax({6, 200}, DType::f32);
  is_refused(rows, ir::Schedule::map, "k: the group holds a nest that its schedule has no place for");
  is_refused(rows, ir::Schedule::sort, "k: the group holds a nest that its schedule has no place for");
  is_refused(rows, ir::Schedule::none, "k: the plan names no template of loop nests");
  GroupMaker map, middle, reversed;
  map.group.results = {map.map(ScalarOp::neg, {map.input(DType::f32, {4})}, {4})};
  is_refused(map.group, ir::Schedule::row, "a row kernel of no reduction");
  middle.group.results = {middle.reduce(ir::ReduceKind::sum, middle.input(DType::f32, {3, 40, 6}), {1})};
  is_refused(middle.group, ir::Schedule::row, "a row kernel of reductions over middle dims");
  const int sums = reversed.reduce(ir::ReduceKind::sum, reversed.input(DType::f32, {6, 40}), {1});
  reversed.group.results = {reversed.node(low::View{{0}, {-1}, {5}}, {sums}, DType::f32, {6})};
  is_refused(reversed.group, ir::Schedule::row, "a row kernel reads a reduction of another row");
}

TEST_CASE("padding, concatenation and reshape fuse into a map that reads nothing outside its operands") {
  GroupMaker m;
  const int x = m.input(DType::f32, {4, 6}), fill = m.input(DType::f32, {}), y = m.input(DType::f32, {4, 3});
  const int padded = m.node(low::Pad{{1, -2}, {1, 0}}, {x, fill}, DType::f32, {9, 5});
  const int joined = m.node(low::Concatenate{1}, {y, x, y}, DType::f32, {4, 12});
  const int reshaped = m.node(low::Reshape{}, {joined}, DType::f32, {3, 16});
  m.group.results = {m.map(ScalarOp::neg, {padded}, {9, 5}), m.map(ScalarOp::abs, {reshaped}, {3, 16})};
  check_fusion_keeps_bits(m.group);
}

TEST_CASE("argmax lets NaN win and takes the lowest index on ties") {
  GroupMaker m;
  const int x = m.input(DType::f32, {3, 100});
  m.group.results = {m.node(low::ArgReduce{true, 1}, {x}, DType::i32, {3}),
                     m.node(low::ArgReduce{false, 0}, {x}, DType::i64, {100})};
  Literal in(ir::Type(DType::f32, {3, 100}));
  in.set(7, 2), in.set(70, 2);
  in.set(105, 9), in.set(150, NAN), in.set(190, NAN);
  for (int i = 200; i < 300; ++i) in.set(i, -INFINITY);
  const Literals out = run(m.group, {in});
  CHECK(out[0].get_int(0) == 7);
  CHECK(out[0].get_int(1) == 50);
  CHECK(out[0].get_int(2) == 0);
  CHECK(out[1].get_int(50) == 1);
  CHECK(out[1].get_int(0) == 2);
}

TEST_CASE("sort is stable, puts NaN last and moves all operands with the key") {
  GroupMaker m;
  const Shape dims{3, 37};
  const int key = m.input(DType::f32, dims);
  const int index = m.node(low::Iota{1}, {}, DType::i32, dims);
  const int sorted = m.node(low::Sort{1, 1}, {key, index}, DType::f32, dims);
  const int order = m.node(low::Sort{1, 1}, {key, index}, DType::i32, dims);
  m.group.nodes[order].first = sorted;
  m.group.nodes[order].result = 1;
  m.group.results = {sorted, order};
  Literal in(ir::Type(DType::f32, dims));
  std::mt19937 random(5);
  for (int i = 0; i < 111; ++i)
    in.set(i, i % 11 == 3 ? NAN : i % 7 == 0 ? -0.0 : static_cast<double>(random() % 6) - 2);
  const Literals out = run(m.group, {in});
  for (int r = 0; r < 3; ++r) {
    for (int i = 0; i < 37; ++i) {
      const auto at = static_cast<std::int64_t>(r) * 37 + i;
      const std::int64_t from = out[1].get_int(at);
      CHECK(out[0].bits(at) == in.bits(r * 37 + from));
      if (i == 0) continue;
      const double before = out[0].get(at - 1), here = out[0].get(at);
      const bool is_tie = before == here || (std::isnan(before) && std::isnan(here));
      CHECK((is_tie ? out[1].get_int(at - 1) < from : before < here || std::isnan(here)));
    }
  }
}

TEST_CASE("scatter adds repeated rows in update order and drops what is out of range") {
  GroupMaker m;
  const int x = m.input(DType::f32, {5, 70}), indices = m.input(DType::i32, {40, 1}), u = m.input(DType::f32, {40, 70});
  m.group.results = {
      m.node(low::Scatter{low::Scatter::Combine::add, {1}, {0}, {0}, {}, {}, 1}, {x, indices, u}, DType::f32, {5, 70})};
  Literals in = random_inputs(m.group);
  for (int i = 0; i < 40; ++i) in[1].set_int(i, i % 7 - 1);
  const Literal out = run(m.group, in)[0];
  std::vector<float> want(350);
  for (int i = 0; i < 350; ++i) want[static_cast<std::size_t>(i)] = static_cast<float>(in[0].get(i));
  for (int i = 0; i < 40; ++i) {
    const int to = i % 7 - 1;
    if (to < 0 || to >= 5) continue;
    for (int c = 0; c < 70; ++c)
      want[static_cast<std::size_t>(to * 70 + c)] += static_cast<float>(in[2].get(i * 70 + c));
  }
  for (int i = 0; i < 350; ++i) REQUIRE(static_cast<float>(out.get(i)) == want[static_cast<std::size_t>(i)]);
}

TEST_CASE("an update after a copy equals an update computed element by element") {
  GroupMaker m;
  const int x = m.input(DType::f32, {3, 50, 70}), u = m.input(DType::f32, {3, 2, 70}), at = m.input(DType::i32, {3, 1});
  const int negated = m.map(ScalarOp::neg, {u}, {3, 2, 70});
  m.group.results = {m.node(low::UpdateSlice{{1}, {0}, {0}, 1}, {x, negated, at}, DType::f32, {3, 50, 70})};
  Literals in = random_inputs(m.group);
  in[2].set_int(0, 7), in[2].set_int(1, -3), in[2].set_int(2, 60);
  const ir::ops::Kernel update{.name = "update", .schedule = ir::Schedule::update};
  CHECK(build_kernel(m.group, update).phases.size() == 2);
  CHECK(run(m.group, in, update)[0] == run(m.group, in)[0]);
  const Kernel in_place = build_kernel(m.group, {.name = "update", .schedule = ir::Schedule::update, .in_place = {0}});
  REQUIRE(verify(in_place).ToString() == "OK");
  CHECK(in_place.phases.size() == 1);
  const Literal want = run(m.group, in)[0];
  std::vector<void*> buffers = {in[0].data(), in[1].data(), in[2].data(), in[0].data()};
  codegen::check_compiled_equals_interpreted(in_place, buffers, {codegen::host_cpu_target()});
  Interpreter(in_place).run(buffers.data());
  CHECK(in[0] == want);
}

TEST_CASE("gather clamps, and fill reads nothing where the index is out of range") {
  GroupMaker m;
  const int x = m.input(DType::f32, {5, 8}), indices = m.input(DType::i32, {6, 1});
  low::Gather g{{1}, {0}, {0}, {}, {}, {1, 8}, 1, low::OutOfBounds::clip, 0};
  const int clipped = m.node(g, {x, indices}, DType::f32, {6, 8});
  g.mode = low::OutOfBounds::fill;
  g.fill_bits = ir::to_bits(DType::f32, -1);
  const int filled = m.node(g, {x, indices}, DType::f32, {6, 8});
  m.group.results = {clipped, filled};
  Literals in = random_inputs(m.group);
  const int wanted[] = {0, 4, 5, -1, 2, 100};
  for (int i = 0; i < 6; ++i) in[1].set_int(i, wanted[i]);
  const Literals out = run(m.group, in);
  for (int i = 0; i < 6; ++i) {
    const int row = std::clamp(wanted[i], 0, 4);
    for (int c = 0; c < 8; ++c) {
      CHECK(out[0].get(i * 8 + c) == in[0].get(row * 8 + c));
      CHECK(out[1].get(i * 8 + c) == (row == wanted[i] ? in[0].get(row * 8 + c) : -1));
    }
  }
}

TEST_CASE("one body does for all units, though the last has less to do") {
  const auto stores = [](const Group& g, const ir::ops::Kernel& plan) {
    const std::string text = to_text(build_kernel(g, plan));
    int count = 0;
    for (std::size_t at = text.find("store p"); at != std::string::npos; at = text.find("store p", at + 1)) ++count;
    return count;
  };
  const auto cube = [](const Shape& dims) {
    GroupMaker m;
    const int x = m.input(DType::f32, dims);
    m.group.results = {m.map(ScalarOp::mul, {m.map(ScalarOp::mul, {x, x}, dims), x}, dims)};
    return m.group;
  };
  for (const Shape& dims : {Shape{1'000'003}, Shape{1'048'576}, Shape{1'000'003, 3}, Shape{77'001, 13}}) {
    CAPTURE(to_string(dims));
    const Group g = cube(dims);
    CHECK(build_kernel(g, plan_for(g)).phases[0].axes[0].extent > 1);
    CHECK(stores(g, plan_for(g)) == 1);
  }
  check_fusion_keeps_bits(cube({1'000'003}));
  const ir::ops::Kernel row{.name = "softmax", .schedule = ir::Schedule::row};
  CHECK(stores(softmax({601, 2048}, DType::f32), row) == stores(softmax({1, 2048}, DType::f32), row));
  GroupMaker m;
  m.group.results = {m.map(ScalarOp::neg, {m.broadcast(m.input(DType::f32, {150, 70}), {1, 0}, {70, 150})}, {70, 150})};
  CHECK(stores(m.group, {.name = "t", .schedule = ir::Schedule::tile_transpose, .tile = {0, 1}}) == 1);
}
