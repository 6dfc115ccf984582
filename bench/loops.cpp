// Fused elementwise chains and rows. The arrays are larger than the last cache, so the bar of a cheap chain is a
// copy of the same bytes, and that of a costly one a loop written by hand.
#include <fmt/format.h>
#include <sheaf/sheaf.h>

#include <cstring>

#include "by_hand.h"
#include "measure.h"

namespace bench {
namespace {

using namespace sheaf;

// In [-2, 2), the same on every machine.
Floats wave(std::size_t count, std::uint32_t seed) {
  Floats x(count);
  std::uint32_t state = seed;
  for (std::size_t i = 0; i < count; ++i) {
    state = state * 1664525u + 1013904223u;
    x.data()[i] = static_cast<float>(state >> 8) * 0x1p-22f - 2.0f;
  }
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
  Result r = compare([&] { chain(a).wait(); }, [&] { copy(x, out); }, options);
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
  Result r = compare([&] { chain(a, b).wait(); }, [&] { transcendental_chain(x, y, out); }, options);
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
  Result r = compare([&] { f(a).wait(); }, [&] { softmax_rows(x, columns, out); }, options);
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
  Result r = compare([&] { f(a, s, t).wait(); }, [&] { layer_norm_rows(x, scale, shift, out); }, options);
  r.note = gigabytes(8.0 * static_cast<double>(rows * columns), r.ours);
  return r;
}

Result cross_entropy_4096(const Options& options) {
  const std::size_t rows = options.quick ? 256 : 4096, columns = 4096;
  const Floats x = wave(rows * columns, 3);
  Floats out(rows * columns);
  std::vector<std::int32_t> labels(rows);
  for (std::size_t i = 0; i < rows; ++i) labels[i] = static_cast<std::int32_t>(i * 2654435761u % columns);
  const auto count = static_cast<std::int64_t>(rows);
  const Array a = array_of(x, {count, static_cast<std::int64_t>(columns)});
  const Array label = array(std::span<const std::int32_t>(labels.data(), rows), Shape{count});
  auto f = jit(value_and_grad(cross_entropy), {.name = "cross_entropy"});
  cross_entropy_rows(x, labels, out);
  check_agreement(f(a, label).second, out, 1e-5);
  Result r = compare([&] { f(a, label).second.wait(); }, [&] { cross_entropy_rows(x, labels, out); }, options);
  r.note = gigabytes(8.0 * static_cast<double>(rows * columns), r.ours);
  return r;
}

}  // namespace

std::vector<Row> loop_rows() {
  return {{"chain of 10 add, mul, max; 16M f32", "memcpy of the same bytes", cheap_chain},
          {"chain of 10 with tanh, exp, division; 16M f32", "loop by hand", costly_chain},
          {"softmax 4096 x 4096 f32", "loop by hand", softmax_4096},
          {"layer_norm 4096 x 4096 f32", "loop by hand", layer_norm_4096},
          {"cross_entropy 4096 x 4096 f32, value and gradient", "loop by hand", cross_entropy_4096}};
}

}  // namespace bench
