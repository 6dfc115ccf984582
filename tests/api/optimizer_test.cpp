// The arrays of a model are updated in as few launches as their dependence allows, with the bits of each by itself.
#include <doctest/doctest.h>

#include <vector>

#include "runtime/device.h"
#include "sheaf/sheaf.h"
#include "tests/launches.h"

using namespace sheaf;

namespace {

std::vector<Array> arrays(std::uint64_t key) {
  std::vector<Array> all;
  for (std::int64_t i = 0; i < 16; ++i)
    all.push_back(random::normal(random::fold_in(random::key(key), i), i % 3 ? Shape{5 + i, 40} : Shape{100 + i}));
  return all;
}

}  // namespace

TEST_CASE("Adam, and stochastic descent with momentum, update all arrays in one launch") {
  if (!runtime::device(0).backend().is_host()) return;  // GPUs have one graph of all launches
  const std::vector<Array> p = arrays(1), g = arrays(2);
  const auto check = [&](const auto& optimizer, std::int64_t launches) {
    const auto state = optimizer.init(p);
    const auto step = jit([=](std::vector<Array> q, decltype(optimizer.init(p)) s, std::vector<Array> d) {
      return optimizer.step(q, s, d, Array(0.1f));
    });
    warm(step, p, state, g);  // an interpreter runs kernels one by one
    const auto [now, next] = step(p, state, g);
    CHECK(tests::launches_of([&] { step(p, state, g); }) <= launches);
    for (std::size_t i : {std::size_t{0}, std::size_t{5}, p.size() - 1}) {
      const std::vector<Array> own_p{p[i]}, own_g{g[i]};
      const auto [own, own_next] = optimizer.step(own_p, optimizer.init(own_p), own_g, Array(0.1f));
      CHECK(now[i].template to_vector<float>() == own[0].template to_vector<float>());
    }
  };
  check(Momentum{}, 1);
  check(Adam{}, 2);  // what all of them share comes first
}
