// Programs on several devices against the reference: every collective over every kind of group, in loops and branches,
// many at once.
#include "tests/runtime/spmd.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <random>
#include <thread>

#include "ir/eval_spmd.h"
#include "runtime/counters.h"
#include "tests/lap.h"

using namespace sheaf;
using namespace sheaf::tests;
using ir::FunctionRef;
using ir::Literal;
using ir::Literals;

namespace {

/// Values that make roundings, ties, overflows, NaNs and both zeros; small where they are to be added up exactly.
Literal random_literal(ir::Type type, std::mt19937& bits) {
  Literal x(type);
  for (std::int64_t i = 0; i < x.size(); ++i) {
    const auto b = static_cast<std::uint32_t>(bits());
    if (is_bool(type.dtype())) x.set_bits(i, b & 1);
    else if (is_int(type.dtype())) x.set_int(i, static_cast<std::int32_t>(b));
    else if (b % 16 == 0) x.set(i, std::vector<double>{0.0, -0.0, INFINITY, -INFINITY, NAN, 65504, 1e-7}[b / 16 % 7]);
    else x.set(i, std::ldexp(static_cast<double>(static_cast<std::int32_t>(b)), -31 + static_cast<int>(b % 13)));
  }
  return x;
}

std::vector<Literals> random_inputs(const FunctionRef& f, unsigned seed = 1) {
  std::mt19937 bits(seed);
  std::vector<Literals> inputs(f->mesh().size());
  for (Literals& of_device : inputs)
    for (ir::Value p : f->params()) of_device.push_back(random_literal(p.type(), bits));
  return inputs;
}

bool same_bits_everywhere(const std::vector<Literals>& a, const std::vector<Literals>& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t d = 0; d < a.size(); ++d)
    for (std::size_t j = 0; j < a[d].size(); ++j)
      if (!same_bits(a[d][j], b[d][j])) return false;
  return true;
}

void check_against_reference(const FunctionRef& f) {
  const std::vector<Literals> inputs = random_inputs(f);
  CHECK(same_bits_everywhere(run_local(f, inputs), ir::eval_spmd(f, inputs)));
}

struct Over {
  std::string mesh, axes;
  int n;  // devices in a group
};
const Over kGroups[] = {{"x=1", "x", 1},          {"x=2", "x", 2},
                        {"x=4", "x", 4},          {"x=8", "x", 8},
                        {"x=2, y=2", "x", 2},     {"x=2, y=2", "y, x", 4},
                        {"x=3, y=2", "x", 3},     {"x=2, y=4", "y", 4},
                        {"x=8", "\"x:(2)2\"", 2}, {"x=4, y=2", "y, \"x:(1)2\"", 4}};

/// Fewer on GPUs, where each program is compiled.
std::vector<Over> groups() {
  if (!is_on_gpus()) return {std::begin(kGroups), std::end(kGroups)};
  return {kGroups[2], kGroups[5], kGroups[6], kGroups[9]};
}
std::vector<std::string> dtypes() {
  if (is_on_gpus()) return {"bool", "i16", "u32", "bf16", "f64"};
  return {"bool", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "f16", "bf16", "f32", "f64"};
}

FunctionRef one_collective(const Over& over, const std::string& operand, const std::string& result,
                           const std::string& equation) {
  return parsed(fmt::format("mesh @m = [{}]\nfunc @f(%x: {}) -> {} on @m {{\n  %y: {} = {}\n  return %y\n}}\n",
                            over.mesh, operand, result, result, equation));
}

}  // namespace

