// Training steps as every library here writes them: forward, backward and optimizer. What a whole program reaches, not
// what one kernel does. All sides begin with the same parameters, and have to tell the same losses.
#include <fmt/format.h>
#include <sheaf/sheaf.h>

#include <array>
#include <cmath>
#include <optional>

#include "by_hand.h"
#include "inputs.h"
#include "measure.h"
#include "openblas.h"

namespace bench {
namespace {

using namespace sheaf;

Array weights(std::uint32_t seed, const Shape& shape) { return wave_array(seed, shape, weight_scale(shape[0])); }
Dense dense_of(std::uint32_t seed, std::int64_t in, std::int64_t out) {
  return {weights(seed, {in, out}), zeros({out})};
}

// step: state -> {loss, next state}.
template <class State, class Step>
Result train(State state, Step step, std::vector<Side> others, const std::string& request, const Options& options) {
  const auto next = [&] {
    auto [loss, after] = step(state);
    state = std::move(after);
    return loss;
  };
  const Question question{request, values_of(next)};
  return compare([&] { next(), tree_leaves(state).back().wait(); }, std::move(others), options, question);
}

std::string per_second(double count, const char* what, double seconds) {
  return fmt::format("{:.0f} {}/s", count / seconds, what);
}

// ---- MLP ----
constexpr double rate = 0.05;

struct Mlp {
  Dense a, b, c;
};

Array mlp_loss(const Mlp& m, const Array& x, const Array& target) { return mse(m.c(relu(m.b(relu(m.a(x))))), target); }

std::pair<Array, Mlp> sgd_step(const Mlp& m, const Array& x, const Array& target) {
  const auto [loss, gradient] = value_and_grad(mlp_loss)(m, x, target);
  return {loss, Sgd{}.step(m, gradient, rate)};
}

// The same step by hand: eight products, and the loops between them fused where a loop allows it.
class MlpByHand {
 public:
  MlpByHand(const OpenBlas& blas, const Mlp& m, const Array& x, const Array& target)
      : blas_(blas),
        weights_{floats_of(m.a.W), floats_of(m.b.W), floats_of(m.c.W)},
        biases_{floats_of(m.a.b), floats_of(m.b.b), floats_of(m.c.b)},
        values_{floats_of(x), Floats(count(x)), Floats(count(x)), Floats(count(x))},
        target_(floats_of(target)),
        rows(static_cast<int>(x.shape(0))),
        columns(static_cast<int>(x.shape(1))),
        gradient_(count(x)),
        next_gradient_(count(x)),
        weight_gradient_(count(m.a.W)) {}

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
  static std::size_t count(const Array& x) { return static_cast<std::size_t>(x.size()); }

