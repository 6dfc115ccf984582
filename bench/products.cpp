// Matrix products of all sizes and of narrow numbers.
#include <fmt/format.h>
#include <sheaf/sheaf.h>

#include <bit>
#include <cstring>

#include "by_hand.h"
#include "measure.h"
#include "onednn.h"
#include "openblas.h"

namespace bench {
namespace {

using namespace sheaf;

std::string gigaflops(double flops, double seconds) { return fmt::format("{:.0f} GF/s", flops / seconds * 1e-9); }

// "matmul 1 x 4096 x 4096 bf16, y transposed": rows x terms x columns.
std::string name_of(const ProductShape& s) {
  const bool is_square = s.rows == s.columns && s.rows == s.terms;
  std::string name = is_square
                         ? fmt::format("matmul {}^3 {}", s.rows, sheaf::name(s.dtype))
                         : fmt::format("matmul {} x {} x {} {}", s.rows, s.terms, s.columns, sheaf::name(s.dtype));
  if (s.transposes_x) name += ", x transposed";
  if (s.transposes_y) name += ", y transposed";
  return name;
}

Array operand(std::uint32_t seed, std::int64_t rows, std::int64_t columns, bool is_transposed, DType dtype) {
  if (is_transposed) std::swap(rows, columns);
  const Array x = wave_array(seed, {rows, columns});
  return dtype == f32 ? x : convert(is_int(dtype) ? x * 50 : x, dtype);
}

// Its elements as they are, on the memory of the references.
Floats elements_of(const Array& x) {
  const auto copy = [](const auto& values) {
    Floats out((values.size() * sizeof(values[0]) + sizeof(float) - 1) / sizeof(float));
    std::memcpy(out.data(), values.data(), values.size() * sizeof(values[0]));
    return out;
  };
  if (x.dtype() == i8) return copy(x.to_vector<std::int8_t>());
  const std::vector<float> values = x.to_vector<float>();
  if (x.dtype() == f32) return copy(values);
  std::vector<std::uint16_t> upper_halves(values.size());  // all that a bf16 has
  for (std::size_t i = 0; i < values.size(); ++i)
    upper_halves[i] = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(values[i]) >> 16);
  return copy(upper_halves);
}

// All take operands as they lie. OpenBLAS has f32 only.
Result product(const ProductShape& s, const Options& options) {
  const Array x = operand(1, s.rows, s.terms, s.transposes_x, s.dtype);
  const Array y = operand(2, s.terms, s.columns, s.transposes_y, s.dtype);
  const DotDims dims{
      .lhs = {s.transposes_x ? 0 : 1}, .rhs = {s.transposes_y ? 1 : 0}, .dtype = is_int(s.dtype) ? i32 : f32};
  auto multiply = jit([&](Array a, Array b) { return dot_general(a, b, dims); }, {.name = "matmul"});
  Array result;
  const Work ours = [&] { (result = multiply(x, y)).wait(); };
  ours();

  const Floats a = elements_of(x), b = elements_of(y);
  Floats out(static_cast<std::size_t>(s.rows * s.columns));
  std::vector<Side> others;
  const auto add = [&](const char* library, const Work& work) {
    work();
    if (!is_int(s.dtype)) check_agreement(result, out, s.terms > 10000 ? 1e-4 : 1e-5);
    others.push_back(side(library, work, options));
  };
  const int m = static_cast<int>(s.rows), n = static_cast<int>(s.columns), k = static_cast<int>(s.terms);
  if (const OpenBlas* blas = openblas(); blas && s.dtype == f32)
    add("OpenBLAS",
        [&, blas] { blas->multiply(s.transposes_x, s.transposes_y, m, n, k, a.data(), b.data(), out.data()); });
  if (const Work work = onednn_product(s, a.data(), b.data(), out.data())) add("oneDNN", work);
  Result r = compare(ours, std::move(others), options,
                     {fmt::format("matmul {} {} {} {} {:d} {:d}", s.rows, s.columns, s.terms, sheaf::name(s.dtype),
                                  s.transposes_x, s.transposes_y),
                      values_of([&] { return multiply(x, y); })});
  r.note = gigaflops(s.flops(), r.ours);
  return r;
}

// relu(x w + b): by hand a product of OpenBLAS's and a loop over what it has stored.
Result layer(const Options& options) {
  constexpr int rows = 512, width = 1024;
  const Array x = wave_array(1, {rows, width}), w = wave_array(2, {width, width}), b = wave_array(3, {width});
  auto f = jit([](Array a, Array c, Array d) { return relu(matmul(a, c) + d); }, {.name = "layer"});
  Array result;
  const Work ours = [&] { (result = f(x, w, b)).wait(); };
  const auto rate = [](double seconds) { return gigaflops(2.0 * rows * width * width, seconds); };
  const OpenBlas* blas = openblas();
  if (!blas) {
    const double seconds = seconds_of(ours, options);
    return {.ours = seconds, .note = rate(seconds) + ", nothing to compare with"};
  }
  const Floats left = floats_of(x), right = floats_of(w), bias = floats_of(b);
  Floats out(static_cast<std::size_t>(rows) * width);
  const Work by_hand = [&] {
    blas->multiply(false, false, rows, width, width, left.data(), right.data(), out.data());
    add_bias_relu(out, bias);
  };
  ours();
  by_hand();
  check_agreement(result, out, 1e-5);
  Result r = compare(ours, by_hand, options);
  r.note = rate(r.ours);
  return r;
}

}  // namespace

std::vector<Row> product_rows() {
  std::vector<Row> rows;
  const auto add = [&](const ProductShape& s) {
    rows.push_back({name_of(s), "", [=](const Options& options) { return product(s, options); }});
  };
  for (const DType t : {f32, bf16, i8})
    for (const std::int64_t n : {64, 128, 256, 512, 1024, 2048, 4096})
      if (n <= 2048 || t == f32) add({.rows = n, .columns = n, .terms = n, .dtype = t});
  for (const DType t : {f32, bf16})
    for (const std::int64_t m : {1, 4, 8, 16})
      for (const bool is_transposed : {false, true})
        add({.rows = m, .columns = 4096, .terms = 4096, .dtype = t, .transposes_y = is_transposed});
  add({.rows = 1024, .columns = 1024, .terms = 1024, .transposes_x = true});
  add({.rows = 1024, .columns = 1024, .terms = 1024, .transposes_y = true});
  add({.rows = 64, .columns = 64, .terms = 100'000});
  rows.push_back({"relu(matmul + bias), 512 x 1024 x 1024 f32", "OpenBLAS and a loop", layer});
  return rows;
}

}  // namespace bench
