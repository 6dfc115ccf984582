// What a backward pass makes again instead of reading it: to the bit what op by op gives.
#include <doctest/doctest.h>

#include <tuple>

#include "sheaf/sheaf.h"

using namespace sheaf;

namespace {

// The gradients of a layer between two products, whose result nobody wants.
template <class F>
auto gradients(F activation) {
  return [activation](Array x, Array w, Array v, Array g) {
    const auto layer = [&](Array a, Array b) { return matmul(activation(matmul(x, a)), b); };
    return vjp(layer, w, v).second(g);
  };
}

}  // namespace

TEST_CASE("what is made again has the bits of what would have been kept") {
  const auto draw = [](const Shape& shape, std::uint64_t seed) { return random::normal(random::key(seed), shape); };
  const auto check = [&](auto activation) {
    for (DType t : {f32, bf16, f64}) {
      const auto f = gradients(activation);
      const Array x = convert(draw({33, 20}, 1), t), w = convert(draw({20, 70}, 2), t),
                  v = convert(draw({70, 20}, 3), t), g = convert(draw({33, 20}, 4), t);
      CHECK(same(jit(f)(x, w, v, g), f(x, w, v, g)));
    }
  };
  check([](Array h) { return gelu_tanh(h); });
  check([](Array h) { return h * sigmoid(h); });
  check([](Array h) { return where(h > 0, h * 2, exp(h) - 1); });
  check([](Array h) { return softmax(h * 0.3) * h; });
  check([](Array h) { return layer_norm(h, ones({70}, h.dtype()), zeros({70}, h.dtype())) * tanh(h); });
}