  const OpenBlas& blas_;
  std::array<Floats, 3> weights_, biases_;
  std::array<Floats, 4> values_;  // the input, then what each layer gives
  Floats target_;
  const int rows, columns;
  Floats gradient_, next_gradient_, weight_gradient_;
};

Result mlp_step(const Options& options) {
  const std::int64_t width = options.quick ? 128 : 1024, batch = options.quick ? 64 : 512;
  const auto layer = [&](std::uint32_t seed) { return dense_of(seed, width, width); };
  const Mlp model{layer(1), layer(2), layer(3)};
  const Array x = wave_array(4, {batch, width}), target = wave_array(5, {batch, width});
  const auto step = jit(sgd_step, {.name = "sgd_step", .args = {"model", "x", "target"}, .donate = {0}});

  std::vector<Side> others;
  std::optional<MlpByHand> by_hand;
  if (const OpenBlas* blas = openblas()) {
    by_hand.emplace(*blas, model, x, target);
    by_hand->step();
    check_agreement(jit(sgd_step)(model, x, target).second.a.W, by_hand->first_weights(), 1e-5);
    others.push_back(side("by hand", [&] { by_hand->step(); }, options));
  }
  Result r = train(
      model, [&](const Mlp& m) { return step(m, x, target); }, std::move(others),
      fmt::format("mlp {} {}", width, batch), options);
  r.note = fmt::format("{:.0f} GF/s", 8 * 2.0 * static_cast<double>(batch * width * width) / r.ours * 1e-9);
  return r;
}

// ---- the others learn by Adam ----
template <class Model>
struct State {
  Model model;
  Adam::State<Model> adam;
};

template <class Model, class Loss, class... Data>
Result train_by_adam(const Model& model, Loss loss, const std::string& request, const Options& options, Data... data) {
  const auto step = jit(
      [loss](const State<Model>& s, const Data&... d) {
        const auto [l, gradient] = value_and_grad(loss)(s.model, d...);
        const auto [next, adam] = Adam{}.step(s.model, s.adam, gradient, 1e-3);
        return std::pair{l, State<Model>{next, adam}};
      },
      {.name = "adam_step", .donate = {0}});
  return train(
      State<Model>{model, Adam{}.init(model)}, [&](const State<Model>& s) { return step(s, data...); }, {}, request,
      options);
}

// ---- CNN: samples/cnn.cpp ----
struct Cnn {
  Convolution first, second;
  Dense hidden, out;
};

Array cnn_loss(const Cnn& m, const Array& images, const Array& labels) {
  Array x = max_pool(relu(m.first(images)));  // [batch, 14, 14, 16]
  x = max_pool(relu(m.second(x)));  // [batch, 7, 7, 32]
  return cross_entropy(m.out(relu(m.hidden(reshape(x, {-1, 7 * 7 * 32})))), labels);
}

Result cnn_step(const Options& options) {
  const std::int64_t batch = options.quick ? 16 : 128;
  const auto kernel = [](std::uint32_t seed, std::int64_t in, std::int64_t out) {
    return Convolution{wave_array(seed, {3, 3, in, out}, 0.1f), zeros({out})};
  };
  const Cnn model{kernel(1, 1, 16), kernel(2, 16, 32), dense_of(3, 7 * 7 * 32, 128), dense_of(4, 128, 10)};
  Result r = train_by_adam(model, cnn_loss, fmt::format("cnn {}", batch), options, wave_array(5, {batch, 28, 28, 1}),
                           array(labels_of(batch, 10)));
  r.note = per_second(static_cast<double>(batch), "images", r.ours);
  return r;
}

// ---- a transformer over characters: samples/char_transformer.cpp ----
struct Block {
  Array scale_a, shift_a, scale_b, shift_b, qkv, mix, feed_in, feed_out;
};

struct Gpt {
  Array tokens, positions;  // [vocabulary, width], [time, width]
  std::vector<Block> blocks;
  Array scale, shift;
};

constexpr std::int64_t kHeads = 4;

Array apply(const Block& b, const Array& x) {
  const std::int64_t batch = x.shape(0), time = x.shape(1), width = x.shape(2), size = width / kHeads;
  const std::vector<Array> parts = split(matmul(layer_norm(x, b.scale_a, b.shift_a), b.qkv), 3, -1);
  const auto heads = [&](const Array& y) { return transpose(reshape(y, {batch, time, kHeads, size}), {0, 2, 1, 3}); };
  const Array scores =
      matmul(heads(parts[0]), swapaxes(heads(parts[1]), -1, -2)) / std::sqrt(static_cast<double>(size));
  const Array row = expand_dims(arange(time), {1}), column = expand_dims(arange(time), {0});
  const Array weights = softmax(where(column <= row, scores, -1e9));  // [batch, heads, time, time]
  const Array mixed = transpose(matmul(weights, heads(parts[2])), {0, 2, 1, 3});
  const Array y = x + matmul(reshape(mixed, {batch, time, width}), b.mix);
  return y + matmul(gelu_tanh(matmul(layer_norm(y, b.scale_b, b.shift_b), b.feed_in)), b.feed_out);
}

// text: i32[batch, time + 1]
Array gpt_loss(const Gpt& m, const Array& text) {
  const std::int64_t batch = text.shape(0), time = text.shape(1) - 1, vocabulary = m.tokens.shape(0);
  const Array inputs = dynamic_slice(text, array({0, 0}), {batch, time});
  const Array targets = dynamic_slice(text, array({0, 1}), {batch, time});
  Array x = take(m.tokens, inputs) + m.positions;
  for (const Block& b : m.blocks) x = apply(b, x);
  const Array logits = matmul(layer_norm(x, m.scale, m.shift), transpose(m.tokens));
  return cross_entropy(reshape(logits, {-1, vocabulary}), reshape(targets, {-1}));
}

Result transformer_step(const Options& options) {
  const std::int64_t layers = options.quick ? 1 : 4, batch = options.quick ? 2 : 16, time = 64, width = 64,
                     vocabulary = 96;
  const Array one = ones({width}), zero = zeros({width});
  Gpt model{.tokens = wave_array(91, {vocabulary, width}, 0.05f),
            .positions = wave_array(92, {time, width}, 0.05f),
            .blocks = {},
            .scale = one + 0.0,
            .shift = zero + 0.0};
  for (std::uint32_t i = 0; i < layers; ++i)
    model.blocks.push_back({.scale_a = one + 0.0,  // arrays of their own, so that each can be donated
                            .shift_a = zero + 0.0,
                            .scale_b = one + 0.0,
                            .shift_b = zero + 0.0,
                            .qkv = weights(8 * i + 1, {width, 3 * width}),
                            .mix = weights(8 * i + 2, {width, width}),
                            .feed_in = weights(8 * i + 3, {width, 4 * width}),
                            .feed_out = weights(8 * i + 4, {4 * width, width})});
  const Array text = reshape(array(labels_of(batch * (time + 1), vocabulary)), {batch, time + 1});
  Result r = train_by_adam(model, gpt_loss,
                           fmt::format("transformer {} {} {} {} {} {}", layers, batch, time, width, kHeads, vocabulary),
                           options, text);
  r.note = per_second(static_cast<double>(batch * time), "characters", r.ours);
  return r;
}

}  // namespace

std::vector<Row> step_rows() {
  return {{"MLP step, 3 x 1024, batch 512, SGD", "OpenBLAS and loops", mlp_step},
          {"CNN step, batch 128, Adam", "", cnn_step},
          {"transformer step, 4 x 64, batch 16 x 64, Adam", "", transformer_step}};
}

}  // namespace bench
