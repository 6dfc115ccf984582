// Every rule of the verifier, by a kernel that breaks it and no other.
#include "codegen/kir/verify.h"

#include <doctest/doctest.h>

#include <functional>
#include <string>

using namespace sheaf;
using namespace sheaf::kir;
using ir::ScalarOp;

namespace {

/// out[i] = x[i] for 8 elements in a vector loop; values 1 to 4 are free: an i64, a bool, an f16 and an f64.
Kernel copy_kernel() {
  Kernel k{.name = "copy", .params = {}, .phases = {}, .contract = {}};
  k.params = {{DType::f32, 8, Param::Access::read}, {DType::f32, 8, Param::Access::write}};
  Phase& p = k.phases.emplace_back();
  p.axes = {{"unit", 1}, {"i", 8}, {"j", 8}};
  p.values = {DType::f32, DType::i64, DType::bool_, DType::f16, DType::f64};
  p.locals = {{DType::f32, kLanes}, {DType::f32, 1}};
  const Index i = p.indices.axis(1, 8);
  p.body.push_back(For{1, LoopKind::vector, 0, {Let{0, Load{0, i, -1, -1}}, Store{1, i, 0, -1}}});
  return k;
}

Block& inner(Phase& p) { return std::get<For>(p.body[0]).body; }

ir::ScalarFn sum_of_two() { return ir::scalar_primitive(ScalarOp::add, DType::f32); }

/// What the verifier says of the kernel after `change`.
std::string error_of(const std::function<void(Phase&)>& change) {
  Kernel k = copy_kernel();
  change(k.phases[0]);
  const std::string text(verify(k).message());
  const std::string where = "copy, phase 0: ";
  CHECK(text.starts_with(where));
  return text.substr(std::min(text.size(), where.size()));
}

/// The same with one more definition at the head of the loop.
std::string error_of_let(ValueId value, const Expr& expr) {
  return error_of([&](Phase& p) { inner(p).insert(inner(p).begin(), Let{value, expr}); });
}

}  // namespace

TEST_CASE("a kernel that keeps the rules passes") { CHECK(verify(copy_kernel()).ok()); }

TEST_CASE("values are defined once, before their uses and in an enclosing block") {
  CHECK(error_of([](Phase& p) { p.axes.clear(); }) == "a phase needs its unit axis");
  CHECK(error_of([](Phase& p) { inner(p).erase(inner(p).begin()); }) ==
        "v0 is used before it is defined, or outside its block");
  CHECK(error_of([](Phase& p) { p.body.push_back(Store{1, p.indices.constant(0), 0, -1}); }) ==
        "v0 is used before it is defined, or outside its block");
  CHECK(error_of([](Phase& p) { inner(p).push_back(inner(p)[0]); }) == "v0 is defined twice or unknown");
  CHECK(error_of_let(9, Constant{0}) == "v9 is defined twice or unknown");
}

TEST_CASE("indices are made of open axes, and buffers and locals exist") {
  CHECK(error_of([](Phase& p) { std::get<Store>(inner(p)[1]).index = {}; }) == "missing index");
  CHECK(error_of([](Phase& p) { std::get<Store>(inner(p)[1]).index = p.indices.axis(2, 8); }) ==
        "an index uses axis 2 outside its loop");
  CHECK(error_of([](Phase& p) { std::get<Store>(inner(p)[1]).buffer = 2; }) == "buffer p2 does not exist");
  CHECK(error_of([](Phase& p) { std::get<Store>(inner(p)[1]).buffer = 0; }) == "store to p0, which is only read");
  CHECK(error_of([](Phase& p) { inner(p).push_back(Assign{7, 0}); }) == "local l7 does not exist");
  CHECK(error_of([](Phase& p) { p.body.insert(p.body.begin(), {Let{4, Constant{0}}, Assign{0, 4}}); }) ==
        "lane local l0 outside a vector loop of <= 64");
}

