// A pipeline: each device holds one stage, microbatches travel from stage to stage by ppermute, and one scan runs all
// steps. The result and the gradients are those of the stages one after the other on one device.
#include <sheaf/sheaf.h>

#include <cmath>
#include <cstdio>

using namespace sheaf;

constexpr std::int64_t kStages = 4, kMicrobatches = 8, kRows = 16, kWidth = 64;

Array stage(const Array& W, const Array& x) { return tanh(dot(x, W)); }

// weights: [stages, width, width], x: [microbatches, rows, width]
Array one_by_one(const Array& weights, const Array& x) {
  Array h = reshape(x, {-1, kWidth});
  for (int s = 0; s < kStages; ++s) h = stage(weights[s], h);
  return reshape(h, x.shape());
}

// Of one device: its own stage, and all microbatches, of which the first stage takes one a step.
Array as_pipeline(const Array& own, const Array& x) {
  const Array rank = axis_index("stage");
  std::vector<std::pair<std::int64_t, std::int64_t>> next;
  for (std::int64_t s = 0; s + 1 < kStages; ++s) next.push_back({s, s + 1});
  const auto step = [&](const Array& arrived, const Array& t) {
    const Array input = where(rank == 0, take(x, minimum(t, kMicrobatches - 1)), arrived);
    const Array output = stage(own[0], input);
    return std::pair{ppermute(output, "stage", next), output};
  };
  const Array outputs = scan(step, pcast(zeros({kRows, kWidth}), "stage"), arange(kMicrobatches + kStages - 1)).second;
  // What the last stage gave, from the step on in which the first microbatch arrived there.
  return psum(where(rank == kStages - 1, outputs(slice(kStages - 1, none)), 0), "stage");
}

int main() {
  ensure_devices(kStages);
  try {
    const Mesh mesh({{"stage", kStages}});
    const Array weights = random::normal(random::key(0), {kStages, kWidth, kWidth}) / std::sqrt(double{kWidth});
    const Array x = random::normal(random::key(1), {kMicrobatches, kRows, kWidth});
    const auto pipeline = shard_map(as_pipeline, {.mesh = mesh, .in = {P("stage"), P()}, .out = {P()}});
    const auto loss_of = [](auto f) { return [f](Array w, Array in) { return mean(square(f(w, in))); }; };

    const auto [expected, gradient] = jit(value_and_grad(loss_of(one_by_one)))(weights, x);
    const auto step = jit(value_and_grad(loss_of(pipeline)), {.name = "pipeline"});
    const Array spread = device_put(weights, mesh, P("stage"));
    const auto [loss, spread_gradient] = step(spread, x);
    std::printf("%s\n", step.trace(spread, x).lower().collectives().text.c_str());
    const double difference = std::abs(loss.item<double>() - expected.item<double>());
    const double of_gradient = max(abs(spread_gradient - gradient)).item<double>();
    const bool is_right = difference < 1e-6 && of_gradient < 1e-6;
    std::printf("loss %.6f, on one device %.6f; largest difference of the gradients %.1e  %s\n", loss.item<double>(),
                expected.item<double>(), of_gradient, is_right ? "ok" : "WRONG");
    return is_right ? 0 : 1;
  } catch (const Error& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
