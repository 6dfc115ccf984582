// What tests of arrays on devices share: numbers that are fixed and irregular, a mesh of eight devices, and whether two
// arrays are alike.
#pragma once

#include <cmath>
#include <vector>

#include "sheaf/sheaf.h"

namespace sheaf::tests {

/// The first eight devices as [data=4, model=2].
inline const Mesh& eight() {
  static const Mesh mesh = [] {
    ensure_devices(8);
    return Mesh({{"data", 4}, {"model", 2}});
  }();
  return mesh;
}

/// f64 in (-1, 1), others for each phase.
inline Array numbers(const Shape& shape, double phase = 0) {
  return sin(1.7 * reshape(arange(num_elements(shape), f64), shape) + phase);
}

/// Of the same shape, and every element within the tolerance of the other, relative where that is above one.
inline bool close(const Array& a, const Array& b, double tolerance = 1e-9) {
  if (a.shape() != b.shape()) return false;
  const std::vector<double> x = a.to_vector<double>(), y = b.to_vector<double>();
  for (std::size_t i = 0; i < x.size(); ++i)
    if (!(std::abs(x[i] - y[i]) <= tolerance * (1 + std::abs(y[i])))) return false;
  return true;
}

}  // namespace sheaf::tests
