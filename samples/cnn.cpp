// A convolutional classifier for Fashion-MNIST: two convolutions with pooling, then two dense layers, trained in one
// compiled program per step. Ends with one line: accuracy, kernels, images per second.
#include <sheaf/sheaf.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>

using namespace sheaf;

struct Cnn {
  Convolution first, second;
  Dense hidden, out;
};

Cnn make_cnn(const Array& key) {
  const Array keys = random::split(key, 4);
  return {convolution(keys[0], {3, 3}, 1, 16), convolution(keys[1], {3, 3}, 16, 32), dense(keys[2], 7 * 7 * 32, 128),
          dense(keys[3], 128, 10)};
}

Array forward(const Cnn& m, const Array& images) {
  Array x = reshape(convert(images, f32), {-1, 28, 28, 1}) / 255.0;      // [batch, height, width, channels]
  x = max_pool(relu(m.first(x)));                                        // [batch, 14, 14, 16]
  x = max_pool(relu(m.second(x)));                                       // [batch, 7, 7, 32]
  return m.out(relu(m.hidden(reshape(x, {-1, 7 * 7 * 32}))));            // [batch, classes]
}

Array loss(const Cnn& m, const Array& images, const Array& labels) { return cross_entropy(forward(m, images), labels); }

struct State {
  Cnn model;
  Adam::State<Cnn> adam;
};

std::pair<Array, State> train_step(const State& s, const Array& images, const Array& labels, const Array& rate) {
  const auto [l, gradient] = value_and_grad(loss)(s.model, images, labels);
  const auto [model, adam] = Adam{}.step(s.model, s.adam, gradient, rate);
  return {l, {model, adam}};
}

Array count_correct(const Cnn& m, const Array& images, const Array& labels) {
  return sum(argmax(forward(m, images), 1) == labels);
}

struct Data {
  Array images, labels;
};

Data read(const std::string& folder, const std::string& which) {
  return {array(read_idx(folder + "/" + which + "-images-idx3-ubyte.gz")),
          convert(array(read_idx(folder + "/" + which + "-labels-idx1-ubyte.gz")), i32)};
}

// Over the whole set, a thousand images at a time.
double accuracy_of(const Cnn& m, const Data& data) {
  auto correct = jit(count_correct, {.name = "count_correct", .args = {"model", "images", "labels"}});
  const std::int64_t count = data.labels.size(), part = 1000;
  double total = 0;
  for (std::int64_t i = 0; i < count; i += part)
    total += correct(m, data.images(slice(i, i + part)), data.labels(slice(i, i + part))).item<double>();
  return total / static_cast<double>(count);
}

int train(const std::string& folder, int epochs) {
  using Clock = std::chrono::steady_clock;
  const Data training = read(folder, "train"), test = read(folder, "t10k");
  Loader loader({training.images, training.labels}, {.batch = 128, .seed = 1});

  State state{.model = make_cnn(random::key(0)), .adam = {}};
  state.adam = Adam{}.init(state.model);
  auto step = jit(train_step, {.name = "train_step", .args = {"state", "images", "labels", "rate"}, .donate = {0}});

  const Clock::time_point start = Clock::now();
  std::int64_t images = 0;
  double seconds = 0;
  for (int epoch = 0; epoch < epochs; ++epoch) {
    const double rate = 2e-3 * std::pow(0.1, static_cast<double>(epoch) / epochs);  // decays tenfold over the run
    for (std::int64_t i = 0; i < loader.batches(); ++i) {
      const std::vector<Array> batch = loader.batch(epoch, i);
      auto [l, next] = step(state, batch[0], batch[1], rate);
      state = next;
      images += batch[0].shape(0);
      if (i % 50 != 49 && i + 1 != loader.batches()) continue;
      const double value = l.item<double>();
      seconds = std::chrono::duration<double>(Clock::now() - start).count();
      std::fprintf(stderr, "\repoch %d/%d, batch %lld/%lld, loss %.4f  %.0f images/s ", epoch + 1, epochs,
                   static_cast<long long>(i + 1), static_cast<long long>(loader.batches()), value,
                   static_cast<double>(images) / seconds);
    }
  }
  std::fputc('\n', stderr);

  const double accuracy = accuracy_of(state.model, test);
  const Stats s = stats();
  if (const char* dumps = std::getenv("SHEAF_DUMP"); dumps && *dumps) std::printf("IR of every pass: %s\n", dumps);
  std::printf("test accuracy %.4f, compiled %lld kernels, loaded %lld, %.0f images/s\n", accuracy,
              static_cast<long long>(s.kernels_compiled), static_cast<long long>(s.kernels_loaded - s.kernels_compiled),
              static_cast<double>(images) / seconds);
  return accuracy >= 0.90 ? 0 : 1;
}

int main(int argc, char** argv) {
  const std::string folder = argc > 1 ? argv[1] : "/usr/share/datasets/fashion-mnist";
  const int epochs = argc > 2 ? std::atoi(argv[2]) : 6;
  if (epochs < 1) {
    std::fprintf(stderr, "usage: cnn [FOLDER [EPOCHS]]\n");
    return 2;
  }
  try {
    return train(folder, epochs);
  } catch (const Error& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
