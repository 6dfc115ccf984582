// A Kalman filter as one scan: the gain by a solve, draws by a Cholesky factor. It checks itself against the golden
// ratio, to which the variance of a scalar random walk seen through equal noise converges, and its likelihood against
// differences.
#include <sheaf/sheaf.h>

#include <cmath>
#include <cstdio>

using namespace sheaf;

struct Model {
  Array step, seen;            // x' = step x + process noise [n, n]; z = seen x + noise [m, n]
  Array process, measurement;  // covariances [n, n], [m, m]
};

struct Belief {
  Array mean, covariance;  // [n], [n, n]
};

struct Update {
  Belief belief;
  Array gain;            // [n, m]
  Array log_likelihood;  // of the measurement, before it was seen
};

Update update(const Model& m, const Belief& before, const Array& z) {
  const Array mean = dot(m.step, before.mean);
  const Array covariance = dot(dot(m.step, before.covariance), transpose(m.step)) + m.process;
  const Array expected = dot(dot(m.seen, covariance), transpose(m.seen)) + m.measurement;  // covariance of z
  const Array gain = transpose(linalg::solve(expected, dot(m.seen, covariance)));
  const Array surprise = z - dot(m.seen, mean);

  const Array root = linalg::cholesky(expected);
  const Array whitened = linalg::triangular_solve(root, surprise);
  const double log_2pi = std::log(2 * std::acos(-1.0));
  const Array log_likelihood =
      -0.5 * (sum(square(whitened)) + 2 * sum(log(sum(root * eye(z.shape()[0], root.dtype()), {.axes = {1}}))) +
              static_cast<double>(z.shape()[0]) * log_2pi);
  const Array identity = eye(mean.shape()[0], covariance.dtype());
  return {{mean + dot(gain, surprise), dot(identity - dot(gain, m.seen), covariance)}, gain, log_likelihood};
}

struct Run {
  Belief last;
  Array gains, log_likelihood;
};

Run filter(const Model& m, const Belief& start, const Array& measurements) {
  const auto [last, outs] = scan(
      [&](const Belief& belief, const Array& z) {
        const Update u = update(m, belief, z);
        return std::pair{u.belief, std::pair{u.gain, u.log_likelihood}};
      },
      start, measurements);
  return {last, outs.first, sum(outs.second)};
}

bool holds(bool is_true, const char* what, double value) {
  std::printf("%-58s %.9f  %s\n", what, value, is_true ? "ok" : "WRONG");
  return is_true;
}

/// A scalar walk with variances 1 and 1: the predicted variance becomes the golden ratio, the gain its inverse.
bool check_golden_ratio() {
  const Array one = ones({1, 1}, f64);
  const Run run = jit(filter)(Model{one, one, one, one}, {zeros({1}, f64), one}, zeros({60, 1}, f64));
  const double golden = (1 + std::sqrt(5.0)) / 2;
  const double predicted = run.last.covariance.item<double>() + 1, gain = run.gains[-1].item<double>();
  return holds(std::abs(predicted - golden) < 1e-12, "predicted variance is the golden ratio", predicted) &&
         holds(std::abs(gain - 1 / golden) < 1e-12, "gain is one less", gain);
}

/// A position and a velocity, of which noisy positions are seen.
Model moving(const Array& measurement_variance) {
  return {array({{1.0, 1.0}, {0.0, 1.0}}, f64), array({{1.0, 0.0}}, f64), array({{0.05, 0.02}, {0.02, 0.04}}, f64),
          reshape(measurement_variance, {1, 1})};
}

/// A path drawn from the model itself.
Array draw(const Model& m, std::int64_t steps) {
  const Array noise = random::normal(random::key(1), {steps, 3}, f64), root = linalg::cholesky(m.process);
  const auto [last, seen] = scan(
      [&](const Array& x, const Array& n) {
        const Array next = dot(m.step, x) + dot(root, n[slice(0, 2)]);
        return std::pair{next, dot(m.seen, next) + sqrt(m.measurement[0]) * n[slice(2, 3)]};
      },
      zeros({2}, f64), noise);
  return seen;
}

/// The filter's likelihood has its largest value near the variance the data was drawn with, and its derivative through
/// the scan, the solve and the Cholesky factor is that of differences.
bool check_likelihood() {
  const Array variance = full({}, 0.5, f64), z = draw(moving(variance), 400);
  const Belief start{zeros({2}, f64), eye(2, f64)};
  const auto likelihood = jit([&](Array v) { return filter(moving(v), start, z).log_likelihood; });
  const double h = 1e-6, slope = jit(grad(likelihood))(variance).item<double>();
  const double difference =
      (likelihood(variance + h).item<double>() - likelihood(variance - h).item<double>()) / (2 * h);
  const double at = likelihood(variance).item<double>();
  const bool is_best = at > likelihood(variance * 4).item<double>() && at > likelihood(variance / 4).item<double>();
  return holds(is_best, "the likelihood prefers the true variance", at) &&
         holds(std::abs(slope - difference) < 1e-5 * (1 + std::abs(difference)),
               "its derivative is that of differences", slope);
}

int main() {
  const bool golden = check_golden_ratio(), likely = check_likelihood();
  std::printf("kalman: %s\n", golden && likely ? "all checks hold" : "A CHECK FAILED");
  return golden && likely ? 0 : 1;
}
