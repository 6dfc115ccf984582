// Reports of what a program communicates, and limits on it.
#include "passes/sharding/report.h"

#include <doctest/doctest.h>

#include "ir/log.h"
#include "ir/op.h"
#include "ir/ops/attrs.h"
#include "ir/text.h"
#include "passes/emit.h"
#include "passes/pipeline.h"
#include "passes/sharding/partition.h"
#include "passes/sharding/reshard.h"

using namespace sheaf;
using passes::CollectiveKind;

namespace {

const passes::Profile& flat() { return *passes::built_in_profile("flat"); }

/// The transforms that equations of some lines went through.
ir::FunctionRef explained(const ir::FunctionRef& f) {
  return passes::remade(*f, [](ir::Builder& b, const ir::Eqn& e, ir::Values operands) {
    if (e.loc.line == 12) b.set_loc(e.loc, "partition: dot reduces a dim split on model");
    if (e.loc.line == 20) b.set_loc(e.loc, "transpose, partition: operand 1");
    return b.emit_all(e.op, std::move(operands), e.attributes, passes::in_regions(e, explained));
  });
}

ir::FunctionRef program() {
  const auto module = ir::parse(R"(
mesh @m = [data=4, model=2]
func @main(%x: f32[8, 16], %w: f32[3, 4, 16]) -> f32[8, 16], f32[8] on @m {
  %0: f32[8, 16] = all_reduce %x {axes=[model]}  loc(mlp.cpp:12)
  %1: f32[8, 16] = scan %0, %w {carry=1, length=3} (%c: f32[8, 16], %v: f32[4, 16]) {
    %2: f32[16, 16] = all_gather %v {axes=[data], size=4, dim=0, tiled=true}  loc(mlp.cpp:20)
    %3: f32[8, 16] = dot %c, %2 {lhs=[1], rhs=[0]}
    return %3
  }
  %4: f32[8] = reduce %x {dims=[1]}
  %5: f32[8] = all_reduce %4 {axes=[data, model], kind=max}  loc(norm.cpp:3)
  return %1, %5
}
)");
  REQUIRE_MESSAGE(module.ok(), std::string(module.status().message()));
  return explained(module->functions.at(0));
}

std::string refusal(const passes::CommunicationLimits& limits) {
  return std::string(check_limits(report_collectives(*program(), flat()), limits).message());
}

}  // namespace

TEST_CASE("a report has a line for every collective, with its line and its reason, and totals") {
  CHECK(report_collectives(*program(), flat()).text() ==
        "collectives on data=4, model=2, times of flat:\n"
        "  #0 all_reduce(sum) over model, 2 devices: f32 512 bytes, 512 on the wire, 0.5 us exposed, once; mlp.cpp:12: "
        "dot reduces a dim split on model\n"
        "  #1 all_gather over data, 4 devices: f32 1024 bytes, 768 on the wire, 0.8 us exposed, 3 times, backward; "
        "mlp.cpp:20: operand 1\n"
        "  #2 all_reduce(max) over data+model, 8 devices: f32 32 bytes, 56 on the wire, 0.1 us exposed, once; "
        "norm.cpp:3: as written\n"
        "  over data: 1 collective, 3072 bytes, 2304 on the wire, 2.4 us\n"
        "  over data+model: 1 collective, 32 bytes, 56 on the wire, 0.1 us\n"
        "  over model: 1 collective, 512 bytes, 512 on the wire, 0.5 us\n"
        "  in all: 3 collectives, 3616 bytes, 2872 on the wire, 3.0 us\n");
}

TEST_CASE("a plan tells what runs while a collective is under way") {
  const auto module = ir::parse(R"(
mesh @m = [x=2]
func @main(%a: f32[8, 8], %b: f32[8, 8]) -> f32[8, 8], f32[8, 8], f32[16, 8] on @m {
  %0: f32[8, 8] = all_reduce %a {axes=[x]}  loc(mlp.cpp:12)
  %1: f32[8, 8] = dot %b, %b {lhs=[1], rhs=[0]}
  %2: f32[16, 8] = all_gather %b {axes=[x], size=2, dim=0, tiled=true}  loc(mlp.cpp:14)
  return %0, %1, %2
}
)");
  REQUIRE_MESSAGE(module.ok(), std::string(module.status().message()));
  // The passes are to take it as it is, not as a program over global arrays.
  const passes::Plan plan = passes::run_pipeline(module->functions[0]->on_mesh({}));
  const passes::CollectiveReport report =
      report_collectives(*plan.function->on_mesh(module->functions[0]->mesh()), flat());
  REQUIRE(report.entries.size() == 2);
  CHECK(report.entries[0].is_overlapped);
  CHECK(to_string(report.entries[0].loc) == "mlp.cpp:12");
  CHECK_FALSE(report.entries[1].is_overlapped);
}

