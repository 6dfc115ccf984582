// A GPT-2-style language model over characters: blocks of causal attention and a feed-forward layer, equal in shape, so
// that they are one checkpointed body in a scan over stacked parameters; trained by AdamW on a text every Debian has.
// Ends with one line: the loss at the start, which must be near ln(vocabulary), and at the end, far below it.
#include <sheaf/sheaf.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

using namespace sheaf;

constexpr std::int64_t kLayers = 4, kHeads = 4, kWidth = 64, kContext = 64, kBatch = 16, kVocabulary = 96;

struct Norm {
  Array scale, shift;  // [width]
};

struct Block {
  Norm attention_norm, feed_norm;
  Array qkv, mix;  // [width, 3 width], [width, width]
  Array feed_in, feed_out;  // [width, 4 width], [4 width, width]
};

struct Gpt {
  Array tokens, positions;  // [vocabulary, width], [context, width]
  Block blocks;  // each leaf [layers, ..]
  Norm norm;
};

Array normalize(const Norm& n, const Array& x) { return layer_norm(x, n.scale, n.shift); }

// x: [batch, time, width]
Array attention(const Block& b, const Array& x) {
  const std::int64_t batch = x.shape(0), time = x.shape(1), size = kWidth / kHeads;
  const std::vector<Array> parts = split(matmul(x, b.qkv), 3, -1);
  const auto heads = [&](const Array& y) { return transpose(reshape(y, {batch, time, kHeads, size}), {0, 2, 1, 3}); };
  const Array scores =
      matmul(heads(parts[0]), swapaxes(heads(parts[1]), -1, -2)) / std::sqrt(static_cast<double>(size));
  const Array row = expand_dims(arange(time), {1}), column = expand_dims(arange(time), {0});
  const Array weights = softmax(where(column <= row, scores, -1e9));  // [batch, heads, time, time]
  const Array mixed = transpose(matmul(weights, heads(parts[2])), {0, 2, 1, 3});
  return matmul(reshape(mixed, {batch, time, kWidth}), b.mix);
}

Array feed_forward(const Block& b, const Array& x) { return matmul(gelu_tanh(matmul(x, b.feed_in)), b.feed_out); }

Array block(const Array& x, const Block& b) {
  const Array y = x + attention(b, normalize(b.attention_norm, x));
  return y + feed_forward(b, normalize(b.feed_norm, y));
}

// characters: i32[batch, time] -> logits [batch, time, vocabulary]
Array forward(const Gpt& m, const Array& characters) {
  const Array x = take(m.tokens, characters) + m.positions;
  const auto layer = [](const Array& h, const Block& b) { return std::pair{checkpoint(block)(h, b), none}; };
  const Array h = scan(layer, x, m.blocks).first;
  return matmul(normalize(m.norm, h), transpose(m.tokens));
}

// text: i32[batch, context + 1]
Array loss(const Gpt& m, const Array& text) {
  const Array inputs = dynamic_slice(text, array({0, 0}), {text.shape(0), kContext});
  const Array targets = dynamic_slice(text, array({0, 1}), {text.shape(0), kContext});
  const Array logits = forward(m, inputs);
  return cross_entropy(reshape(logits, {-1, kVocabulary}), reshape(targets, {-1}));
}

Norm identity(const Shape& shape) { return {ones(shape), zeros(shape)}; }

Gpt initial(const Array& key) {
  const Array k = random::split(key, 6);
  const auto weights = [](const Array& from, const Shape& shape, double scale) {
    return scale * random::normal(from, shape);
  };
  const double deep = 0.02 / std::sqrt(2.0 * kLayers);  // what is added to the stream by so many blocks
  return {.tokens = weights(k[0], {kVocabulary, kWidth}, 0.02),
          .positions = weights(k[1], {kContext, kWidth}, 0.02),
          .blocks = {.attention_norm = identity({kLayers, kWidth}),
                     .feed_norm = identity({kLayers, kWidth}),
                     .qkv = weights(k[2], {kLayers, kWidth, 3 * kWidth}, 0.02),
                     .mix = weights(k[3], {kLayers, kWidth, kWidth}, deep),
                     .feed_in = weights(k[4], {kLayers, kWidth, 4 * kWidth}, 0.02),
                     .feed_out = weights(k[5], {kLayers, 4 * kWidth, kWidth}, deep)},
          .norm = identity({kWidth})};
}

