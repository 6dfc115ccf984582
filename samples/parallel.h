// One training program for many layouts: a two-layer network that learns from a random teacher. Where parameters and
// batch lie is all that data parallelism, tensor parallelism and FSDP differ in; the compiler writes the communication,
// which is printed. The losses are compared with those of the same steps on one device.
#pragma once

#include <sheaf/sheaf.h>

#include <cmath>
#include <cstdio>
#include <utility>
#include <vector>

#include "losses.h"

namespace parallel {

using namespace sheaf;

constexpr std::int64_t kExamples = 4096, kIn = 64, kHidden = 256, kOut = 32;
constexpr int kSteps = 20;

struct Network {
  Array W1, b1;  // [in, hidden], [hidden]
  Array W2, b2;  // [hidden, out], [out]
};

struct Batch {
  Array x, y;  // [examples, in], [examples, out]
};

struct State {
  Network network;
  Adam::State<Network> adam;
};

inline Array predict(const Network& n, const Array& x) { return dot(tanh(dot(x, n.W1) + n.b1), n.W2) + n.b2; }
inline Array loss(const Network& n, const Batch& batch) { return mean(square(predict(n, batch.x) - batch.y)); }

inline Network initial(const Array& key) {
  const Array keys = random::split(key, 2);
  return {.W1 = random::normal(keys[0], {kIn, kHidden}) / std::sqrt(double{kIn}),
          .b1 = zeros({kHidden}),
          .W2 = random::normal(keys[1], {kHidden, kOut}) / std::sqrt(double{kHidden}),
          .b2 = zeros({kOut})};
}

inline std::pair<Array, State> train_step(const State& s, const Batch& batch) {
  const auto [l, gradient] = value_and_grad(loss)(s.network, batch);
  const auto [network, adam] = Adam{}.step(s.network, s.adam, gradient, 3e-3);
  return {l, {network, adam}};
}

inline const auto& step() {
  static const auto jitted = jit(train_step, {.name = "train_step", .args = {"state", "batch"}});
  return jitted;
}

/// Trains on one device and on the mesh; 0 if the losses agree and fall.
inline int compare(const char* name, const Mesh& mesh, const Specs& of_network, const Specs& of_batch) {
  const Network network = initial(random::key(1));
  const Array x = random::normal(random::key(2), {kExamples, kIn});
  const Batch batch{x, predict(initial(random::key(3)), x)};
  const State alone{network, Adam{}.init(network)};

  const Network spread = device_put(network, mesh, of_network);
  const State state{spread, Adam{}.init(spread)};  // the moments lie as the parameters do
  const Batch parts = device_put(batch, mesh, of_batch);

  std::printf("%s on %s\n", name, to_string(mesh).c_str());
  std::printf("state per device: %lld of %lld bytes\n", static_cast<long long>(bytes_per_device(state)),
              static_cast<long long>(bytes_per_device(alone)));
  std::printf("%s\n", step().trace(state, parts).lower().collectives().text.c_str());

  const std::vector<float> expected = samples::losses(step(), alone, batch, kSteps);
  return samples::agree(samples::losses(step(), state, parts, kSteps), expected) ? 0 : 1;
}

}  // namespace parallel
