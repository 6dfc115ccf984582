// Fused elementwise chains and rows. The arrays are larger than the last cache, so the bar of a cheap chain is a
// copy of the same bytes, and that of a costly one a loop written by hand.
#include <fmt/format.h>
#include <sheaf/sheaf.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "by_hand.h"
#include "inputs.h"
#include "measure.h"

namespace bench {
namespace {

using namespace sheaf;

// In [-2, 2), the same on every machine and in every library.
Floats wave(std::size_t count, std::uint32_t seed) {
  Floats x(count);
  for (std::size_t i = 0; i < count; ++i) x.data()[i] = wave_at(seed, i);
  return x;
}

Array array_of(const Floats& x, const Shape& shape) { return array(std::span<const float>(x.data(), x.size()), shape); }

std::string gigabytes(double bytes, double seconds) { return fmt::format("{:.1f} GB/s", bytes / seconds * 1e-9); }

Result cheap_chain(const Options& options) {
  const std::size_t n = options.quick ? 1 << 20 : 1 << 24;
  const Floats x = wave(n, 1);
  Floats out(n);
  const Array a = array_of(x, {static_cast<std::int64_t>(n)});
  auto chain = jit(
      [](Array v) {
        v = maximum(v * 1.5 + 0.25, -0.5);
        v = maximum(v * 0.75 + 0.125, 0.0625);
        v = maximum(v * 1.25 + -0.5, -0.25);
        return v + 1.0;
      },
      {.name = "chain"});
  Result r = compare([&] { chain(a).wait(); }, [&] { copy(x, out); }, options,
                     {fmt::format("chain {}", n), values_of([&] { return chain(a); })});
  r.note = gigabytes(8.0 * static_cast<double>(n), r.ours);
  return r;
}

Result costly_chain(const Options& options) {
  const std::size_t n = options.quick ? 1 << 20 : 1 << 24;
  const Floats x = wave(n, 1), y = wave(n, 2);
  Floats out(n);
  const Shape shape{static_cast<std::int64_t>(n)};
  const Array a = array_of(x, shape), b = array_of(y, shape);
  auto chain = jit(
      [](Array u, Array v) {
        const Array t = tanh(u * v + 0.5);
        const Array e = exp(t - u);
        return maximum((e * v + t) / (e + 1.5), 0.125) * 0.75;
      },
      {.name = "tanh_exp_chain"});
  transcendental_chain(x, y, out);
  check_agreement(chain(a, b), out, 1e-5);
  Result r = compare([&] { chain(a, b).wait(); }, [&] { transcendental_chain(x, y, out); }, options,
                     {fmt::format("tanh_exp_chain {}", n), values_of([&] { return chain(a, b); })});
  r.note = gigabytes(12.0 * static_cast<double>(n), r.ours);
  return r;
}

Result softmax_4096(const Options& options) {
  const std::size_t rows = options.quick ? 256 : 4096, columns = 4096;
  const Floats x = wave(rows * columns, 3);
  Floats out(rows * columns);
  const Array a = array_of(x, {static_cast<std::int64_t>(rows), static_cast<std::int64_t>(columns)});
  auto f = jit([](Array v) { return softmax(v); }, {.name = "softmax"});
  softmax_rows(x, columns, out);
  check_agreement(f(a), out, 1e-5);
  Result r = compare([&] { f(a).wait(); }, [&] { softmax_rows(x, columns, out); }, options,
                     {fmt::format("softmax {} {}", rows, columns), values_of([&] { return f(a); })});
  r.note = gigabytes(8.0 * static_cast<double>(rows * columns), r.ours);
  return r;
}

Result layer_norm_4096(const Options& options) {
  const std::size_t rows = options.quick ? 256 : 4096, columns = 4096;
  const Floats x = wave(rows * columns, 3), scale = wave(columns, 4), shift = wave(columns, 5);
  Floats out(rows * columns);
  const auto n = static_cast<std::int64_t>(columns);
  const Array a = array_of(x, {static_cast<std::int64_t>(rows), n}), s = array_of(scale, {n}), t = array_of(shift, {n});
  auto f = jit([](Array v, Array by, Array plus) { return layer_norm(v, by, plus); }, {.name = "layer_norm"});
  layer_norm_rows(x, scale, shift, out);
  check_agreement(f(a, s, t), out, 1e-5);
  Result r = compare([&] { f(a, s, t).wait(); }, [&] { layer_norm_rows(x, scale, shift, out); }, options,
                     {fmt::format("layer_norm {} {}", rows, columns), values_of([&] { return f(a, s, t); })});
  r.note = gigabytes(8.0 * static_cast<double>(rows * columns), r.ours);
  return r;
}

// Logits and labels.
struct Examples {
  explicit Examples(const Options& options)
      : rows(options.quick ? 256 : 4096),
        x(wave(rows * columns, 3)),
        labels(labels_of(rows, columns)),
        logits(array_of(x, {rows, columns})),
        classes(array(labels)) {}