TEST_CASE("what is gathered for a transposition of the forward pass is not of the backward pass") {
  const auto is_backward = [](const char* how) {
    ir::Builder b;
    const ir::Value x = b.param(ir::Type(DType::f32, {4}));
    b.set_loc({"mlp.cpp", 12}, how);
    const ir::Value y =
        b.emit(ir::ops::all_gather, {x}, ir::ops::AllGather{.axes = {"x"}, .size = 2, .dim = 0, .tiled = true});
    return report_collectives(*b.finish({y})->on_mesh(*ir::Mesh::parse("x=2")), flat()).entries.at(0).is_backward;
  };
  CHECK_FALSE(is_backward("jvp, partition: operand 0 of transpose wanted as [_], is [x]"));
  CHECK(is_backward("jvp, transpose, partition: operand 0 of dot wanted as [_], is [x]"));
}

TEST_CASE("the report and the log say where there were too many ways to try them all") {
  // Five axes that the operands and the result have on other dims, in other orders.
  const auto module = ir::parse(R"(
mesh @m = [a=2, b=2, c=2, d=2, e=2]
func @main(%x: f32[64@(a, b, c, d, e), 64], %y: f32[64, 64@(e, d, c, b, a)]) -> f32[64, 64@(c, a, e, b, d)] on @m {
  %0: f32[64, 64@(c, a, e, b, d)] = add %x, %y  loc(far.cpp:3)
  return %0
}
)");
  REQUIRE_MESSAGE(module.ok(), std::string(module.status().message()));
  passes::PartitionWork work;
  const passes::CollectiveReport report =
      report_collectives(*passes::partition(module->functions[0], {.profile = &flat(), .work = &work}), flat());
  CHECK(work.assignments < 10);
  REQUIRE(!report.entries.empty());
  for (const passes::CollectiveEntry& e : report.entries) {
    CHECK(e.is_greedy);
    CHECK(e.reason.ends_with("too many ways to try them all"));
  }
  CHECK(report.text().find("far.cpp:3: operand ") != std::string::npos);
}

TEST_CASE("there is nothing to report of a program on no mesh, or without collectives") {
  ir::Builder b;
  const ir::FunctionRef f = b.finish({b.param(ir::Type(DType::f32, {2}))});
  CHECK(report_collectives(*f, flat()).text() == "no mesh, no collectives\n");
  CHECK(report_collectives(*f->on_mesh(*ir::Mesh::parse("x=2")), flat()).text() == "no collectives on x=2\n");
}

TEST_CASE("limits refuse the first collective that is over them") {
  CHECK(refusal({}).empty());
  CHECK(refusal({.max_wire_bytes = 2872}).empty());
  CHECK(refusal({.only_explicit = true}) ==
        "all_reduce(sum) over model of 512 bytes is not what the program says; mlp.cpp:12: dot reduces a dim split on "
        "model");
  CHECK(refusal({.max_wire_bytes = 600}) ==
        "all_gather over data of 1024 bytes takes what a device sends to 2816 bytes, past 600; mlp.cpp:20: operand 1");
  CHECK(refusal({.forbid = {{.kind = CollectiveKind::all_reduce, .axis = "data"}}}) ==
        "all_reduce(max) over data+model of 32 bytes is forbidden; norm.cpp:3: as written");
  CHECK(refusal({.forbid = {{.axis = "pod"}}}).empty());
}

TEST_CASE("a plan that gathers what it splits again says so") {
  const ir::MeshAtoms atoms(*ir::Mesh::parse("x=2, y=2"));
  const Shape dims = {8, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};  // more than are searched
  ir::Sharding from = ir::Sharding::replicated(15), to = from;
  from.dims[0] = atoms.of(ir::Axes{"x", "y"});
  to.dims[0] = atoms.of("y");
  std::string warning;
  const ir::LogSink before = ir::set_log_sink([&](std::string_view line) { warning = line; });
  ir::Builder b;
  const ir::Value x = b.param(local_type(ir::Type(DType::f32, dims), atoms, from));
  b.set_loc({"user.cpp", 7}, "partition: wanted otherwise");
  const ir::Value y = emit_reshard(b, x, plan_reshard(dims, DType::f32, atoms, from, to, flat()), atoms);
  ir::set_log_sink(before);
  CHECK(std::string(b.how()) == "partition: wanted otherwise");
  CHECK(warning ==
        "sheaf warning: user.cpp:7: f32[2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1] [(x, y), _, _, _, _, _, _, _, _, "
        "_, _, _, _, _, _] is gathered whole to be split again, as [y, _, _, _, _, _, _, _, _, _, _, _, _, _, _]");
  const passes::CollectiveReport report = report_collectives(*b.finish({y})->on_mesh(atoms.mesh()), flat());
  CHECK(report.entries.at(0).reason ==
        "wanted otherwise, gathered whole to be split again, too many ways to try them all");
  CHECK(report.entries.at(0).is_greedy);
  CHECK(check_limits(report, {.no_full_gathers = true}).message() ==
        "all_gather over x+y of 32 bytes gathers what is split again; user.cpp:7: wanted otherwise, gathered whole to "
        "be split again, too many ways to try them all");
}
