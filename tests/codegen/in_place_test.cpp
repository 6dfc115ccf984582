// What a step that changes a part of an array moves: its plan says in place, and the kernels store the part alone.
#include <doctest/doctest.h>

#include <numeric>

#include "codegen/kir/interp.h"
#include "codegen/lower.h"
#include "ir/eval.h"
#include "ir/sample.h"
#include "ir/text.h"
#include "passes/pipeline.h"
#include "tests/lap.h"

using namespace sheaf;
using codegen::BufferRef;

namespace {

constexpr std::int64_t kArray = 100 * 64 * 4, kRow = 64 * 4;  // bytes

std::int64_t stored_bytes(const kir::Phase& phase, const kir::Block& block) {
  std::int64_t bytes = 0;
  for (const kir::Stmt& s : block) {
    if (const auto* store = std::get_if<kir::Store>(&s)) bytes += size_bytes(phase.values[store->value]);
    if (const auto* loop = std::get_if<kir::For>(&s))
      bytes += phase.axes[loop->axis].extent * stored_bytes(phase, loop->body);
    if (const auto* branch = std::get_if<kir::If>(&s)) bytes += stored_bytes(phase, branch->then);
  }
  return bytes;
}

/// By all steps, those of a loop once; what a branch holds counts as if it were always taken.
std::int64_t stored_bytes(const codegen::Program& p, const std::vector<codegen::Step>& steps) {
  std::int64_t bytes = 0;
  for (const codegen::Step& step : steps) {
    if (step.control) {
      bytes += stored_bytes(p, std::get<codegen::Loop>(step.control->what).body);
      continue;
    }
    for (const kir::Phase& phase : p.kernels[step.kernel].kir->phases) {
      bytes += phase.axes[0].extent * stored_bytes(phase, phase.body);
    }
  }
  return bytes;
}

/// As the runtime does: a result with an alias takes the buffer of its parameter.
ir::Literals run(const codegen::Program& p, ir::Literals inputs) {
  ir::Literals outputs;
  for (ir::Type t : p.outputs) outputs.emplace_back(t);
  std::vector<std::byte> arena(static_cast<std::size_t>(p.arena_bytes), std::byte{0xa5});
  const auto data_of = [&](const BufferRef& r) -> void* {
    if (r.space == BufferRef::Space::arena) return arena.data() + r.index;
    if (r.space == BufferRef::Space::constant) return const_cast<std::byte*>(p.constants[r.index].data.data());
    if (r.space == BufferRef::Space::input) return inputs[r.index].data();
    return p.alias[r.index] < 0 ? outputs[r.index].data() : inputs[p.alias[r.index]].data();
  };
  for (const codegen::Step& step : p.steps) {
    std::vector<void*> buffers;
    for (const BufferRef& r : step.buffers) buffers.push_back(data_of(r));
    kir::Interpreter(*p.kernels[step.kernel].kir).run(buffers.data());
  }
  for (std::size_t j = 0; j < outputs.size(); ++j) {
    if (p.alias[j] >= 0) outputs[j] = inputs[p.alias[j]];
  }
  return outputs;
}

struct Moved {
  std::int64_t stored = 0, arena = 0;
  bool operator==(const Moved&) const = default;
};
std::ostream& operator<<(std::ostream& out, const Moved& m) {
  return out << m.stored << " stored, " << m.arena << " in the arena";
}

/// Of `func @f(%c: f32[100, 64], %row: f32[1, 64], %at: i32[2], %to: i32[2]) -> results { body }`, whose results must
/// be the reference's.
Moved moved(bool is_donated, const std::string& results, const std::string& body) {
  const auto module = ir::parse("func @f(%c: f32[100, 64], %row: f32[1, 64], %at: i32[2], %to: i32[2]) -> " + results +
                                " {\n" + body + "}\n");
  REQUIRE(module.status().ToString() == "OK");
  const ir::FunctionRef f = module->functions[0];
  const codegen::Program p = codegen::lower(passes::run_pipeline(f, {.donated = {is_donated, false, false, false}}));
  ir::Literals inputs = ir::random_inputs(*f, 1);
  inputs[2].set_int(0, 17), inputs[2].set_int(1, 0);
  inputs[3].set_int(0, 40), inputs[3].set_int(1, 0);
  const ir::Literals want = ir::eval(*f, inputs), got = run(p, inputs);
  for (std::size_t j = 0; j < want.size(); ++j) {
    for (std::int64_t i = 0; i < want[j].size(); ++i) REQUIRE(got[j].get(i) == doctest::Approx(want[j].get(i)));
  }
  return {stored_bytes(p, p.steps), p.arena_bytes};
}

const std::string kUpdate = "dynamic_update_slice %c, %row, %at {dims=[0, 1], index_dim=[0]}\n";

}  // namespace

TEST_CASE("a step that updates one row of a donated array stores that row and allocates nothing") {
  const std::string body = "%0: f32[100, 64] = " + kUpdate + "return %0\n";
  CHECK(moved(true, "f32[100, 64]", body) == Moved{kRow, 0});
  CHECK(moved(false, "f32[100, 64]", body) == Moved{kArray + kRow, 0});
}

