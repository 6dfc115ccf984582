// Cases of control flow and custom rules that users of other systems reported, by their numbers in the collection.
#include <cmath>
#include <limits>

#include "tests/control/interpreted.h"

using namespace sheaf;
using sheaf::tests::interpreted;

namespace {

using V = std::vector<double>;

}  // namespace

TEST_CASE("B15: the Jacobian of a running sum is lower triangular, forward and reverse") {
  auto running = [](Array n) { return scan([](Array x, Array d) { return std::pair{x + d, x + d}; }, 0.0, n).second; };
  const Array n = array({1.0, 2.0, 3.0, 4.0, 5.0}, f64);
  const auto forward = interpreted(jacfwd(running), n), reverse = interpreted(jacrev(running), n);
  for (std::size_t i = 0; i < 25; ++i) {
    CHECK(forward[0][i] == (i % 5 <= i / 5 ? 1 : 0));
    CHECK(reverse[0][i] == forward[0][i]);
  }
}

TEST_CASE("B17: a vector normalised by cond has gradient zero at zero, under vmap too") {
  auto normalised = [](Array x) {
    return sum(
        cond(all(x == 0), [](Array v) { return zeros_like(v); }, [](Array v) { return v / sqrt(sum(v * v)); }, x));
  };
  CHECK(interpreted(grad(normalised), zeros({3}))[0] == V{0, 0, 0});
  CHECK(interpreted(vmap(grad(normalised)), zeros({4, 3}))[0] == V(12, 0.0));
  CHECK(interpreted(grad([&](Array x) { return sum(vmap(normalised)(x)); }), zeros({4, 3}))[0] == V(12, 0.0));
}

TEST_CASE("B19: a while under vmap goes on until every example is done, and each stops for itself") {
  auto up = [](Array x) { return while_loop([](Array c) { return c <= 0; }, [](Array c) { return c + 1; }, x); };
  CHECK(interpreted(vmap(up), array({0, 1, 2}))[0] == V{1, 1, 2});
  CHECK(interpreted(vmap(up), array({-3, 0, 5}))[0] == V{1, 1, 5});
  for (const std::int64_t columns : {5, 4}) {
    const std::int64_t rows = columns == 5 ? 3 : 4;
    auto count = [](Array limit, Array step) {
      return while_loop([&](Array c) { return c < limit; }, [&](Array c) { return c + step; }, zeros_like(step));
    };
    // The predicate is mapped by the outer vmap alone.
    auto grid = vmap(vmap(
                         [&](Array limit, Array step) {
                           const auto both = while_loop(
                               [&](std::pair<Array, Array> c) { return c.first < limit; },
                               [&](std::pair<Array, Array> c) { return std::pair{c.first + 1, c.second + step}; },
                               std::pair{zeros_like(limit), zeros_like(step)});
                           return both.second + 0 * count(limit, ones_like(limit));
                         },
                         {.in = {none, 0}}),
                     {.in = {0, none}});
    const auto out = interpreted(grid, arange(0, rows, 1, f64), arange(1, columns + 1, 1, f64));
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t j = 0; j < columns; ++j) CHECK(out[0][i * columns + j] == static_cast<double>(i * (j + 1)));
  }
}

TEST_CASE("a branch that is not taken does not poison the gradient, under vmap either") {
  auto safe = [](Array x) { return cond(x > 0, [](Array v) { return sqrt(v); }, [](Array v) { return 0 * v; }, x); };
  CHECK(interpreted(grad(safe), Array(0.0)).scalar() == 0);
  const auto g = interpreted(vmap(grad(safe)), array({0.0, 4.0, -1.0}));
  CHECK(g[0] == V{0, 0.25, 0});
}

TEST_CASE("B57: a checkpoint of dropout has the gradient of the plain one, to the bit, and keeps no mask") {
  const Array key = random::key(3);
  auto layer = [](Array k, Array x) { return where(random::bernoulli(k, x.shape(), 0.5), tanh(x) * 2, 0); };
  auto loss = [](auto f) { return [f](Array x, Array k) { return sum(sin(f(k, x))); }; };
  const Array x = random::normal(random::key(1), {8});
  CHECK(same(grad(loss(layer))(x, key), grad(loss(checkpoint(layer)))(x, key)));
  const auto traced = interpreted(loss(checkpoint(layer)), x, key);
  const passes::Vjp v = passes::vjp(traced.function, {true, false});
  for (std::size_t j = 1; j < v.forward->results().size(); ++j) CHECK(v.forward->results()[j].dtype() != bool_);
}
