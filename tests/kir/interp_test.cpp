// Builder, verifier, printer and interpreter on small hand-written nests.
#include "codegen/kir/interp.h"

#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <random>

#include "codegen/kir/build.h"
#include "codegen/kir/lane_ops.h"
#include "codegen/kir/print.h"
#include "codegen/kir/verify.h"
#include "ir/check.h"

using namespace sheaf;
using namespace sheaf::kir;
using ir::ScalarOp;

namespace {

const Param kInput{DType::f32, 1000, Param::Access::read};
const Param kOutput{DType::f32, 1000, Param::Access::write};

/// y[i] = x[i] * 2 + x[0], ten units of a hundred.
Kernel axpy() {
  Kernel k{.name = "axpy", .params = {kInput, kOutput}, .phases = {}, .contract = {}};
  PhaseBuilder b(k.params, 10);
  const AxisId i = b.begin_for("i", 100, LoopKind::vector);
  const Index at = b.indices().add(b.indices().scale(b.unit(), 100), b.axis(i));
  const ValueId twice = b.op(ScalarOp::mul, b.load(0, at), b.constant_value(DType::f32, 2));
  b.store(1, at, b.op(ScalarOp::add, twice, b.load(0, b.indices().constant(0))));
  b.end();
  k.phases.push_back(b.finish(1000));
  return k;
}

/// The sum of x in the 64-lane order.
Kernel sum() {
  Kernel k{.name = "sum", .params = {kInput, {DType::f32, 1, Param::Access::write}}, .phases = {}, .contract = {}};
  PhaseBuilder b(k.params, 1);
  const LocalId lanes = b.local(DType::f32, kLanes);
  b.begin_for("l", kLanes, LoopKind::vector, kLanes);
  b.assign(lanes, b.constant_value(DType::f32, 0));
  b.end();
  auto step = [&](Index at) { b.assign(lanes, b.op(ScalarOp::add, b.get(lanes), b.load(0, at))); };
  const AxisId row = b.begin_for("row", 15, LoopKind::serial);
  const AxisId l = b.begin_for("l", kLanes, LoopKind::vector, kLanes);
  step(b.indices().add(b.indices().scale(b.axis(row), kLanes), b.axis(l)));
  b.end();
  b.end();
  const AxisId tail = b.begin_for("l", 40, LoopKind::vector, kLanes);
  step(b.indices().add(b.axis(tail), 960));
  b.end();
  b.store(1, b.indices().constant(0), b.lane_reduce({lanes}, {ir::scalar_primitive(ScalarOp::add, DType::f32)})[0]);
  k.phases.push_back(b.finish(1000));
  return k;
}

std::vector<float> random_floats(std::size_t count) {
  std::mt19937 random(7);
  std::vector<float> v(count);
  for (float& x : v) x = std::uniform_real_distribution<float>(-1, 1)(random);
  return v;
}

}  // namespace

TEST_CASE("the builder moves what a loop does not change out of it") {
  const Kernel k = axpy();
  REQUIRE(verify(k).ok());
  CHECK(to_text(k) ==
        "kernel(p0: read f32[1000], p1: write f32[1000])\n"
        "phase unit0<10> {\n"
        "  v0: f32 = 0x40000000\n"
        "  v1: f32 = load p0[0]\n"
        "  for i1<100> vector {\n"
        "    v2: f32 = load p0[100*unit0 + i1]\n"
        "    v3: f32 = mul v2, v0\n"
        "    v4: f32 = add v3, v1\n"
        "    store p1[100*unit0 + i1] = v4\n"
        "  }\n"
        "}\n");
}

TEST_CASE("a vector loop with a tail writes every element once") {
  const std::vector<float> x = random_floats(1000);
  std::vector<float> y(1000, -7);
  void* buffers[] = {const_cast<float*>(x.data()), y.data()};
  Interpreter(axpy()).run(buffers);
  for (std::size_t i = 0; i < 1000; ++i) REQUIRE(y[i] == x[i] * 2 + x[0]);
}

TEST_CASE("a lane reduction adds in the order of the numeric contract") {
  const std::vector<float> x = random_floats(1000);
  float total = -7;
  void* buffers[] = {const_cast<float*>(x.data()), &total};
  REQUIRE(verify(sum()).ok());
  Interpreter(sum()).run(buffers);
  float lanes[kLanes] = {};
  for (std::size_t i = 0; i < 1000; ++i) lanes[i % kLanes] += x[i];
  for (int half = kLanes / 2; half; half /= 2) {
    for (int l = 0; l < half; ++l) lanes[l] += lanes[l + half];
  }
  CHECK(total == lanes[0]);
}

