// Sphere tracing: each pixel's ray goes on while it has not hit, a while_loop under two vmaps; normals are the gradient
// of the distance. Checks itself against the exact distance to the sphere, and |grad| = 1 (the eikonal equation).
#include <sheaf/sheaf.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>

using namespace sheaf;

const std::string kShades = " .:-=+*#%@";

// Signed distance to the sphere of radius 1 at (0, 0, 3).
Array distance(const Array& point) {
  const Array to_center = point - array({0.0, 0.0, 3.0}, f64);
  return sqrt(sum(square(to_center))) - 1.0;
}

struct Ray {
  Array length, gap;  // gone so far, to the surface
  Array steps;
};

// From the eye at 0 along `direction`, until it hits or has left the scene.
Ray march(const Array& direction) {
  const Ray start{zeros({}, f64), distance(zeros({3}, f64)), zeros({}, i32)};
  const auto goes_on = [](const Ray& r) { return logical_and(r.gap > 1e-9, r.length < 10.0); };
  const auto go = [&](const Ray& r) {
    const Array length = r.length + r.gap;
    return Ray{length, distance(length * direction), r.steps + 1};
  };
  return while_loop(goes_on, go, start, {.max_trips = 400});
}

struct Pixel {
  Array hit, length, light, slope;  // slope: |grad distance| there
};

Pixel render(const Array& x, const Array& y) {
  const Array ray = stack({x, y, ones({}, f64)});
  const Array direction = ray / sqrt(sum(square(ray)));
  const Ray r = march(direction);
  const Array normal = grad(distance)(r.length * direction);
  const Array light = array({-0.5773502691896258, 0.5773502691896258, -0.5773502691896258}, f64);
  return {r.gap < 1e-6, r.length, clip(sum(normal * light), 0.0, 1.0), sqrt(sum(square(normal)))};
}

int main() {
  try {
    constexpr int width = 64, height = 32;
    const Array xs = linspace(-0.5, 0.5, width, f64), ys = linspace(0.5, -0.5, height, f64);
    const auto image =
        jit(vmap([](Array y, Array row) { return vmap(render, {.in = {0, none}})(row, y); }, {.in = {0, none}}));
    const Pixel p = image(ys, xs);
    const std::vector<bool> hit = p.hit.to_vector<bool>();
    const std::vector<double> length = p.length.to_vector<double>(), light = p.light.to_vector<double>(),
                              slope = p.slope.to_vector<double>(), x = xs.to_vector<double>(),
                              y = ys.to_vector<double>();
    double worst = 0, worst_slope = 0;
    int hits = 0, wrong = 0;
    for (int i = 0; i < height; ++i) {
      std::string line;
      for (int j = 0; j < width; ++j) {
        const int k = i * width + j;
        // |t d - c| = 1 with d of length 1: t = d.c - sqrt((d.c)^2 - |c|^2 + 1).
        const double along = 3 / std::sqrt(x[j] * x[j] + y[i] * y[i] + 1), inside = along * along - 8;
        const bool meets = inside > 0;
        line += hit[k] ? kShades[static_cast<std::size_t>(light[k] * 9)] : ' ';
        worst_slope = std::max(worst_slope, std::abs(slope[k] - 1));
        if (std::abs(inside) < 1e-3) continue;  // a ray along the rim comes near, and may take all steps
        wrong += hit[k] != meets;
        if (!hit[k]) continue;
        ++hits;
        worst = std::max(worst, std::abs(length[k] - (along - std::sqrt(std::max(inside, 0.0)))));
      }
      std::puts(line.c_str());
    }
    const bool ok = hits > 300 && wrong == 0 && worst < 1e-6 && worst_slope < 1e-12;
    std::printf("%d rays hit, distance off by at most %.1e, |grad| by %.1e: %s\n", hits, worst, worst_slope,
                ok ? "ok" : "WRONG");
    return ok ? 0 : 1;
  } catch (const Error& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
