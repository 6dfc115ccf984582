// A physics-informed network (Raissi et al., 2019): u'' = -pi^2 sin(pi x) on [-1, 1], u(-1) = u(1) = 0, whose solution
// is sin(pi x). The loss holds the network's second derivative, grad of grad under vmap, and is itself differentiated.
// Checks the second derivative against differences and the trained network against the solution.
#include <sheaf/sheaf.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>

using namespace sheaf;

constexpr double kPi = 3.14159265358979323846;

struct Net {
  Dense first, second, last;
};

Array value(const Net& n, const Array& x) {
  return reshape(n.last(tanh(n.second(tanh(n.first(reshape(x, {1})))))), {});
}

Array curvature(const Net& n, const Array& x) {
  return grad([&](Array at) { return grad([&](Array z) { return value(n, z); })(at); })(x);
}

Array loss(const Net& n, const Array& points) {
  const Array wanted = -kPi * kPi * sin(kPi * points);
  const Array residual = vmap([&](Array x) { return curvature(n, x); })(points) - wanted;
  const Array ends = vmap([&](Array x) { return value(n, x); })(array({-1.0, 1.0}, f64));
  return mean(square(residual)) + 10.0 * mean(square(ends));
}

struct State {
  Net net;
  Adam::State<Net> adam;
};

std::pair<Array, State> train_step(const State& s, const Array& points, const Array& rate) {
  const auto [l, gradient] = value_and_grad(loss)(s.net, points);
  const auto [net, adam] = Adam{}.step(s.net, s.adam, gradient, rate);
  return {l, {net, adam}};
}

int main(int argc, char** argv) {
  const int steps = argc > 1 ? std::atoi(argv[1]) : 3000;
  if (steps < 1) {
    std::fprintf(stderr, "usage: pinn [STEPS]\n");
    return 2;
  }
  try {
    const Array keys = random::split(random::key(0), 3);
    State s{.net = {dense(keys[0], 1, 24, f64), dense(keys[1], 24, 24, f64), dense(keys[2], 24, 1, f64)}, .adam = {}};
    s.adam = Adam{}.init(s.net);
    const Array points = linspace(-1, 1, 64, f64);

    const auto at = [&](double x) { return value(s.net, array(std::vector<double>{x}, Shape{})).item<double>(); };
    const double h = 1e-3, difference = (at(0.3 + h) - 2 * at(0.3) + at(0.3 - h)) / (h * h);
    const double exact = curvature(s.net, array(std::vector<double>{0.3}, Shape{})).item<double>();

    auto step = jit(train_step, {.name = "train_step", .args = {"state", "points", "rate"}, .donate = {0}});
    double last = 0;
    for (int i = 0; i < steps; ++i) {
      auto [l, next] = step(s, points, 5e-3 * std::pow(0.02, static_cast<double>(i) / steps));
      s = next;
      if (i % 100 != 99 && i + 1 != steps) continue;
      last = l.item<double>();
      std::fprintf(stderr, "\rstep %d/%d loss %.6f ", i + 1, steps, last);
    }
    std::fputc('\n', stderr);
    const Array u = vmap([&](Array x) { return value(s.net, x); })(points);
    const double error = max(abs(u - sin(kPi * points))).item<double>();
    const bool ok = std::abs(exact - difference) < 1e-4 * (1 + std::abs(exact)) && (steps < 3000 || error < 0.02);
    std::printf("second derivative %.6f (differences %.6f), loss %.2e, largest error of u %.4f: %s\n", exact,
                difference, last, error, ok ? "ok" : "WRONG");
    return ok ? 0 : 1;
  } catch (const Error& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