struct State {
  Gpt model;
  Adam::State<Gpt> adam;
};

const Adam kAdamW{.beta2 = 0.95, .weight_decay = 0.01};

// `text` is all of it; the batch starts at random places.
std::pair<Array, State> train_step(const State& s, const Array& text, const Array& key, const Array& rate) {
  const Array starts = random::randint(key, {kBatch}, 0, text.shape(0) - kContext);
  const Array batch = vmap([](Array all, Array from) { return dynamic_slice(all, reshape(from, {1}), {kContext + 1}); },
                           {.in = {none, 0}})(text, starts);
  const auto [l, gradient] = value_and_grad(loss)(s.model, batch);
  const auto [model, adam] = kAdamW.step(s.model, s.adam, clip_by_global_norm(gradient, 1.0), rate);
  return {l, {model, adam}};
}

// Printable ASCII, and one more for the end of a line.
std::vector<std::int32_t> characters_of(const std::string& path) {
  std::ifstream file(path);
  std::vector<std::int32_t> text;
  for (std::istreambuf_iterator<char> c(file), end; c != end; ++c) {
    if (*c == '\n') text.push_back(kVocabulary - 1);
    else if (*c >= 32 && *c < 127) text.push_back(*c - 32);
  }
  return text;
}

int train(const std::string& path, int steps) {
  using Clock = std::chrono::steady_clock;
  const std::vector<std::int32_t> characters = characters_of(path);
  if (std::ssize(characters) <= kContext + 1) {
    std::fprintf(stderr, "%s holds less text than one example\n", path.c_str());
    return 2;
  }
  const Array text = array(characters);
  State state{.model = initial(random::key(1)), .adam = {}};
  state.adam = kAdamW.init(state.model);
  auto step = jit(train_step, {.name = "train_step", .args = {"state", "text", "key", "rate"}, .donate = {0}});

  const Array key = random::key(2);
  const Clock::time_point start = Clock::now();
  double first = 0, last = 0;
  for (int i = 0; i < steps; ++i) {
    const double rate = 3e-3 * std::min(1.0, (i + 1) / 20.0) * (1.0 - 0.9 * i / steps);
    auto [l, next] = step(state, text, random::fold_in(key, i), rate);
    state = next;
    if (i != 0 && i % 10 != 9 && i + 1 != steps) continue;
    last = l.item<double>();
    if (i == 0) first = last;
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    std::fprintf(stderr, "\rstep %d/%d loss %.4f  %.0f characters/s ", i + 1, steps, last,
                 static_cast<double>((i + 1) * kBatch * kContext) / seconds);
  }
  std::fputc('\n', stderr);
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  const Stats s = stats();
  if (const char* dumps = std::getenv("SHEAF_DUMP"); dumps && *dumps) std::printf("IR of every pass: %s\n", dumps);
  std::printf("loss from %.3f (ln %lld = %.3f) to %.3f, compiled %lld kernels, loaded %lld, %.0f characters/s\n", first,
              static_cast<long long>(kVocabulary), std::log(static_cast<double>(kVocabulary)), last,
              static_cast<long long>(s.kernels_compiled), static_cast<long long>(s.kernels_loaded - s.kernels_compiled),
              steps * kBatch * kContext / seconds);
  const bool starts_at_chance = std::abs(first - std::log(static_cast<double>(kVocabulary))) < 0.3;
  return starts_at_chance && (steps < 800 || last < 2.2) ? 0 : 1;
}

int main(int argc, char** argv) {
  const std::string path = argc > 1 ? argv[1] : "/usr/share/common-licenses/GPL-3";
  const int steps = argc > 2 ? std::atoi(argv[2]) : 800;
  if (steps < 1) {
    std::fprintf(stderr, "usage: char_transformer [TEXT [STEPS]]\n");
    return 2;
  }
  try {
    return train(path, steps);
  } catch (const Error& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
