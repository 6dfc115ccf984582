// First calls of whole programs, from tracing to the first result: 250 to 4000 ops, and the gradients of deep networks.
// Kernels stay in the process that compiled them, so every repetition is a process of its own, which has compiled
// something else before and reports its own seconds. With a cache on disk that another process filled, what is left is
// tracing, the passes and reading kernels.
#include <fmt/format.h>
#include <sheaf/sheaf.h>

#include <chrono>
#include <cstdlib>
#include <string>

#include "measure.h"
#include "new_process.h"

namespace bench {
namespace {

using namespace sheaf;

double seconds_of_call(const Work& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Ten ops at a time: a product, elementwise chains and a sum of rows.
double first_call_of_program(int ops) {
  const auto f = jit([ops](Array v, Array w) {
    for (int i = 0; i < ops / 10; ++i) {
      const Array e = exp(tanh(matmul(v, w) + w) * 0.5);
      v = maximum(e / sum(e, {.axes = {1}, .keepdims = true}) * 0.5 + v, 0.01);
    }
    return v;
  });
  const Array v = wave_array(1, {64, 64}), w = wave_array(2, {64, 64}, 0.0625f);
  return seconds_of_call([&] { f(v, w).wait(); });
}

struct Layer {
  Array in, out, scale;  // [width, 4 width], [4 width, width], [width]
};

Array layer(const Array& x, const Layer& l) {
  const Array n = layer_norm(x, l.scale, l.scale);
  const Array weights = softmax(matmul(n, swapaxes(n, -1, -2)) * 0.125);
  return x + matmul(gelu_tanh(matmul(matmul(weights, n), l.in)), l.out);
}

// The gradient of layers with attention; `scanned`: one body for all.
double first_call_of_layers(int layers, bool scanned) {
  const Array x = full({4, 32, 64}, 0.1);
  const Layer l{.in = full({layers, 64, 256}, 0.01), .out = full({layers, 256, 64}, 0.01), .scale = ones({layers, 64})};
  auto step = jit(grad([layers, scanned](const Layer& all, const Array& input) {
    if (scanned) return sum(scan([](Array h, Layer one) { return std::pair{layer(h, one), none}; }, input, all).first);
    Array h = input;
    for (int i = 0; i < layers; ++i) h = layer(h, {all.in[i], all.out[i], all.scale[i]});
    return sum(h);
  }));
  return seconds_of_call([&] { step(l, x).scale.wait(); });
}

// `peers`: what they are asked for.
Row first_call(std::string name, const std::string& kind, int count, bool is_on_disk, const std::string& peers) {
  return {std::move(name), "", [=](const Options& options) {
            const int size = options.quick ? std::max(count / 25, kind == "program" ? 10 : 2) : count;
            const TemporaryFolder folder;
            std::string compiled;
            const Turn ours = [&](int turns) {
              double seconds = 0;
              for (int i = 0; i < turns; ++i) {
                const std::string told = run_in_new_process({"--first-call", kind, std::to_string(size)},
                                                            is_on_disk ? folder.path() : "off");
                seconds += std::stod(told);
                compiled = told.substr(told.find(' ') + 1);
              }
              return seconds / turns;
            };
            if (is_on_disk) ours(1);  // fills it
            Result r = compare(ours, {}, options, {peers.empty() ? "" : fmt::format("{} {}", peers, size)});
            r.note = compiled;
            return r;
          }};
}

}  // namespace

void run_first_call(char** program) {
  const std::string kind = program[0];
  const int size = std::atoi(program[1]);
  jit([](Array x) { return cos(x) * 3.0; })(ones({1 << 20})).wait();  // loads the compiler
  const std::int64_t compiled = stats().kernels_compiled, loaded = stats().kernels_loaded;
  const double seconds =
      kind == "program" ? first_call_of_program(size) : first_call_of_layers(size, kind == "scanned");
  const std::int64_t kernels = stats().kernels_loaded - loaded, anew = stats().kernels_compiled - compiled;
  fmt::print("{} {} kernels, {} of them compiled", seconds, kernels, anew);
}

std::vector<Row> compile_rows() {
  std::vector<Row> rows;
  for (const bool is_on_disk : {false, true})
    for (const int ops : {250, 500, 1000, 2000, 4000})
      rows.push_back(first_call(fmt::format("first call of {} ops{}", ops, is_on_disk ? ", kernels on disk" : ""),
                                "program", ops, is_on_disk, is_on_disk ? "" : "program"));
  for (const int count : {12, 24})
    rows.push_back(
        first_call(fmt::format("first gradient of {} unrolled layers", count), "layers", count, false, "layers"));
  rows.push_back(first_call("first gradient of 12 scanned layers", "scanned", 12, false, ""));
  return rows;
}

}  // namespace bench
