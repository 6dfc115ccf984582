// Matrix products against OpenBLAS, and one training step of an MLP against the same step written with OpenBLAS and
// fused loops by hand: what a whole program reaches, not what one kernel does.
#include <fmt/format.h>
#include <sheaf/sheaf.h>

#include <array>
#include <bit>
#include <cstring>

#include "by_hand.h"
#include "measure.h"
#include "onednn.h"
#include "openblas.h"

namespace bench {
namespace {

using namespace sheaf;

// Only ours, where there is nothing to compare with.
Result alone(const Work& work, const Options& options) {
  return {.ours = seconds_of(work, options), .note = "OpenBLAS is not installed"};
}

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

Array operand(std::uint64_t seed, std::int64_t rows, std::int64_t columns, bool is_transposed, DType dtype) {
  if (is_transposed) std::swap(rows, columns);
  const Array x = random::normal(random::key(seed), {rows, columns});
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

// f32 against OpenBLAS or, with `against_onednn`, against oneDNN, as are the others; all take operands as they lie.
Result product(const ProductShape& s, bool against_onednn, const Options& options) {
  const Array x = operand(1, s.rows, s.terms, s.transposes_x, s.dtype);
  const Array y = operand(2, s.terms, s.columns, s.transposes_y, s.dtype);
  const DotDims dims{
      .lhs = {s.transposes_x ? 0 : 1}, .rhs = {s.transposes_y ? 1 : 0}, .dtype = is_int(s.dtype) ? i32 : f32};
  auto multiply = jit([&](Array a, Array b) { return dot_general(a, b, dims); }, {.name = "matmul"});
  Array result;
  const Work ours = [&] { (result = multiply(x, y)).wait(); };

  Floats out(static_cast<std::size_t>(s.rows * s.columns));
  const OpenBlas* blas = openblas();
  const int m = static_cast<int>(s.rows), n = static_cast<int>(s.columns), k = static_cast<int>(s.terms);
  Floats a = elements_of(x), b = elements_of(y);
  Work reference;
  if (against_onednn) reference = onednn_product(s, a.data(), b.data(), out.data());
  else if (blas)
    reference = [&] { blas->multiply(s.transposes_x, s.transposes_y, m, n, k, a.data(), b.data(), out.data()); };
  const auto rate = [&](double seconds) { return gigaflops(s.flops(), seconds); };
  if (!reference) {
    const double seconds = seconds_of(ours, options);
    return {.ours = seconds, .note = rate(seconds) + ", nothing to compare with"};
  }
  ours();
  reference();
  if (!is_int(s.dtype)) check_agreement(result, out, 1e-5);
  Result r = compare(ours, reference, options);
  r.note = rate(r.ours);
  return r;
}

constexpr std::int64_t width = 1024, batch = 512;
constexpr double rate = 0.05;

struct Mlp {
  Dense a, b, c;
};

Array loss(const Mlp& m, const Array& x, const Array& target) { return mse(m.c(relu(m.b(relu(m.a(x))))), target); }

Mlp sgd_step(const Mlp& m, const Array& x, const Array& target) {
  return Sgd{}.step(m, grad(loss)(m, x, target), rate);
}

// The same step by hand: eight products, and the loops between them fused where a loop allows it.
class MlpByHand {
 public:
  MlpByHand(const OpenBlas& blas, const Mlp& m, const Array& x, const Array& target)
      : blas_(blas),
        weights_{floats_of(m.a.W), floats_of(m.b.W), floats_of(m.c.W)},
        biases_{floats_of(m.a.b), floats_of(m.b.b), floats_of(m.c.b)},
        values_{floats_of(x), Floats(activations), Floats(activations), Floats(activations)},
        target_(floats_of(target)) {}

  void step() {
    for (std::size_t i = 0; i < 3; ++i) {
      blas_.multiply(false, false, rows, columns, columns, values_[i].data(), weights_[i].data(),
                     values_[i + 1].data());
      i < 2 ? add_bias_relu(values_[i + 1], biases_[i]) : add_bias(values_[i + 1], biases_[i]);
    }
    mse_gradient(values_[3], target_, gradient_);
    for (std::size_t i = 3; i-- > 0;) {
      blas_.multiply(true, false, columns, columns, rows, values_[i].data(), gradient_.data(), weight_gradient_.data());
      if (i > 0) {
        blas_.multiply(false, true, rows, columns, columns, gradient_.data(), weights_[i].data(),
                       next_gradient_.data());
        mask(next_gradient_, values_[i]);
      }
      step_bias(biases_[i], gradient_, static_cast<float>(rate));
      step_weights(weights_[i], weight_gradient_, static_cast<float>(rate));
      std::swap(gradient_, next_gradient_);
    }
  }

  const Floats& first_weights() const { return weights_[0]; }

 private:
  static constexpr int rows = batch, columns = width;
  static constexpr std::size_t activations = batch * width;

  const OpenBlas& blas_;
  std::array<Floats, 3> weights_, biases_;
  std::array<Floats, 4> values_;  // the input, then what each layer gives
  Floats target_;
  Floats gradient_{activations}, next_gradient_{activations}, weight_gradient_{width * width};
};

Result mlp_step(const Options& options) {
  const Array keys = random::split(random::key(0), 5);
  Mlp model{dense(keys[0], width, width), dense(keys[1], width, width), dense(keys[2], width, width)};
  const Array x = random::normal(keys[3], {batch, width}), target = random::normal(keys[4], {batch, width});
  auto step = jit(sgd_step, {.name = "sgd_step", .args = {"model", "x", "target"}, .donate = {0}});
  const OpenBlas* blas = openblas();
  std::optional<MlpByHand> by_hand;
  if (blas) by_hand.emplace(*blas, model, x, target);
  const Work ours = [&] {
    model = step(model, x, target);
    model.a.W.wait();
  };
  if (!blas) return alone(ours, options);

  ours();
  by_hand->step();
  check_agreement(model.a.W, by_hand->first_weights(), 1e-5);
  Result r = compare(ours, [&] { by_hand->step(); }, options);
  r.note = gigaflops(8 * 2.0 * batch * width * width, r.ours);
  return r;
}

}  // namespace

std::vector<Row> product_rows() {
  std::vector<Row> rows;
  const auto add = [&](const ProductShape& s) {
    for (const bool against_onednn : {false, true})
      if (against_onednn || s.dtype == f32)
        rows.push_back({name_of(s), against_onednn ? "oneDNN" : "OpenBLAS",
                        [=](const Options& options) { return product(s, against_onednn, options); }});
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
  rows.push_back({"MLP step, 3 x 1024, batch 512, SGD", "OpenBLAS and loops by hand", mlp_step});
  return rows;
}

}  // namespace bench