TEST_CASE("reductions of every dtype and kind are those of the reference, on every kind of group") {
  for (const Over& over : groups())
    for (const char* kind : {"sum", "max", "min", "and", "or"})
      for (const std::string& dtype : dtypes()) {
        const bool is_logical = kind[0] == 'a' || kind[0] == 'o', is_bool = dtype[1] == 'o';
        if (is_logical != is_bool) continue;
        if (!is_logical && kind[0] != 's' && over.n != 3) continue;  // extremes are as sums, but for one function
        INFO(kind, " of ", dtype, " over ", over.axes, " of ", over.mesh);
        const std::string all = fmt::format("{}[{}, 3, 25]", dtype, 2 * over.n);
        check_against_reference(
            one_collective(over, all, all, fmt::format("all_reduce %x {{axes=[{}], kind={}}}", over.axes, kind)));
        check_against_reference(one_collective(
            over, all, fmt::format("{}[2, 3, 25]", dtype),
            fmt::format("reduce_scatter %x {{axes=[{}], size={}, tiled=true, kind={}}}", over.axes, over.n, kind)));
      }
}

TEST_CASE("what only moves is moved as the reference does, whole blocks and single elements") {
  for (const Over& over : groups())
    for (const std::string dtype : {"bool", "bf16", "f32", "f64"}) {
      if (is_on_gpus() && dtype != "bf16") continue;
      INFO(dtype, " over ", over.axes, " of ", over.mesh);
      const int n = over.n;
      const auto check = [&](const std::string& operand, const std::string& result, const std::string& equation) {
        INFO(equation);
        check_against_reference(one_collective(over, fmt::format("{}[{}]", dtype, operand),
                                               fmt::format("{}[{}]", dtype, result), equation));
      };
      const std::string of = fmt::format("%x {{axes=[{}], size={}", over.axes, n);
      check("3, 5", fmt::format("{}, 5", 3 * n), fmt::format("all_gather {}, tiled=true}}", of));
      check("3, 5", fmt::format("3, {}", 5 * n), fmt::format("all_gather {}, dim=1, tiled=true}}", of));
      check("3, 5", fmt::format("3, {}, 5", n), fmt::format("all_gather {}, dim=1}}", of));
      check("", fmt::format("{}", n), fmt::format("all_gather {}}}", of));
      check(fmt::format("3, {}", n), "3",
            fmt::format("reduce_scatter {}, dim=1, kind={}}}", of, std::string_view(dtype) == "bool" ? "or" : "max"));
      check(fmt::format("{}, 3, 5", 2 * n), fmt::format("2, 3, {}", 5 * n),
            fmt::format("all_to_all {}, split=0, concat=2, tiled=true}}", of));
      check(fmt::format("2, 3, {}", 3 * n), fmt::format("{}, 3, 3", 2 * n),
            fmt::format("all_to_all {}, split=2, concat=0, tiled=true}}", of));
      check(fmt::format("{}, 3, 5", n), fmt::format("3, 5, {}", n),
            fmt::format("all_to_all {}, split=0, concat=2}}", of));
      check(fmt::format("3, {}, 5", n), fmt::format("{}, 3, 5", n),
            fmt::format("all_to_all {}, split=1, concat=0}}", of));
      check("3, 5", "3, 5", fmt::format("ppermute %x {{axes=[{}], sources=[0], targets=[{}]}}", over.axes, n - 1));
    }
}

TEST_CASE("long operands, which are split over threads, and empty ones") {
  for (const int n : {2, 3, 8}) {
    if (is_on_gpus() && n != 3) continue;
    const Over over{fmt::format("x={}", n), "x", n};
    INFO(n, " devices");
    check_against_reference(one_collective(over, "f32[50003]", "f32[50003]", "all_reduce %x {axes=[x]}"));
    check_against_reference(
        one_collective(over, fmt::format("bf16[2, {}, 5001]", 3 * n), "bf16[2, 3, 5001]",
                       fmt::format("reduce_scatter %x {{axes=[x], size={}, dim=1, tiled=true}}", n)));
    check_against_reference(one_collective(over, "f32[3, 20001]", fmt::format("f32[3, {}]", n * 20001),
                                           fmt::format("all_gather %x {{axes=[x], size={}, dim=1, tiled=true}}", n)));
    check_against_reference(one_collective(over, "f32[0, 3]", "f32[0, 3]", "all_reduce %x {axes=[x]}"));
    check_against_reference(one_collective(over, "f32[0, 3]", "f32[0, 3]",
                                           fmt::format("all_gather %x {{axes=[x], size={}, tiled=true}}", n)));
    check_against_reference(one_collective(over, fmt::format("f32[{}, 0]", n), "f32[0]",
                                           fmt::format("reduce_scatter %x {{axes=[x], size={}}}", n)));
  }
}

