// Gravity by grad and scan: forces are the gradient of the energy, a leapfrog step is the body of a scan, and the
// gradient goes through the whole orbit. Checks itself: a circular orbit returns after 2 pi, energy is kept, and the
// derivative of the end by the start equals finite differences.
#include <sheaf/sheaf.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>

using namespace sheaf;

constexpr double kPi = 3.14159265358979323846;

struct Bodies {
  Array position, velocity;  // [bodies, 2]
};

Array potential(const Array& position, const Array& mass) {
  const Array apart = expand_dims(position, {1}) - expand_dims(position, {0});  // [i, j, 2]
  const Array squared = sum(square(apart), {.axes = {2}});
  const Array pairs = triu(outer(mass, mass), 1);  // each pair once
  return -sum(where(pairs > 0.0, pairs / sqrt(where(pairs > 0.0, squared, 1.0)), 0.0));
}

Array energy(const Bodies& b, const Array& mass) {
  return 0.5 * sum(mass * sum(square(b.velocity), {.axes = {1}})) + potential(b.position, mass);
}

Array acceleration(const Array& position, const Array& mass) {
  return -grad(potential)(position, mass) / expand_dims(mass, {1});
}

// Velocity Verlet (Swope et al. 1982): kick, drift, kick.
Bodies step(const Bodies& b, const Array& mass, const Array& dt) {
  const Array half = b.velocity + 0.5 * dt * acceleration(b.position, mass);
  const Array position = b.position + dt * half;
  return {position, half + 0.5 * dt * acceleration(position, mass)};
}

struct Orbit {
  Bodies end;
  Array drift;  // largest change of the energy on the way
};

Orbit orbit(const Bodies& start, const Array& mass, const Array& dt, int steps) {
  const Array before = energy(start, mass);
  const auto body = [&](const Bodies& b, None) {
    const Bodies next = step(b, mass, dt);
    return std::pair{next, abs(energy(next, mass) - before)};
  };
  const auto [end, change] = scan(body, start, none, {.length = steps});
  return {end, max(change)};
}

// Two equal bodies on one circle of radius 1/2 about their middle, which they go round in 2 pi.
Bodies circle() {
  const double speed = 0.5;
  return {array({{0.5, 0.0}, {-0.5, 0.0}}, f64), array({{0.0, speed}, {0.0, -speed}}, f64)};
}

int main(int argc, char** argv) {
  const int steps = argc > 1 ? std::atoi(argv[1]) : 2000;
  if (steps < 1) {
    std::fprintf(stderr, "usage: nbody [STEPS]\n");
    return 2;
  }
  try {
    const Array mass = array({0.5, 0.5}, f64), dt = array(std::vector<double>{2 * kPi / steps}, Shape{});
    const Bodies start = circle();
    const Orbit whole = jit([steps](Bodies b, Array m, Array h) { return orbit(b, m, h, steps); })(start, mass, dt);
    const double miss = max(abs(whole.end.position - start.position)).item<double>();
    const double drift = whole.drift.item<double>();

    // How far the end of a quarter moves when the start does: by reverse mode, and by differences.
    const auto final_x = [steps](Array x0, Array m, Array h) {
      Bodies b = circle();
      b.position = b.position + x0 * array({{1.0, 0.0}, {0.0, 0.0}}, f64);
      return orbit(b, m, h, steps / 4).end.position(0, 0);
    };
    const auto at = [&](double x0) {
      return jit(final_x)(array(std::vector<double>{x0}, Shape{}), mass, dt).item<double>();
    };
    const double slope = jit(grad(final_x))(array(std::vector<double>{0.0}, Shape{}), mass, dt).item<double>();
    const double difference = (at(1e-5) - at(-1e-5)) / 2e-5;

    const bool ok =
        miss < 20.0 / steps / steps * 10 && drift < 1e-3 && std::abs(slope - difference) < 1e-6 * (1 + std::abs(slope));
    std::printf("orbit misses its start by %.2e, energy drifts by %.2e, d end / d start %.8f (differences %.8f): %s\n",
                miss, drift, slope, difference, ok ? "ok" : "WRONG");
    return ok ? 0 : 1;
  } catch (const Error& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
