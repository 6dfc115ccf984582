// What the image classifiers share: Fashion-MNIST, training by Adam in one compiled program per step (forward, backward
// and optimizer), and the line that a run ends with. A model is a tree of arrays and a function of it and of images.
#pragma once

#include <sheaf/sheaf.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

namespace classifier {

using namespace sheaf;

struct Data {
  Array images, labels;  // u8[count, 28, 28], i32[count]
};

inline Data read(const std::string& folder, const std::string& which) {
  return {array(read_idx(folder + "/" + which + "-images-idx3-ubyte.gz")),
          convert(array(read_idx(folder + "/" + which + "-labels-idx1-ubyte.gz")), i32)};
}

inline void show_progress(int epoch, int epochs, std::int64_t done, std::int64_t total, double loss, double rate) {
  std::string bar(24, ' ');
  bar.replace(0, static_cast<std::size_t>(24 * done / total), static_cast<std::size_t>(24 * done / total), '=');
  std::fprintf(stderr, "\repoch %d/%d [%s] loss %.4f  %.0f images/s ", epoch + 1, epochs, bar.c_str(), loss, rate);
}

template <class Model>
struct State {
  Model model;
  Adam::State<Model> adam;
};

/// Forward takes a model and u8 images and gives a score for each class.
template <class Model, Array (*forward)(const Model&, const Array&)>
class Classifier {
 public:
  static Array loss(const Model& m, const Array& images, const Array& labels) {
    return cross_entropy(forward(m, images), labels);
  }

  static std::pair<Array, State<Model>> train_step(const State<Model>& s, const Array& images, const Array& labels,
                                                   const Array& rate) {
    const auto [l, gradient] = value_and_grad(loss)(s.model, images, labels);
    const auto [model, adam] = Adam{}.step(s.model, s.adam, gradient, rate);
    return {l, {model, adam}};
  }

  static Array count_correct(const Model& m, const Array& images, const Array& labels) {
    return sum(argmax(forward(m, images), 1) == labels);
  }

  /// Over the whole set, a thousand images at a time.
  static double accuracy_of(const Model& m, const Data& data) {
    auto correct = jit(count_correct, {.name = "count_correct", .args = {"model", "images", "labels"}});
    const std::int64_t count = data.labels.size(), part = 1000;
    double total = 0;
    for (std::int64_t i = 0; i < count; i += part)
      total += correct(m, data.images(slice(i, i + part)), data.labels(slice(i, i + part))).template item<double>();
    return total / static_cast<double>(count);
  }
};

struct Plan {
  const char* name;
  int epochs;  // unless the command line says how many
  double rate;  // of the first epoch; it decays tenfold over the run
  double wanted;  // accuracy on the test images
};

template <class Model, Array (*forward)(const Model&, const Array&)>
int train(const Plan& plan, const Model& model, const std::string& folder, int epochs) {
  using C = Classifier<Model, forward>;
  using Clock = std::chrono::steady_clock;
  const Data training = read(folder, "train"), test = read(folder, "t10k");
  Loader loader({training.images, training.labels}, {.batch = 128, .seed = 1});
  State<Model> state{.model = model, .adam = Adam{}.init(model)};
  auto step = jit(C::train_step, {.name = "train_step", .args = {"state", "images", "labels", "rate"}, .donate = {0}});

  const Clock::time_point start = Clock::now();
  std::int64_t images = 0;
  double seconds = 0;
  for (int epoch = 0; epoch < epochs; ++epoch) {
    const double rate = plan.rate * std::pow(0.1, static_cast<double>(epoch) / epochs);
    for (std::int64_t i = 0; i < loader.batches(); ++i) {
      const std::vector<Array> batch = loader.batch(epoch, i);
      auto [loss, next] = step(state, batch[0], batch[1], rate);
      state = next;
      images += batch[0].shape(0);
      if (i % 50 != 49 && i + 1 != loader.batches()) continue;
      const double value = loss.template item<double>();
      seconds = std::chrono::duration<double>(Clock::now() - start).count();
      show_progress(epoch, epochs, i + 1, loader.batches(), value, static_cast<double>(images) / seconds);
    }
  }
  std::fputc('\n', stderr);

  const double accuracy = C::accuracy_of(state.model, test);
  const Stats s = stats();
  if (const char* dumps = std::getenv("SHEAF_DUMP"); dumps && *dumps) std::printf("IR of every pass: %s\n", dumps);
  std::printf("test accuracy %.4f, compiled %lld kernels, loaded %lld, %.0f images/s\n", accuracy,
              static_cast<long long>(s.kernels_compiled), static_cast<long long>(s.kernels_loaded - s.kernels_compiled),
              static_cast<double>(images) / seconds);
  return accuracy >= plan.wanted ? 0 : 1;
}

/// The sample's main: NAME [FOLDER [EPOCHS]].
template <class Model, Array (*forward)(const Model&, const Array&)>
int run(const Plan& plan, Model (*make)(const Array& key), int argc, char** argv) {
  const std::string folder = argc > 1 ? argv[1] : "/usr/share/datasets/fashion-mnist";
  const int epochs = argc > 2 ? std::atoi(argv[2]) : plan.epochs;
  if (epochs < 1) {
    std::fprintf(stderr, "usage: %s [FOLDER [EPOCHS]]\n", plan.name);
    return 2;
  }
  try {
    return train<Model, forward>(plan, make(random::key(0)), folder, epochs);
  } catch (const Error& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}

}  // namespace classifier
