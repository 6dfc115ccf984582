// A kernel's text, and so its key, says what the nest computes, not in which order its builder was called: compilers
// evaluate the arguments of a call in different orders.
#include "codegen/kir/canonical.h"

#include <doctest/doctest.h>

#include <functional>

#include "codegen/kir/build.h"
#include "codegen/kir/print.h"
#include "codegen/kir/verify.h"

using namespace sheaf;
using namespace sheaf::kir;
using ir::ScalarOp;

namespace {

const std::vector<Axis> kAxes = {{"unit", 10}, {"i", 20}, {"j", 30}};

/// out[u, i, j] = x[u, i] * y[j] + 2 for j even, with what is pure made forwards or backwards.
Kernel nest(bool is_backwards) {
  Kernel k{.name = "nest",
           .params = {{DType::f32, 200, Param::Access::read},
                      {DType::f32, 30, Param::Access::read},
                      {DType::f32, 6000, Param::Access::write}},
           .phases = {},
           .contract = {}};
  PhaseBuilder b(k.params, 10);
  IndexPool& pool = b.indices();
  const AxisId i = b.begin_for("i", 20, LoopKind::serial), j = b.begin_for("j", 30, LoopKind::vector);
  ValueId x = -1, y = -1, two = -1, is_even = -1;
  const auto make_x = [&] { x = b.load(0, pool.add(pool.scale(b.unit(), 20), b.axis(i))); };
  const auto make_y = [&] { y = b.load(1, b.axis(j)); };
  const auto make_two = [&] { two = b.constant_value(DType::f32, 2); };
  const auto make_even = [&] { is_even = b.in_range(pool.mod(b.axis(j), 2), 0, 1); };
  const std::vector<std::function<void()>> steps = {make_x, make_y, make_two, make_even};
  for (std::size_t n = 0; n < steps.size(); ++n) steps[is_backwards ? steps.size() - 1 - n : n]();
  const ValueId sum = b.op(ScalarOp::add, b.op(ScalarOp::mul, x, y), two);
  const Index row = pool.add(pool.scale(b.unit(), 600), pool.scale(b.axis(i), 30));
  b.store(2, is_backwards ? pool.add(b.axis(j), row) : pool.add(row, b.axis(j)), sum, is_even);
  b.end();
  b.end();
  k.phases.push_back(b.finish(1000));
  return k;
}

/// Two reads of scratch between two writes, in either order.
Kernel swap(bool is_backwards) {
  Kernel k{.name = "swap", .params = {{DType::f32, 2, Param::Access::write}}, .phases = {}, .contract = {}};
  PhaseBuilder b(k.params, 1);
  const BufferId s = b.scratch(DType::f32, 2);
  const auto at = [&](std::int64_t n) { return b.indices().constant(n); };
  b.store(s, at(0), b.constant_value(DType::f32, 1));
  b.store(s, at(1), b.constant_value(DType::f32, 2));
  ValueId first = -1, second = -1;
  if (is_backwards) second = b.load(s, at(1));
  first = b.load(s, at(0));
  if (!is_backwards) second = b.load(s, at(1));
  b.store(s, at(0), second);
  b.store(s, at(1), first);
  b.store(0, at(0), b.load(s, at(0)));
  b.store(0, at(1), b.load(s, at(1)));
  k.phases.push_back(b.finish(1000));
  return k;
}

}  // namespace

TEST_CASE("the terms of an index stand in the order of its axes, whoever made them first") {
  const auto text = [](std::vector<int> order) {
    IndexPool pool;
    std::vector<Index> parts(5);
    const auto make = [&](int part) {
      const Index unit = pool.axis(0, 10), i = pool.axis(1, 20), j = pool.axis(2, 30);
      switch (part) {
        case 0: return pool.scale(unit, 1000);
        case 1: return pool.mod(pool.add(i, unit), 7);
        case 2: return pool.scale(pool.floor_div(j, 4), 50);
        case 3: return i;
        default: return pool.scale(pool.value(3, {0, 9}), 5000);
      }
    };
    for (int part : order) {  // also the axes, in this order
      if (part < 3) pool.axis(part, kAxes[part].extent);
      parts[part] = make(part);
    }
    Index sum = pool.constant(1);
    for (int part : order) sum = pool.add(sum, parts[part]);
    return to_text(pool, kAxes, sum);
  };
  const std::string expected = text({0, 1, 2, 3, 4});
  CHECK(expected == "1000*unit0 + ((unit0 + i1) mod 7) + i1 + 50*((j2) div 4) + 5000*v3 + 1");
  CHECK(text({4, 3, 2, 1, 0}) == expected);
  CHECK(text({2, 0, 4, 1, 3}) == expected);
}

TEST_CASE("nests that differ in the order they were built in have one text") {
  REQUIRE(verify(nest(false)).ToString() == "OK");
  REQUIRE(verify(nest(true)).ToString() == "OK");
  CHECK(to_text(nest(true)) == to_text(nest(false)));
  CHECK(to_text(nest(false)) ==
        "kernel(p0: read f32[200], p1: read f32[30], p2: write f32[6000])\n"
        "phase unit0<10> {\n"
        "  v0: f32 = 0x40000000\n"
        "  for i1<20> serial {\n"
        "    v1: f32 = load p0[20*unit0 + i1]\n"
        "    for j2<30> vector {\n"
        "      v2: f32 = load p1[j2]\n"
        "      v3: f32 = mul v1, v2\n"
        "      v4: f32 = add v3, v0\n"
        "      v5: bool = 0 <= ((j2) mod 2) < 1\n"
        "      store p2[600*unit0 + 30*i1 + j2] = v4 where v5\n"
        "    }\n"
        "  }\n"
        "}\n");
}

TEST_CASE("reads of what is written stay between their writes") {
  REQUIRE(verify(swap(false)).ToString() == "OK");
  CHECK(to_text(swap(true)) == to_text(swap(false)));
  CHECK(to_text(swap(false)) ==
        "kernel(p0: write f32[2])\n"
        "phase unit0<1> {\n"
        "  scratch p1: f32[2]\n"
        "  v0: f32 = 0x3f800000\n"
        "  store p1[0] = v0\n"
        "  v1: f32 = 0x40000000\n"
        "  store p1[1] = v1\n"
        "  v2: f32 = load p1[1]\n"
        "  v3: f32 = load p1[0]\n"
        "  store p1[0] = v2\n"
        "  store p1[1] = v3\n"
        "  v4: f32 = load p1[0]\n"
        "  store p0[0] = v4\n"
        "  v5: f32 = load p1[1]\n"
        "  store p0[1] = v5\n"
        "}\n");
}
