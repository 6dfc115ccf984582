// Reproducible inputs for samples: splitmix64 over (seed, parameter, element).
#include "ir/sample.h"

#include <cmath>

namespace sheaf::ir {
namespace {

std::uint64_t mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

Literal random_literal(Type type, std::optional<std::pair<double, double>> range, std::uint64_t seed) {
  if (is_complex(type.dtype())) return random_literal(parts_type(type), range, seed).as(type);
  Literal v(type);
  const bool is_float = is_differentiable(type.dtype());
  auto [low, high] = range.value_or(is_float ? std::pair{-2.0, 2.0} : std::pair{-5.0, 5.0});
  if (is_unsigned_int(type.dtype())) low = std::max(low, 0.0);
  for (std::int64_t i = 0; i < v.size(); ++i) {
    const std::uint64_t bits = mix(seed ^ mix(static_cast<std::uint64_t>(i)));
    const double u = static_cast<double>(bits >> 11) * 0x1p-53;
    if (is_bool(type.dtype())) v.set_bits(i, bits & 1);
    else v.set(i, is_float ? low + u * (high - low) : std::floor(low + u * (high - low)));
  }
  return v;
}

// M^T M + I for each matrix M of x: far from singular.
Literal made_definite(const Literal& x) {
  Literal out(x.type());
  const std::int64_t n = x.dims().back();
  for (std::int64_t i = 0; i < x.size(); ++i) {
    const std::int64_t first = i / (n * n) * n * n, row = i / n % n, column = i % n;
    double sum = row == column;
    for (std::int64_t k = 0; k < n; ++k) sum += x.get(first + k * n + row) * x.get(first + k * n + column);
    out.set(i, sum);
  }
  return out;
}

}  // namespace

Literals random_inputs(const Sample& sample, std::uint64_t seed) {
  Literals inputs;
  for (std::size_t k = 0; k < sample.ranges.size(); ++k) {
    const auto& [range, is_definite] = sample.ranges[k];
    inputs.push_back(random_literal(sample.function->params()[k].type(), range, mix(seed + k)));
    if (is_definite) inputs.back() = made_definite(inputs.back());
  }
  return inputs;
}

Literals random_inputs(const Function& f, std::uint64_t seed) {
  Literals inputs;
  for (std::size_t k = 0; k < f.params().size(); ++k)
    inputs.push_back(random_literal(f.params()[k].type(), std::nullopt, mix(seed + k)));
  return inputs;
}

}  // namespace sheaf::ir
