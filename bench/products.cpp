// Matrix products against OpenBLAS, and one training step of an MLP against the same step written with OpenBLAS and
// fused loops by hand: what a whole program reaches, not what one kernel does.
#include <fmt/format.h>
#include <sheaf/sheaf.h>

#include <array>

#include "by_hand.h"
#include "measure.h"
#include "openblas.h"

namespace bench {
namespace {

using namespace sheaf;

// Only ours, where there is nothing to compare with.
Result alone(const Work& work, const Options& options) {
  return {.ours = seconds_of(work, options), .note = "OpenBLAS is not installed"};
}

std::string gigaflops(double flops, double seconds) { return fmt::format("{:.0f} GF/s", flops / seconds * 1e-9); }

Result square_product(std::int64_t n, const Options& options) {
  const Array x = random::uniform(random::key(1), {n, n}), y = random::uniform(random::key(2), {n, n});
  auto product = jit([](Array a, Array b) { return matmul(a, b); }, {.name = "matmul"});
  const Work ours = [&] { product(x, y).wait(); };
  const OpenBlas* blas = openblas();
  if (!blas) return alone(ours, options);

  const Floats a = floats_of(x), b = floats_of(y);
  Floats out(static_cast<std::size_t>(n * n));
  const int m = static_cast<int>(n);
  const Work reference = [&] { blas->multiply(false, false, m, m, m, a.data(), b.data(), out.data()); };
  reference();
  check_agreement(product(x, y), out, 1e-5);
  Result r = compare(ours, reference, options);
  r.note = gigaflops(2.0 * static_cast<double>(n * n * n), r.ours);
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
  for (const std::int64_t n : {256, 512, 1024, 2048})
    rows.push_back({fmt::format("matmul {}^3 f32", n), "OpenBLAS",
                    [n](const Options& options) { return square_product(n, options); }});
  rows.push_back({"MLP step, 3 x 1024, batch 512, SGD", "OpenBLAS and loops by hand", mlp_step});
  return rows;
}

}  // namespace bench