TEST_CASE("an access out of bounds is caught, a masked one is not made") {
  Kernel k{.name = "mask", .params = {kInput, kOutput}, .phases = {}, .contract = {}};
  auto build = [&](bool is_masked) {
    PhaseBuilder b(k.params, 1);
    const AxisId i = b.begin_for("i", 1000, LoopKind::vector);
    const Index at = b.indices().add(b.axis(i), 10);
    b.store(1, b.axis(i), b.load(0, at, is_masked ? b.in_range(at, 0, 1000) : -1, b.constant_value(DType::f32, 5)));
    b.end();
    k.phases = {b.finish(1000)};
  };
  const std::vector<float> x = random_floats(1000);
  std::vector<float> y(1000);
  void* buffers[] = {const_cast<float*>(x.data()), y.data()};
  build(false);
  CHECK_THROWS_AS(Interpreter(k).run(buffers), ir::InternalError);
  build(true);
  Interpreter(k).run(buffers);
  CHECK(y[989] == x[999]);
  CHECK(y[990] == 5);
}

TEST_CASE("the verifier rejects uses outside the defining block and nested vector loops") {
  Kernel k = axpy();
  k.phases[0].body.push_back(Store{1, k.phases[0].indices.constant(0), 4, -1});
  CHECK_FALSE(verify(k).ok());
  k = axpy();
  For& outer = std::get<For>(k.phases[0].body.back());
  k.phases[0].axes.push_back({"j", 2});
  outer.body.push_back(For{2, LoopKind::serial, 0, {}});
  CHECK_FALSE(verify(k).ok());
}

TEST_CASE("the interpreter's fast loops equal the definition of each op") {
  std::mt19937_64 random(3);
  const double special[] = {0.0, -0.0, 1.0, -1.5, 1e30, -1e-40, INFINITY, -INFINITY, NAN, 2147483647.0};
  std::size_t bad = 0;
  for (DType t : {DType::f32, DType::f64, DType::i32, DType::i64, DType::u32, DType::bool_}) {
    for (int code = static_cast<int>(ScalarOp::add); code <= static_cast<int>(ScalarOp::select); ++code) {
      const auto op = static_cast<ScalarOp>(code);
      const bool is_float_op = op == ScalarOp::fma || op == ScalarOp::sqrt;
      const bool is_bool_op = (op >= ScalarOp::and_ && op <= ScalarOp::not_) || op == ScalarOp::select;
      const bool is_common = op == ScalarOp::add || op == ScalarOp::sub || op == ScalarOp::mul ||
                             (op >= ScalarOp::eq && op <= ScalarOp::ge) || op == ScalarOp::select;
      if (is_bool(t)    ? !is_bool_op
          : is_float(t) ? !(is_common || is_float_op || op == ScalarOp::div)
                        : !(is_common || (is_bool_op && op != ScalarOp::not_))) {
        continue;
      }
      std::uint64_t in[3][kLanes], got[kLanes];
      for (auto& lanes : in) {
        for (std::uint64_t& b : lanes) {
          b = is_bool(t)     ? random() % 2
              : random() % 2 ? ir::to_bits(t, special[random() % 10])
                             : ir::to_bits(t, double(random() % 1000) - 500);
        }
      }
      if (op == ScalarOp::select) {
        for (std::uint64_t& b : in[0]) b = random() % 2;
      }
      const DType out = op >= ScalarOp::eq && op <= ScalarOp::ge ? DType::bool_ : t;
      const LaneRef refs[3] = {{in[0], 1}, {in[1], 1}, {in[2], 1}};
      apply(op, t, out, got, refs, kLanes);
      for (int l = 0; l < kLanes; ++l) {
        const std::uint64_t args[3] = {in[0][l], in[1][l], in[2][l]};
        const std::uint64_t want = ir::eval_op(op, t, out, args);
        const bool both_nan =
            is_float(out) && std::isnan(ir::from_bits(out, want)) && std::isnan(ir::from_bits(out, got[l]));
        bad += got[l] != want && !both_nan;
      }
    }
  }
  CHECK(bad == 0);
}