TEST_CASE("axis_index is each device's own") {
  for (const Over& over : groups()) {
    INFO(over.axes, " of ", over.mesh);
    check_against_reference(one_collective(over, "f32[]", "i32[]", fmt::format("axis_index {{axes=[{}]}}", over.axes)));
  }
}

namespace {

/// Each device at its own pace: twice the sum over y, as often as the group along x decides.
const char* const kLoops = R"(mesh @m = [x=2, y=2]
func @f(%c: f32[300], %xs: f32[5, 300], %i: i32[]) -> f32[300], f32[5, 300] on @m {
  %a: f32[300], %b: f32[5, 300] = scan %c, %xs {carry=1, length=5} (%c: f32[300], %x: f32[300]) {
    %0: f32[300] = all_reduce %c {axes=[y]}
    %1: f32[300] = ppermute %x {axes=[x], sources=[0, 1], targets=[1, 0]}
    %2: f32[300] = add %0, %1
    %3: f32[300] = mul %2, 0.25:f32
    return %3, %0
  }
  %row: i32[] = axis_index {axes=[x]}
  %d: f32[300] = cond %row, %a (%a: f32[300]) {
    return %a
  } (%a: f32[300]) {
    %0: f32[300] = all_reduce %a {axes=[y], kind=max}
    return %0
  }
  %turns: i32[], %e: f32[300] = while %row, %d (%t: i32[], %e: f32[300]) {
    %0: bool[] = lt %t, 3:i32
    return %0
  } (%t: i32[], %e: f32[300]) {
    %0: i32[] = add %t, 1:i32
    %1: f32[300] = all_reduce %e {axes=[y]}
    return %0, %1
  }
  return %e, %b
}
)";

}  // namespace

TEST_CASE("collectives in loops and branches meet each time they are run") {
  const FunctionRef f = parsed(kLoops);
  runtime::CollectiveCounters& sums =
      runtime::counters().collectives[static_cast<int>(ir::lowering::Collective::Kind::all_reduce)];
  const std::int64_t meetings = sums.meetings, bytes = sums.bytes;
  check_against_reference(f);
  // Two groups along y: five times in the scan; one of them in the branch; three and two times in the while loop.
  CHECK(sums.meetings - meetings == 2 * 5 + 1 + 3 + 2);
  CHECK(sums.bytes - bytes == (2 * 5 + 1 + 3 + 2) * 2 * 300 * 4);
}

TEST_CASE("runs follow each other without waiting for the host, and many threads may start them") {
  const FunctionRef f = parsed(kLoops);
  const runtime::ExecutablePtr executable = load_local(f);
  const std::vector<Literals> inputs = random_inputs(f, 2);
  const std::vector<Literals> expected = ir::eval_spmd(f, inputs);
  const PerDevice buffers = to_devices(inputs);
  std::vector<std::thread> threads;
  std::vector<PerDevice> outputs(100);
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (std::size_t k = t; k < outputs.size(); k += 4) outputs[k] = *executable->run_spmd(first_devices(4), buffers);
    });
  for (std::thread& thread : threads) thread.join();
  for (const PerDevice& one : outputs) CHECK(same_bits_everywhere(to_host(one, *f), expected));
}

TEST_CASE("a second run allocates nothing that the first did not") {
  const FunctionRef f = parsed(kLoops);
  const runtime::ExecutablePtr executable = load_local(f);
  const PerDevice buffers = to_devices(random_inputs(f, 3));
  (void)to_host(start(executable, buffers), *f);
  const std::int64_t reserved = runtime::device(0).allocator().stats().bytes_reserved;
  for (int i = 0; i < 5; ++i) (void)to_host(start(executable, buffers), *f);
  CHECK(runtime::device(0).allocator().stats().bytes_reserved == reserved);
}

