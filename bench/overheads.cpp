// What a library itself costs, apart from the arithmetic: writing an op down, compiling a kernel, calling it, and the
// first moments of a process.
#include <fmt/format.h>
#include <sheaf/sheaf.h>

#include <stdexcept>

#include "measure.h"
#include "new_process.h"

namespace bench {
namespace {

using namespace sheaf;
Result trace_one_op(const Options& options) {
  constexpr int ops = 1000;
  const Array x = abstract({64, 64});
  const auto f = [](Array v) {
    for (int i = 0; i < ops / 2; ++i) v = v * 1.5 + v;
    return v;
  };
  Result r = per(ops, compare([&] { eval_shape(f, x); }, options, {fmt::format("trace {}", ops)}));
  r.note = "mul and add, f32[64, 64]; goal 150 ns without checks";
  return r;
}

// A capturing lambda is its own function, and another factor another kernel.
Result compile_one_kernel(const Options& options) {
  const Array x = ones({1 << 20});  // little work would start in the interpreter, and be compiled beside it
  double factor = 1.25;
  const Work work = [&] {
    factor += 1.0 / 64;
    auto f = jit([factor](Array v) {
      const Array t = tanh(v * factor + 0.5), e = exp(t - v);
      return maximum((e * v + t) / (e + 1.5), 0.125) * 0.75;
    });
    f(x).wait();
  };
  const std::int64_t before = stats().kernels_compiled;
  Result r = compare(work, options, {"compile_chain"});
  if (stats().kernels_compiled == before) throw std::runtime_error("nothing was compiled");
  r.note = "first call of a chain of 10 with tanh, exp; 1M elements";
  return r;
}

Result hot_call(const Options& options) {
  constexpr int calls = 256;
  auto f = jit([](Array v, Array w) { return v * 0.5 + w; });
  const Array x = ones({8});
  Array y = x;
  const Work work = [&] {
    for (int i = 0; i < calls; ++i) y = f(y, x);
    y.wait();
  };
  Result r = per(calls, compare(work, options, {fmt::format("dispatch {}", calls)}));
  r.note = "y = f(y, x), f32[8], one wait in 256 calls; goal 500 ns";
  return r;
}

Result hot_round_trip(const Options& options) {
  auto f = jit([](Array v) { return v * 0.5 + 1.0; });
  Array y = ones({8});
  Result r = compare([&] { (y = f(y)).wait(); }, options, {"round_trip"});
  r.note = "y = f(y), f32[8], a wait in each; goal 2 us";
  return r;
}

Result eager_op(const Options& options) {
  Array y = ones({8});
  Result r = compare([&] { (y = y * 0.5).wait(); }, options, {"eager"});
  r.note = "y = y * 0.5, f32[8], a wait in each";
  return r;
}

// A body of one small kernel: what is left is the loop's own.
Result scan_step(const Options& options) {
  constexpr int steps = 1000;
  auto f = jit([](Array c, Array x) {
    return scan([](Array h, Array row) { return std::pair{h * 0.5 + row, none}; }, c, x).first;
  });
  const Array c = ones({8}), x = wave_array(1, {steps, 8});
  Result r = per(steps, compare([&] { f(c, x).wait(); }, options,
                                {fmt::format("scan {}", steps), values_of([&] { return f(c, x); })}));
  r.note = "carry f32[8], 1000 steps; goal 1 us";
  return r;
}

// Of what it leaves on disk, the first process finds nothing and the others everything.
Result fresh_process(bool has_cache, const Options& options) {
  const TemporaryFolder folder;
  const Work work = [&] { run_in_new_process({"--ten-ops"}, has_cache ? folder.path() : "off"); };
  Result r = compare(work, options, {has_cache ? "" : "new_process"});
  r.note = has_cache ? "from exec to exit, kernels on disk; goal 30 ms" : "from exec to exit; goal 300 ms";
  return r;
}

}  // namespace

void run_ten_ops() {
  const Array x = full({128, 128}, 0.5);                                // 1
  const Array y = x + x, z = y * x, e = exp(z), t = tanh(e);            // 2 to 5
  const Array product = dot(t, y), turned = transpose(product);         // 6, 7
  const Array rows = sum(turned, {.axes = {1}}), top = max(rows);       // 8, 9
  if (!where(top > 0.0, rows, 0.0)[0].item<bool>()) throw std::runtime_error("wrong result");  // 10 and more
}

std::vector<Row> overhead_rows() {
  return {{"trace one op", "", trace_one_op},
          {"compile one kernel", "", compile_one_kernel},
          {"dispatch, hot call", "", hot_call},
          {"round trip, hot call", "", hot_round_trip},
          {"round trip, eager op", "", eager_op},
          {"scan, one step", "", scan_step},
          {"ten new eager ops in a new process", "", [](const Options& o) { return fresh_process(false, o); }},
          {"ten eager ops in a new process, on disk", "", [](const Options& o) { return fresh_process(true, o); }}};
}

}  // namespace bench
