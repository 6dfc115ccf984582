// A transformer spread over a mesh by specs alone: batch over "data", heads and hidden units over "model", and the
// optimizer's moments over both (ZeRO). The training step is written for one device. Prints what is sent in a step and
// what a device holds, and compares the losses with those on one device.
#include <sheaf/sheaf.h>

#include <cstdio>
#include <vector>

#include "losses.h"

using namespace sheaf;

constexpr std::int64_t kLayers = 2, kWidth = 64, kHeads = 4, kSize = 16, kHidden = 256;
constexpr std::int64_t kVocabulary = 96, kBatch = 16, kContext = 32;
constexpr int kSteps = 10;

struct Block {
  Array attention_scale, feed_scale;  // [width]
  Array query, key, value;  // [width, heads, size]
  Array mix;  // [heads, size, width]
  Array feed_in, feed_out;  // [width, hidden], [hidden, width]
};

struct Model {
  Array tokens, positions;  // [vocabulary, width], [context, width]
  Block blocks;  // each leaf [layers, ..]
  Array scale;  // [width]
};

Array normalize(const Array& scale, const Array& x) { return layer_norm(x, scale, zeros_like(scale)); }

// x: [batch, time, width]
Array attention(const Block& b, const Array& x) {
  const auto heads = [&](const Array& w) { return einsum("btw,whs->bths", x, w); };
  const Array mixed = dot_product_attention(heads(b.query), heads(b.key), heads(b.value), {.causal = true});
  return einsum("bths,hsw->btw", mixed, b.mix);
}

Array block(const Array& x, const Block& b) {
  const Array y = x + attention(b, normalize(b.attention_scale, x));
  return y + dot(gelu_tanh(dot(normalize(b.feed_scale, y), b.feed_in)), b.feed_out);
}

// text: i32[batch, context + 1]
Array loss(const Model& m, const Array& text) {
  const Array inputs = text(slice(), slice(kContext)), targets = text(slice(), slice(1, none));
  const Array x = take(m.tokens, inputs) + m.positions;
  const auto layer = [](const Array& h, const Block& b) { return std::pair{checkpoint(block)(h, b), none}; };
  const Array h = normalize(m.scale, scan(layer, x, m.blocks).first);
  const Array logits = dot(h, transpose(m.tokens));
  return cross_entropy(reshape(logits, {-1, kVocabulary}), reshape(targets, {-1}));
}

Model initial(const Array& seed) {
  const Array k = random::split(seed, 8);
  const auto weights = [&](int i, Shape shape) { return 0.05 * random::normal(k[i], shape); };
  const auto stack = [](Shape shape) { return shape.insert(shape.begin(), kLayers), shape; };
  return {.tokens = weights(0, {kVocabulary, kWidth}),
          .positions = weights(1, {kContext, kWidth}),
          .blocks = {.attention_scale = ones(stack({kWidth})),
                     .feed_scale = ones(stack({kWidth})),
                     .query = weights(2, stack({kWidth, kHeads, kSize})),
                     .key = weights(3, stack({kWidth, kHeads, kSize})),
                     .value = weights(4, stack({kWidth, kHeads, kSize})),
                     .mix = weights(5, stack({kHeads, kSize, kWidth})),
                     .feed_in = weights(6, stack({kWidth, kHidden})),
                     .feed_out = weights(7, stack({kHidden, kWidth}))},
          .scale = ones({kWidth})};
}

struct State {
  Model model;
  Adam::State<Model> adam;
};

std::pair<Array, State> train_step(const State& s, const Array& text) {
  const auto [l, gradient] = value_and_grad(loss)(s.model, text);
  const auto [model, adam] = Adam{}.step(s.model, s.adam, gradient, 3e-3);
  return {l, {model, adam}};
}

int main() {
  ensure_devices(4);
  try {
    const Mesh mesh({{"data", 2}, {"model", 2}});
    const Specs of_model = specs({{".blocks.query", P(none, none, "model")},
                                  {".blocks.key", P(none, none, "model")},
                                  {".blocks.value", P(none, none, "model")},
                                  {".blocks.mix", P(none, "model")},
                                  {".blocks.feed_in", P(none, none, "model")},
                                  {".blocks.feed_out", P(none, "model")},
                                  {"", P()}});
    const Model model = initial(random::key(0));
    const Array text = random::randint(random::key(1), {kBatch, kContext + 1}, 0, kVocabulary);
    const State alone{model, Adam{}.init(model)};

    const Specs of_moments = zero_specs(model, mesh, "data", of_model);
    const State state{device_put(model, mesh, of_model),
                      {device_put(alone.adam.m, mesh, of_moments), device_put(alone.adam.v, mesh, of_moments),
                       device_put(alone.adam.count, mesh, P())}};
    const Array parts = device_put(text, mesh, P("data"));

    const auto step = jit(train_step, {.name = "train_step", .args = {"state", "text"}});
    std::printf("%s\n", step.trace(state, parts).lower().collectives().text.c_str());
    std::printf("parameters and moments per device: %lld of %lld bytes\n",
                static_cast<long long>(bytes_per_device(state)), static_cast<long long>(bytes_per_device(alone)));
    const std::vector<float> expected = samples::losses(step, alone, text, kSteps);
    return samples::agree(samples::losses(step, state, parts, kSteps), expected) ? 0 : 1;
  } catch (const Error& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
