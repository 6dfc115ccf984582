// The main job: a classifier for Fashion-MNIST, trained in one compiled program per step (forward, backward, Adam) on
// batches shuffled by Sheaf's own random numbers. Ends with one line: accuracy, kernels, images per second.
#include <sheaf/sheaf.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>

using namespace sheaf;

struct Mlp {
  Dense in, out;
};

Array forward(const Mlp& m, const Array& images) {
  const Array x = reshape(convert(images, f32), {-1, 784}) / 255.0;  // [batch, pixels]
  return m.out(relu(m.in(x)));                                       // [batch, classes]
}

Array loss(const Mlp& m, const Array& images, const Array& labels) { return cross_entropy(forward(m, images), labels); }

struct State {
  Mlp model;
  Adam::State<Mlp> adam;
};

std::pair<Array, State> train_step(const State& s, const Array& images, const Array& labels, const Array& rate) {
  const auto [l, gradient] = value_and_grad(loss)(s.model, images, labels);
  const auto [model, adam] = Adam{}.step(s.model, s.adam, gradient, rate);
  return {l, {model, adam}};
}

Array count_correct(const Mlp& m, const Array& images, const Array& labels) {
  return sum(argmax(forward(m, images), 1) == labels);
}

struct Data {
  Array images, labels;
};

Data read(const std::string& folder, const std::string& which) {
  return {array(read_idx(folder + "/" + which + "-images-idx3-ubyte.gz")),
          convert(array(read_idx(folder + "/" + which + "-labels-idx1-ubyte.gz")), i32)};
}

void show_progress(int epoch, int epochs, std::int64_t done, std::int64_t total, double l, double rate) {
  std::string bar(24, ' ');
  bar.replace(0, static_cast<std::size_t>(24 * done / total), static_cast<std::size_t>(24 * done / total), '=');
  std::fprintf(stderr, "\repoch %d/%d [%s] loss %.4f  %.0f images/s ", epoch + 1, epochs, bar.c_str(), l, rate);
}

int train(const std::string& folder, int epochs) {
  using Clock = std::chrono::steady_clock;
  const Data training = read(folder, "train"), test = read(folder, "t10k");
  Loader loader({training.images, training.labels}, {.batch = 128, .seed = 1});

  const Array keys = random::split(random::key(0), 2);
  State state{.model = {dense(keys[0], 784, 256), dense(keys[1], 256, 10)}, .adam = {}};
  state.adam = Adam{}.init(state.model);

  auto step = jit(train_step, {.name = "train_step", .args = {"state", "images", "labels", "rate"}, .donate = {0}});
  auto correct = jit(count_correct, {.name = "count_correct", .args = {"model", "images", "labels"}});

  const Clock::time_point start = Clock::now();
  std::int64_t images = 0;
  double seconds = 0;
  for (int epoch = 0; epoch < epochs; ++epoch) {
    const double rate = 1e-3 * std::pow(0.1, static_cast<double>(epoch) / epochs);  // decays tenfold over the run
    for (std::int64_t i = 0; i < loader.batches(); ++i) {
      const std::vector<Array> batch = loader.batch(epoch, i);
      auto [l, next] = step(state, batch[0], batch[1], rate);
      state = next;
      images += batch[0].shape(0);
      if (i % 50 != 49 && i + 1 != loader.batches()) continue;
      const double value = l.item<double>();
      seconds = std::chrono::duration<double>(Clock::now() - start).count();
      show_progress(epoch, epochs, i + 1, loader.batches(), value, static_cast<double>(images) / seconds);
    }
  }
  std::fputc('\n', stderr);

  const double accuracy =
      correct(state.model, test.images, test.labels).item<double>() / static_cast<double>(test.labels.size());
  const Stats s = stats();
  if (const char* dumps = std::getenv("SHEAF_DUMP"); dumps && *dumps) std::printf("IR of every pass: %s\n", dumps);
  std::printf("test accuracy %.4f, compiled %lld kernels, loaded %lld, %.0f images/s\n", accuracy,
              static_cast<long long>(s.kernels_compiled), static_cast<long long>(s.kernels_loaded - s.kernels_compiled),
              static_cast<double>(images) / seconds);
  return accuracy >= 0.87 ? 0 : 1;
}

int main(int argc, char** argv) {
  const std::string folder = argc > 1 ? argv[1] : "/usr/share/datasets/fashion-mnist";
  const int epochs = argc > 2 ? std::atoi(argv[2]) : 10;
  if (epochs < 1) {
    std::fprintf(stderr, "usage: mlp [FOLDER [EPOCHS]]\n");
    return 2;
  }
  try {
    return train(folder, epochs);
  } catch (const Error& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
