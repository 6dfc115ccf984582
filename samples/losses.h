// What a training step gives on a mesh is to be what it gives on one device: the losses of some steps, and both lists
// compared.
#pragma once

#include <sheaf/sheaf.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

namespace samples {

/// step: (state, batch) -> (loss, next state).
template <class Step, class State, class Batch>
std::vector<float> losses(const Step& step, State state, const Batch& batch, int steps) {
  std::vector<sheaf::Array> each;
  for (int i = 0; i < steps; ++i) {
    auto [loss, next] = step(state, batch);
    each.push_back(loss);
    state = next;
  }
  std::vector<float> values;
  for (const sheaf::Array& loss : each) values.push_back(loss.item<float>());
  return values;
}

/// Prints them; whether they agree, and fall.
inline bool agree(const std::vector<float>& got, const std::vector<float>& on_one_device) {
  double difference = 0;
  for (std::size_t i = 0; i < got.size(); ++i)
    difference = std::max(difference, std::abs(double{got[i]} / on_one_device[i] - 1));
  const bool is_right = difference < 1e-4 && got.back() < got.front();
  std::printf("loss from %.5f to %.5f, on one device to %.5f; largest difference %.1e  %s\n", got.front(), got.back(),
              on_one_device.back(), difference, is_right ? "ok" : "WRONG");
  return is_right;
}

}  // namespace samples