TEST_CASE("a program that is warm has memory for all its devices") {
  const FunctionRef f = parsed(R"(mesh @m = [x=8]
func @f(%x: f32[1000, 1000]) -> f32[1000, 1000], f32[1000, 1000] on @m {
  %s: f32[1000, 1000] = all_reduce %x {axes=[x]}
  %y: f32[1000, 1000] = ppermute %s {axes=[x], sources=[0], targets=[1]}
  %z: f32[1000, 1000] = all_reduce %y {axes=[x], kind=max}
  return %y, %z
}
)");
  const runtime::ExecutablePtr executable = load_local(f);
  const PerDevice buffers = to_devices(random_inputs(f, 6));
  REQUIRE(executable->warm(runtime::device(0)).ok());
  const std::int64_t reserved = runtime::device(0).allocator().stats().bytes_reserved;
  for (const auto& of_device : start(executable, buffers))
    for (const runtime::BufferPtr& y : of_device) CHECK(y->wait().ok());
  CHECK(runtime::device(0).allocator().stats().bytes_reserved == reserved);
}

TEST_CASE("donated inputs give their memory to the outputs of their own device") {
  const FunctionRef f = parsed(R"(mesh @m = [x=4]
func @step(%w: f32[1000], %g: f32[1000]) -> f32[1000] on @m {
  %s: f32[1000] = all_reduce %g {axes=[x]}
  %v: f32[1000] = add %w, %s
  return %v
}
)");
  const runtime::ExecutablePtr executable = load_local(f, {true, false});
  const std::vector<Literals> inputs = random_inputs(f, 4);
  const PerDevice buffers = to_devices(inputs);
  std::vector<const std::byte*> memory;
  for (const auto& of_device : buffers) memory.push_back(of_device[0]->pin()->storage()->data());
  const PerDevice outputs = start(executable, buffers, {.donated = {true, false}, .loc = {"train.cpp", 31}});
  CHECK(same_bits_everywhere(to_host(outputs, *f), ir::eval_spmd(f, inputs)));
  for (std::size_t d = 0; d < outputs.size(); ++d) {
    CHECK(outputs[d][0]->pin()->storage()->data() == memory[d]);
    CHECK(buffers[d][0]->is_donated());
    CHECK(!buffers[d][1]->is_donated());
  }
}

TEST_CASE("an all_reduce is done in place, where its operand is not read later") {
  const FunctionRef f = parsed(R"(mesh @m = [x=3]
func @step(%a: f32[1000], %b: f32[1000]) -> f32[1000], f32[1000] on @m {
  %0: f32[1000] = neg %a
  %s: f32[1000] = all_reduce %0 {axes=[x]}
  %1: f32[1000] = mul %s, %s
  %m: f32[1000] = all_reduce %1 {axes=[x]}
  %n: f32[1000] = all_reduce %b {axes=[x]}
  return %m, %n
}
)");
  const runtime::ExecutablePtr executable = load_local(f, {false, true});
  CHECK(executable->program().arena_bytes < 2 * 4000);
  CHECK(executable->program().alias == std::vector<int>{-1, 1});
  const std::vector<Literals> inputs = random_inputs(f, 5);
  const std::vector<Literals> expected = ir::eval_spmd(f, inputs);
  CHECK(same_bits_everywhere(to_host(start(executable, to_devices(inputs)), *f), expected));
  CHECK(same_bits_everywhere(to_host(start(executable, to_devices(inputs), {.donated = {false, true}}), *f), expected));
  check_against_reference(parsed(R"(mesh @m = [x=3]
func @kept(%a: f32[1000]) -> f32[1000], f32[1000] on @m {
  %0: f32[1000] = neg %a
  %s: f32[1000] = all_reduce %0 {axes=[x]}
  %g: f32[3000] = all_gather %s {axes=[x], size=3, tiled=true}
  %1: f32[1000] = reduce_scatter %g {axes=[x], size=3, tiled=true}
  return %0, %1
}
)"));
}