  static constexpr std::int64_t columns = 4096;
  std::int64_t rows;
  Floats x;
  std::vector<std::int32_t> labels;
  Array logits, classes;
};

Result cross_entropy_4096(const Options& options) {
  const Examples e(options);
  auto f = jit(cross_entropy);
  const auto call = [&] { return f(e.logits, e.classes); };
  Result r = compare([&] { call().wait(); }, options,
                     {fmt::format("cross_entropy {} {}", e.rows, e.columns), values_of(call)});
  r.note = gigabytes(4.0 * static_cast<double>(e.rows * e.columns), r.ours);
  return r;
}

Result cross_entropy_gradient_4096(const Options& options) {
  const Examples e(options);
  auto f = jit(value_and_grad(cross_entropy), {.name = "cross_entropy"});
  const auto call = [&] { return f(e.logits, e.classes).second; };
  Floats out(e.x.size());
  cross_entropy_rows(e.x, e.labels, out);
  check_agreement(call(), out, 1e-5);
  Result r = compare([&] { call().wait(); }, [&] { cross_entropy_rows(e.x, e.labels, out); }, options,
                     {fmt::format("cross_entropy_gradient {} {}", e.rows, e.columns), values_of(call)});
  r.note = gigabytes(8.0 * static_cast<double>(e.rows * e.columns), r.ours);
  return r;
}

// Weights and biases of 64 layers in arrays of their own, as a model has them; by hand all lie behind each other.
Result adam_of_128_arrays(const Options& options) {
  constexpr std::int64_t kLayers = 64, kColumns = 96;
  const std::int64_t rows = options.quick ? 16 : 256;
  const auto all = static_cast<std::size_t>(kLayers * (rows + 1) * kColumns);
  Floats w = wave(all, 6), m(all), v(all);
  const Floats g = wave(all, 7);
  std::fill_n(m.data(), all, 0.0f), std::fill_n(v.data(), all, 0.0f);
  const auto arrays_of = [&](const Floats& x) {
    std::vector<Array> arrays;
    const float* at = x.data();
    for (std::int64_t i = 0; i < 2 * kLayers; ++i) {
      const Shape shape = i % 2 ? Shape{kColumns} : Shape{rows, kColumns};
      const auto count = static_cast<std::size_t>(i % 2 ? kColumns : rows * kColumns);
      arrays.push_back(array(std::span(at, count), shape));
      at += count;
    }
    return arrays;
  };
  const std::vector<Array> gradients = arrays_of(g);
  using State = std::pair<std::vector<Array>, Adam::State<std::vector<Array>>>;
  State state{arrays_of(w), Adam().init(gradients)};
  auto step = jit([](State s, std::vector<Array> d) { return Adam().step(s.first, s.second, d, Array(0.001f)); },
                  {.name = "adam", .donate = {0}});
  int steps = 0;
  const Work ours = [&] { (state = step(std::move(state), gradients)).first[0].wait(); };
  const Work by_hand = [&] { adam(w, m, v, g, ++steps, 0.001f); };
  ours(), by_hand();
  std::vector<Array> updated;
  for (const Array& x : state.first) updated.push_back(ravel(x));
  check_agreement(concatenate(updated, 0), w, 1e-5);
  Result r = compare(ours, by_hand, options);
  r.note = gigabytes(28.0 * static_cast<double>(all), r.ours);
  return r;
}

}  // namespace

std::vector<Row> loop_rows() {
  return {{"chain of 10 add, mul, max; 16M f32", "memcpy of the same bytes", cheap_chain},
          {"chain of 10 with tanh, exp, division; 16M f32", "", costly_chain},
          {"softmax 4096 x 4096 f32", "", softmax_4096},
          {"layer_norm 4096 x 4096 f32", "", layer_norm_4096},
          {"cross_entropy 4096 x 4096 f32", "", cross_entropy_4096},
          {"cross_entropy 4096 x 4096 f32, value and gradient", "", cross_entropy_gradient_4096},
          {"Adam, 128 arrays of 1.6M f32 together", "the same, behind each other", adam_of_128_arrays}};
}

}  // namespace bench
