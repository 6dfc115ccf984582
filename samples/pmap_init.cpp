// Every device draws its own part: pmap over the device numbers, the shape a static argument. No part is ever in two
// places, and none travels.
#include <sheaf/sheaf.h>

#include <cmath>
#include <cstdio>

using namespace sheaf;

int main() {
  ensure_devices(4);
  try {
    const auto draw = [](Array device, Shape shape) {
      return random::normal(random::fold_in(random::key(0), device), shape);
    };
    const auto init = pmap(draw, {.static_broadcasted = {1}});
    const Array x = init(arange(4), Shape{256, 256});
    std::printf("x is %s, one slice on each device:\n", to_string(x.shape()).c_str());
    bool is_right = x.shape() == Shape{4, 256, 256} && x.addressable_shards().size() == 4;
    for (const Shard& s : x.addressable_shards()) {
      const double average = mean(s.data).item<double>(), deviation = std::sqrt(mean(square(s.data)).item<double>());
      std::printf("  %s: mean %+.4f, standard deviation %.4f\n", to_string(s.device).c_str(), average, deviation);
      is_right &= std::abs(average) < 0.02 && std::abs(deviation - 1) < 0.02;
    }
    return is_right ? 0 : 1;
  } catch (const Error& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
