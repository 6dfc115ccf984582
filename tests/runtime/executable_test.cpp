// Dispatch, order, donation, errors and steady state: the state diagram of docs/async.md, case by case.
#include "runtime/executable.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <thread>

#include "ir/log.h"
#include "runtime/assemble.h"
#include "runtime/counters.h"
#include "tests/runtime/programs.h"

namespace sheaf::runtime {
namespace {

using testing::floats;
using testing::only_value;
using testing::run_one;

constexpr std::int64_t kNeverInline = 1'000'000'000;
const Loc kCall{"train.cpp", 31};

ExecutablePtr gated(std::int64_t unit_ps = kNeverInline, std::vector<int> alias = {}) {
  return testing::load({.rows = 10, .unit_ps = unit_ps, .key = "gated", .alias = std::move(alias)},
                       {.tier = Tier::compiled, .cache = &testing::gated_cache()});
}

TEST_CASE("small work with ready inputs is done by the caller, large work is queued") {
  const std::int64_t inline_before = counters().executions_inline;
  CHECK(only_value(run_one(gated(1000), {floats(10, 1), floats(10, 3)})) == 13);
  CHECK(counters().executions_inline == inline_before + 1);
  const ExecutablePtr large = testing::load({.unit_ps = kNeverInline, .key = "large"},
                                            {.tier = Tier::compiled, .cache = &testing::gated_cache()});
  testing::is_gate_open = false;
  const BufferPtr out = run_one(large, {floats(10, 1), floats(10, 3)});
  CHECK(out->is_pending());
  // Small, but its input is not ready: it waits its turn instead of making the caller wait.
  const BufferPtr next = run_one(testing::load({}), {out, floats(10, 0)});
  CHECK(next->is_pending());
  testing::open_gate();
  CHECK(only_value(out) == 13);
  CHECK(only_value(next) == 52);
  CHECK(counters().executions_inline == inline_before + 1);
}

TEST_CASE("runs on one device happen in the order of dispatch") {
  const ExecutablePtr step = gated();
  testing::is_gate_open = false;
  BufferPtr x = floats(10, 1);
  const BufferPtr zero = floats(10, 0);
  for (int i = 0; i < 8; ++i) x = run_one(step, {x, zero});
  testing::open_gate();
  CHECK(only_value(x) == 65536);
}

TEST_CASE("a wrong call is refused at once and changes nothing") {
  const ExecutablePtr step = gated();
  const BufferPtr a = floats(10, 1), b = floats(10, 3);
  const std::vector<BufferPtr> one = {a}, wrong_size = {a, floats(9, 1)}, good = {a, b};
  CHECK(step->run(device(0), one).status().message() == "step takes 2 inputs, 1 were given");
  CHECK(step->run(device(0), wrong_size, {.donated = {true, true}, .loc = kCall}).status().message() ==
        "input 1 of step is 3600 bytes, f32[10, 100] has 4000");
  ensure_devices(2);
  CHECK(step->run(device(1), good).status().message() == "input 0 of step is on cpu:0, the run is on cpu:1");
  CHECK(!a->is_donated());
  CHECK(only_value(run_one(step, good)) == 13);
}

TEST_CASE("a donated input gives its memory to the output and is dead from then on") {
  const ExecutablePtr step = gated(1000, {0});
  const BufferPtr a = floats(10, 1, {"data.cpp", 2}), b = floats(10, 3);
  const std::byte* memory = a->view()->get();
  const BufferPtr out = run_one(step, {a, b}, {.donated = {true, false}, .loc = kCall});
  CHECK(out->view()->get() == memory);
  CHECK(only_value(out) == 13);
  CHECK(a->is_donated());
  const std::string error =
      "this array, made at data.cpp:2, was donated to step at train.cpp:31 and its memory is no longer its own: use what "
      "step returned";
  CHECK(a->wait().message() == error);
  CHECK(a->view().status().message() == error);
  const std::vector<BufferPtr> again = {a, b};
  CHECK(step->run(device(0), again).status().message() == error);
}

TEST_CASE("an input that is donated without an output to take its memory is freed by the run") {
  const ExecutablePtr step = gated(1000);
  const BufferPtr a = floats(10, 1), b = floats(10, 3);
  CHECK(only_value(run_one(step, {a, b}, {.donated = {false, true}, .loc = kCall})) == 13);
  CHECK(b->is_donated());
  CHECK(!a->is_donated());
}

TEST_CASE("memory that is read elsewhere is not overwritten by a donation") {
  const ExecutablePtr step = gated(1000, {0}), slow = gated();
  const BufferPtr b = floats(10, 3);
  SUBCASE("another input of the same run") {
    const BufferPtr a = floats(10, 1);
    CHECK(only_value(run_one(step, {a, a}, {.donated = {true, false}, .loc = kCall})) == 7);
    CHECK(a->is_donated());
  }
  SUBCASE("donated twice") {
    const BufferPtr a = floats(10, 1);
    CHECK(only_value(run_one(step, {a, a}, {.donated = {true, true}, .loc = kCall})) == 7);
  }
  SUBCASE("a host view") {
    const BufferPtr a = floats(10, 1);
    const auto view = *a->view();
    CHECK(only_value(run_one(step, {a, b}, {.donated = {true, false}, .loc = kCall})) == 13);
    CHECK(*reinterpret_cast<const float*>(view.get()) == 1);
  }
  SUBCASE("a run that was dispatched before") {
    const BufferPtr a = floats(10, 1);
    testing::is_gate_open = false;
    const BufferPtr earlier = run_one(slow, {a, b});
    const BufferPtr later = run_one(step, {a, b}, {.donated = {true, false}, .loc = kCall});
    CHECK(later->is_pending());
    testing::open_gate();
    CHECK(only_value(earlier) == 13);
    CHECK(only_value(later) == 13);
  }
  SUBCASE("a copy to another device") {
    ensure_devices(2);
    testing::is_gate_open = false;
    const BufferPtr blocker = run_one(slow, {floats(10, 0, kCall, device(1)), floats(10, 0, kCall, device(1))});
    const BufferPtr a = run_one(slow, {floats(10, 1), floats(10, 0)});
    const Region all{.dims = {a->bytes()}, .start = {0}};
    const BufferPtr copy = *assemble(device(1), a->bytes(), 1, {{a, all, all, {a->bytes()}}}, kCall);
    const BufferPtr later = run_one(step, {a, b}, {.donated = {true, false}, .loc = kCall});
    CHECK(later->is_pending());
    testing::open_gate();
    CHECK(only_value(copy) == 4);
    CHECK(only_value(later) == 25);
    CHECK(only_value(blocker) == 0);
  }
}

TEST_CASE("an aliased output begins with its input also when nothing was donated") {
  codegen::Program program;
  program.name = "identity";
  program.inputs = program.outputs = {ir::Type(DType::f32, {10, testing::kRow})};
  program.alias = {0};
  const ExecutablePtr identity = *Executable::load(std::move(program));
  const BufferPtr a = floats(10, 5);
  const BufferPtr out = run_one(identity, {a});
  CHECK(only_value(out) == 5);
  CHECK(out->view()->get() != a->view()->get());
}

TEST_CASE("an error belongs to the arrays that failed and to what is computed from them") {
  const ExecutablePtr bad = testing::load({.offset = 1, .key = "bad"}), good = testing::load({});
  const BufferPtr a = floats(10, 1), b = floats(10, 3);
  BufferPtr failed = run_one(bad, {a, b});
  const BufferPtr heir = run_one(good, {failed, b}), heirs_heir = run_one(good, {b, heir});
  const std::string error(heirs_heir->wait().message());
  CHECK(error.starts_with("model.cpp:7: affine of step: "));
  CHECK(failed->wait().message() == error);
  CHECK(heir->to_host({}).message() == error);
  CHECK(only_value(run_one(good, {a, b})) == 13);
}

TEST_CASE("an error that no one reads is logged once when its array is dropped") {
  std::vector<std::string> lines;
  ir::LogSink before = ir::set_log_sink([&](std::string_view line) { lines.emplace_back(line); });
  const ExecutablePtr bad = testing::load({.offset = 1, .key = "bad"}), good = testing::load({});
  const BufferPtr a = floats(10, 1), b = floats(10, 3);
  (void)run_one(bad, {a, b})->wait();  // read: not logged
  (void)run_one(good, {run_one(bad, {a, b}), b});
  (void)Buffer::failed(device(0), 4, absl::InternalError("lost"), kCall);
  CHECK(device(0).queue().drain().ok());
  ir::set_log_sink(before);
  REQUIRE(lines.size() == 2);
  std::ranges::sort(lines);  // the queue and this thread dropped one each
  CHECK(lines[0] == "sheaf warning: an error that no one read: lost");
  CHECK(lines[1].starts_with("sheaf warning: an error that no one read: model.cpp:7: affine of step: "));
}

TEST_CASE("steady state takes no fresh memory from the system") {
  const ExecutablePtr step = testing::load({.rows = 2000, .unit_ps = 20'000, .key = "steady", .alias = {0}},
                                           {.tier = Tier::compiled, .cache = &testing::gated_cache()});
  const BufferPtr zero = floats(2000, 0);
  BufferPtr x = floats(2000, 1);
  auto round = [&] {
    x = run_one(step, {x, zero}, {.donated = {true, false}, .loc = kCall});
    const BufferPtr y = run_one(step, {x, zero});
    CHECK(y->wait().ok());
  };
  round();
  const AllocatorStats before = Allocator::host().stats();
  for (int i = 0; i < 20; ++i) round();
  CHECK(x->wait().ok());
  const AllocatorStats after = Allocator::host().stats();
  CHECK(after.fresh_bytes == before.fresh_bytes);
  CHECK(after.regions == before.regions);
}

TEST_CASE("warm compiles everything and touches the memory, so that the first run does neither") {
  std::atomic<int> compiled{0};
  static auto* const cache = new KernelCache([&](const codegen::KernelCode&) {
    ++compiled;
    return CompiledKernel{.phases = {testing::gated_affine}, .owner = nullptr};
  });
  const ExecutablePtr step = testing::load({.rows = 1000, .unit_ps = 1, .key = "warm"}, {.cache = cache});
  CHECK(compiled == 0);  // tiny by its estimate
  const BufferPtr a = floats(1000, 1), b = floats(1000, 3);
  CHECK(step->warm(device(0)).ok());
  const std::int64_t fresh = Allocator::host().stats().fresh_bytes, interpreted = counters().interpreted_launches;
  CHECK(only_value(run_one(step, {a, b})) == 13);
  CHECK(compiled == 1);
  CHECK(Allocator::host().stats().fresh_bytes == fresh);
  CHECK(counters().interpreted_launches == interpreted);
}

TEST_CASE("eight threads create, call and destroy executables, and every result is right") {
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      const auto value = static_cast<float>(t);
      const std::vector<float> ones(10 * testing::kRow, 1), values(10 * testing::kRow, value);
      for (int i = 0; i < 30; ++i) {
        auto step = Executable::load(
            testing::affine_program({.unit_ps = t % 2 ? 1000 : kNeverInline, .key = "shared", .alias = {0}}),
            {.tier = Tier::compiled, .cache = &testing::gated_cache()});
        BufferPtr x = *Buffer::from_host(device(0), std::as_bytes(std::span(ones)), kCall);
        const BufferPtr b = *Buffer::from_host(device(0), std::as_bytes(std::span(values)), kCall);
        for (int k = 0; k < 3; ++k) {
          const std::vector<BufferPtr> inputs = {x, b};
          x = (*(*step)->run(device(0), inputs, {.donated = {true, false}, .loc = kCall}))[0];
        }
        step = absl::UnknownError("destroyed while its runs may still be queued");
        std::vector<float> out(10 * testing::kRow);
        if (!x->to_host(std::as_writable_bytes(std::span(out))).ok() || out.front() != 64 + 63 * value ||
            out.back() != out.front())
          ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
}

TEST_CASE("the compiled tier runs real machine code with the interpreter's bits") {
  const ExecutablePtr compiled = testing::load({.rows = 50, .key = "real affine"}, {.tier = Tier::compiled});
  const ExecutablePtr interpreted = testing::load({.rows = 50, .key = "real affine"});
  const BufferPtr a = floats(50, 0.1f), b = floats(50, -1e-3f);
  CHECK(only_value(run_one(compiled, {a, b})) == only_value(run_one(interpreted, {a, b})));
}

}  // namespace
}  // namespace sheaf::runtime