TEST_CASE("dtypes agree, and half types are only converted") {
  CHECK(error_of([](Phase& p) { inner(p).insert(inner(p).begin() + 1, {Let{4, Constant{0}}, Assign{1, 4}}); }) ==
        "v4 is f64, not f32");
  CHECK(error_of_let(4, Load{0, {0}, -1, -1}) == "v4: load of p0 has another dtype");
  CHECK(error_of_let(4, Get{1}) == "v4: local has another dtype");
  CHECK(error_of_let(4, IndexValue{{0}}) == "v4: an index is i32 or i64");
  CHECK(error_of_let(4, InRange{{0}, 0, 1}) == "v4: a range test is bool");
  const auto of_zero = [](ValueId zero, ValueId value, ScalarOp op) {
    return error_of([&](Phase& p) {
      const int arity = ir::arity(op);
      const Scalar s{op, {zero, arity > 1 ? zero : -1, -1}};
      inner(p).insert(inner(p).begin(), {Let{zero, Constant{0}}, Let{value, s}});
    });
  };
  CHECK(of_zero(1, 2, ScalarOp::bitcast) == "v2: bitcast changes the size");
  CHECK(of_zero(1, 4, ScalarOp::add) == "v4: add yields another dtype");
  CHECK(error_of([](Phase& p) {
          p.values.push_back(DType::f16);
          inner(p).insert(inner(p).begin(), {Let{3, Constant{0}}, Let{5, Scalar{ScalarOp::neg, {3, -1, -1}}}});
        }) == "v5: neg computes in a half type");
}

TEST_CASE("loops are of known axes, and a vector loop holds neither loops nor branches") {
  CHECK(error_of([](Phase& p) { std::get<For>(p.body[0]).axis = 5; }) == "loop over an unknown axis");
  CHECK(error_of([](Phase& p) { inner(p).push_back(For{2, LoopKind::serial, 0, {}}); }) ==
        "a vector loop holds another loop");
  CHECK(error_of([](Phase& p) { inner(p).insert(inner(p).begin(), {Let{2, Constant{1}}, If{2, {}}}); }) ==
        "a vector loop holds an if");
  CHECK(error_of([](Phase& p) { p.body.push_back(Barrier{}); }) == "barrier in a phase of one thread");
}

TEST_CASE("a loop that is shorter in one unit is a serial loop or one of whole vectors, and always has a step") {
  const auto error_with = [](std::int64_t extent, LoopKind kind, const Rest& rest, ValueId limit = -1) {
    return error_of([=](Phase& p) {
      p.axes[1].extent = extent;
      auto& loop = std::get<For>(p.body[0]);
      loop.kind = kind;
      loop.rest = rest;
      loop.limit = limit;
      p.body.insert(p.body.begin(), {Let{1, Constant{4}}, Let{2, Constant{1}}});
    });
  };
  CHECK(error_with(8, LoopKind::unroll, {2, 5}) == "a rest of another than a serial or vector loop");
  CHECK(error_with(8, LoopKind::serial, {2, 0}) == "a rest of 0 steps of 8");
  CHECK(error_with(8, LoopKind::serial, {2, 9}) == "a rest of 9 steps of 8");
  CHECK(error_with(8, LoopKind::vector, {2, 5}) == "a rest of a vector loop of 8 steps");
  CHECK(error_with(8, LoopKind::serial, {1, 5}) == "v1 is i64, not bool");
  CHECK(error_with(8, LoopKind::serial, {3, 5}) == "v3 is used before it is defined, or outside its block");
  CHECK(error_with(8, LoopKind::serial, {2, 5}, 1) == "a loop with a rest and a limit");
  CHECK(error_of([](Phase& p) {
          p.axes[1].extent = 64;
          std::get<For>(p.body[0]).rest = Rest{2, 5};
          inner(p).push_back(Assign{0, 0});
          p.body.insert(p.body.begin(), Let{2, Constant{1}});
        }) == "lane local l0 outside a vector loop of <= 64");
}

TEST_CASE("a reduction of lanes combines whole lane locals outside vector loops") {
  CHECK(error_of([](Phase& p) { inner(p).push_back(LaneReduce{{0}, {sum_of_two()}, {4}}); }) ==
        "lane_reduce inside a vector loop");
  CHECK(error_of([](Phase& p) { p.body.push_back(LaneReduce{{0}, {}, {4}}); }) == "lane_reduce of unequal lists");
  CHECK(error_of([](Phase& p) { p.body.push_back(LaneReduce{{1}, {sum_of_two()}, {4}}); }) ==
        "lane_reduce of scalar local l1");
  CHECK(error_of([](Phase& p) {
          p.body.push_back(LaneReduce{{0}, {ir::scalar_primitive(ScalarOp::neg, DType::f32)}, {4}});
        }) == "lane_reduce combines another number of parts");
}
