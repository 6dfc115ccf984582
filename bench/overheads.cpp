// What Sheaf itself costs, apart from the arithmetic: writing a program down, compiling it, calling it, and the first
// moments of a process. These rows have a goal instead of a reference, or neither.
#include <fmt/format.h>
#include <sheaf/sheaf.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <stdexcept>

#include "measure.h"

namespace bench {
namespace {

using namespace sheaf;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

Result trace_one_op(const Options& options) {
  constexpr int ops = 1000;
  const Array x = abstract({64, 64});
  const auto f = [](Array v) {
    for (int i = 0; i < ops / 2; ++i) v = v * 1.5 + v;
    return v;
  };
  return {.ours = seconds_of([&] { eval_shape(f, x); }, options) / ops, .note = "mul and add, f32[64, 64]"};
}

// A capturing lambda is its own function, and another factor another kernel.
Result compile_one_kernel(const Options& options) {
  const Array x = ones({1 << 20});  // little work would start in the interpreter, and be compiled beside it
  double seconds = 0;
  std::int64_t kernels = 0;
  const int count = options.quick ? 3 : 15;
  for (int i = -1; i < count; ++i) {  // the first one loads the compiler
    const double factor = 1.25 + i / 64.0;
    auto f = jit([factor](Array v) {
      const Array t = tanh(v * factor + 0.5), e = exp(t - v);
      return maximum((e * v + t) / (e + 1.5), 0.125) * 0.75;
    });
    const std::int64_t before = stats().kernels_compiled;
    const Clock::time_point start = Clock::now();
    f(x).wait();
    if (i < 0) continue;
    seconds += seconds_since(start);
    kernels += stats().kernels_compiled - before;
  }
  if (kernels == 0) throw std::runtime_error("nothing was compiled");
  return {.ours = seconds / static_cast<double>(kernels),
          .note = fmt::format("mean of {}: first call of a chain of 10 with tanh, exp", kernels)};
}

Result hot_call(const Options& options) {
  constexpr int calls = 256;
  constexpr double goal = 0.5e-6;
  auto f = jit([](Array v, Array w) { return v * 0.5 + w; });
  const Array x = ones({8});
  Array y = x;
  const Work work = [&] {
    for (int i = 0; i < calls; ++i) y = f(y, x);
    y.wait();
  };
  Result r{.ours = seconds_of(work, options) / calls,
           .reference = goal,
           .note = "y = f(y, x), f32[8], one wait in 256 calls"};
  r.ratio = r.ours / goal;
  return r;
}

Result hot_round_trip(const Options& options) {
  auto f = jit([](Array v) { return v * 0.5 + 1.0; });
  Array y = ones({8});
  return {.ours = seconds_of([&] { (y = f(y)).wait(); }, options), .note = "y = f(y), f32[8], a wait in each"};
}

Result eager_op(const Options& options) {
  Array y = ones({8});
  return {.ours = seconds_of([&] { (y = y * 0.5).wait(); }, options), .note = "y = y * 0.5, f32[8], a wait in each"};
}

// A body of one small kernel: what is left is the loop's own.
Result scan_step(const Options& options) {
  constexpr int steps = 1000;
  constexpr double goal = 1e-6;
  auto f = jit([](Array c, Array x) {
    return scan([](Array h, Array row) { return std::pair{h * 0.5 + row, none}; }, c, x).first;
  });
  const Array c = ones({8}), x = ones({steps, 8});
  Result r{.ours = seconds_of([&] { f(c, x).wait(); }, options) / steps,
           .reference = goal,
           .note = "carry f32[8], 1000 steps"};
  r.ratio = r.ours / goal;
  return r;
}

struct Layer {
  Array in, out, scale;  // [width, 4 width], [4 width, width], [width]
};

Array layer(const Array& x, const Layer& l) {
  const Array n = layer_norm(x, l.scale, l.scale);
  const Array weights = softmax(matmul(n, swapaxes(n, -1, -2)) * 0.125);
  return x + matmul(gelu_tanh(matmul(matmul(weights, n), l.in)), l.out);
}

// Gradient of `layers` layers with attention, from the first call to the first result; `scanned`: one body for all.
Result compile_layers(int layers, bool scanned) {
  const Array x = full({4, 32, 64}, 0.1);
  const Layer l{.in = full({layers, 64, 256}, 0.01), .out = full({layers, 256, 64}, 0.01), .scale = ones({layers, 64})};
  const auto loss = [layers, scanned](const Layer& all, const Array& input) {
    if (scanned) return sum(scan([](Array h, Layer one) { return std::pair{layer(h, one), none}; }, input, all).first);
    Array h = input;
    for (int i = 0; i < layers; ++i) h = layer(h, {all.in[i], all.out[i], all.scale[i]});
    return sum(h);
  };
  auto step = jit(grad(loss));
  const std::int64_t before = stats().kernels_compiled;
  const Clock::time_point start = Clock::now();
  step(l, x).scale.wait();
  return {
      .ours = seconds_since(start),
      .note = fmt::format("gradient of {} layers, first call, {} kernels", layers, stats().kernels_compiled - before)};
}

void run_in_new_process() {
  const pid_t child = fork();
  if (child == 0) {
    execl("/proc/self/exe", "bench", "--ten-ops", static_cast<char*>(nullptr));
    _exit(127);
  }
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child || status != 0)
    throw std::runtime_error("a new process could not run");
}

Result fresh_process(const Options& options) {
  constexpr double goal = 0.3;
  Result r{.ours = seconds_of(run_in_new_process, options), .reference = goal, .note = "from exec to exit"};
  r.ratio = r.ours / goal;
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
          {"dispatch, hot call", "goal 500 ns", hot_call},
          {"round trip, hot call", "", hot_round_trip},
          {"round trip, eager op", "", eager_op},
          {"scan, one step", "goal 1 us", scan_step},
          {"compile 12 unrolled layers", "", [](const Options& o) { return compile_layers(o.quick ? 2 : 12, false); }},
          {"compile 24 unrolled layers", "", [](const Options& o) { return compile_layers(o.quick ? 4 : 24, false); }},
          {"compile 12 scanned layers", "", [](const Options& o) { return compile_layers(o.quick ? 2 : 12, true); }},
          {"ten new eager ops in a new process", "goal 300 ms", fresh_process}};
}

}  // namespace bench