TEST_CASE("updates of updates happen in one buffer, with one copy at most") {
  const std::string body = "%0: f32[100, 64] = " + kUpdate +
                           "%1: f32[100, 64] = dynamic_update_slice %0, %row, %to {dims=[0, 1], index_dim=[0]}\n"
                           "%2: f32[100, 64] = dynamic_update_slice %1, %row, %at {dims=[0, 1], index_dim=[0]}\n"
                           "return %2\n";
  CHECK(moved(true, "f32[100, 64]", body) == Moved{3 * kRow, 0});
  CHECK(moved(false, "f32[100, 64]", body) == Moved{kArray + 3 * kRow, 0});
}

TEST_CASE("a row computed from the one it replaces is stored twice, the array not at all") {
  const std::string body =
      "%0: f32[1, 64] = dynamic_slice %c, %at {dims=[0, 1], sizes=[1, 64], index_dim=[0]}\n"
      "%1: f32[1, 64] = add %0, %row\n"
      "%2: f32[100, 64] = dynamic_update_slice %c, %1, %at {dims=[0, 1], index_dim=[0]}\n"
      "return %2\n";
  CHECK(moved(true, "f32[100, 64]", body) == Moved{2 * kRow, kRow});
}

TEST_CASE("a row computed from others is stored once, where it belongs") {
  const std::string body =
      "%0: f32[1, 64] = exp %row\n"
      "%1: f32[100, 64] = dynamic_update_slice %c, %0, %at {dims=[0, 1], index_dim=[0]}\n"
      "return %1\n";
  CHECK(moved(true, "f32[100, 64]", body) == Moved{kRow, 0});
}

TEST_CASE("what reads the updated array reads it from its place") {
  const std::string body = "%0: f32[100, 64] = " + kUpdate +
                           "%1: f32[1, 64] = dynamic_slice %0, %to {dims=[0, 1], sizes=[1, 64], index_dim=[0]}\n"
                           "%2: f32[100] = reduce %0 {dims=[1]}\n"
                           "return %0, %1, %2\n";
  CHECK(moved(true, "f32[100, 64], f32[1, 64], f32[100]", body) == Moved{2 * kRow + 400, 0});
}

TEST_CASE("an array that is read after its update is copied") {
  const std::string body = "%0: f32[100, 64] = " + kUpdate +
                           "%1: f32[100, 64] = mul %0, 2.0:f32\n"
                           "%2: f32[100, 64] = dot %1, %c {lhs_batch=[0, 1], rhs_batch=[0, 1]}\n"
                           "return %0, %2\n";
  CHECK(moved(true, "f32[100, 64], f32[100, 64]", body).stored >= kArray + kRow);
}

TEST_CASE("a scatter into a donated array stores its updates alone") {
  const std::string body =
      "%0: i32[2, 1] = reshape %at {shape=[2, 1]}\n"
      "%1: f32[2, 64] = broadcast %row {shape=[2, 64], dims=[0, 1]}\n"
      "%2: f32[100, 64] = scatter %c, %0, %1 {update_window_dims=[1], inserted=[0], scatter_dims=[0], index_dim=[1]}\n"
      "return %2\n";
  const Moved in_place = moved(true, "f32[100, 64]", body), copied = moved(false, "f32[100, 64]", body);
  CHECK(copied.stored - in_place.stored == kArray);
}

TEST_CASE("a scan that updates one row per step stores that row at each, in the buffer of its result") {
  const auto module = ir::parse(R"(func @f(%c: f32[100, 64], %rows: f32[8, 1, 64], %at: i32[8, 2]) -> f32[100, 64] {
  %r: f32[100, 64] = scan %c, %rows, %at {carry=1, length=8} (%c1: f32[100, 64], %row: f32[1, 64], %at1: i32[2]) {
    %0: f32[1, 64] = dynamic_slice %c1, %at1 {dims=[0, 1], sizes=[1, 64], index_dim=[0]}
    %1: f32[1, 64] = add %0, %row
    %2: f32[100, 64] = dynamic_update_slice %c1, %1, %at1 {dims=[0, 1], index_dim=[0]}
    return %2
  }
  return %r
})");
  REQUIRE(module.status().ToString() == "OK");
  const ir::FunctionRef f = module->functions[0];
  for (const bool is_donated : {true, false}) {
    const codegen::Program p = codegen::lower(passes::run_pipeline(f, {.donated = {is_donated, false, false}}));
    REQUIRE(p.steps.size() == 1);
    const auto& loop = std::get<codegen::Loop>(p.steps[0].control->what);
    CHECK(loop.carries[0].in_place());
    CHECK(loop.carries[0].result.space == BufferRef::Space::output);
    CHECK(p.alias[0] == (is_donated ? 0 : -1));
    CHECK(Moved{stored_bytes(p, p.steps), p.arena_bytes} == Moved{2 * kRow, kRow});
  }
  ir::Literals inputs = ir::random_inputs(*f, 1);
  for (std::int64_t t = 0; t < 8; ++t) inputs[2].set_int(2 * t, t % 3), inputs[2].set_int(2 * t + 1, 0);
  CHECK(tests::run(f, inputs, runtime::Tier::interpreted)[0] == ir::eval(*f, inputs)[0]);
}
