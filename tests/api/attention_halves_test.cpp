// dot_product_attention of f16 and bf16 beside that of the same numbers in f32, and its gradients: on GPUs these are
// kernels of their own over tensor cores, which round weights to the dtype.
#include <doctest/doctest.h>

#include <cmath>
#include <string>
#include <vector>

#include "sheaf/sheaf.h"

using namespace sheaf;

namespace {

Array normal(int seed, const Shape& shape, DType dtype = f32) {
  return random::normal(random::key(static_cast<std::uint64_t>(seed)), shape, dtype);
}

bool on_gpus() { return to_string(devices()[0]).starts_with("cuda"); }

/// A few units of the dtype, of the largest element.
void check_close(const Array& got, const Array& want) {
  REQUIRE(got.shape() == want.shape());
  const double tolerance = got.dtype() == bf16 ? 0x1p-6 : 0x1p-9;
  const std::vector<double> g = got.to_vector<double>(), w = want.to_vector<double>();
  double largest = 1e-3, difference = 0;
  for (double x : w) largest = std::max(largest, std::abs(x));
  for (std::size_t i = 0; i < g.size(); ++i) {
    REQUIRE(std::isfinite(g[i]));
    difference = std::max(difference, std::abs(g[i] - w[i]));
  }
  CHECK(difference <= tolerance * largest);
}

struct Case {
  Shape q, k;
  AttentionOptions options;
};

std::vector<Case> cases() {
  return {
      {{40, 2, 16}, {50, 2, 16}, {}},
      {{2, 70, 4, 32}, {2, 70, 2, 32}, {.causal = true}},
      {{2, 30, 2, 64}, {2, 90, 1, 64}, {.mask = normal(8, {2, 1, 30, 90}) < 1.0, .window = std::pair{20, 50}}},
      {{2, 33, 2, 8}, {2, 20, 2, 8}, {.bias = normal(7, {2, 33, 20})}},
  };
}

/// How many of f's kernels are attention's own.
template <class F, class... A>
int attention_kernels(F f, const A&... args) {
  int count = 0;
  for (const aot::Kernel& k : jit(f).trace(args...).lower().compile().kernels())
    count += k.name.find("attention") != std::string::npos;
  return count;
}

}  // namespace

TEST_CASE("attention of halves is that of the same numbers in f32") {
  for (const DType dtype : {f16, bf16})
    for (const Case& c : cases()) {
      const Array q = normal(1, c.q, dtype), k = normal(2, c.k, dtype), v = normal(3, c.k, dtype);
      check_close(jit([&](Array x, Array y, Array z) { return dot_product_attention(x, y, z, c.options); })(q, k, v),
                  dot_product_attention(convert(q, f32), convert(k, f32), convert(v, f32), c.options));
    }
}

TEST_CASE("gradients of attention of halves are those of the same numbers in f32") {
  for (const DType dtype : {f16, bf16})
    for (const Case& c : cases()) {
      const Array q = normal(1, c.q, dtype), k = normal(2, c.k, dtype), v = normal(3, c.k, dtype), w = normal(4, c.q);
      const auto loss = [&](Array x, Array y, Array z) {
        return sum(convert(dot_product_attention(x, y, z, c.options), f32) * w);
      };
      const auto got = jit(grad<0, 1, 2>(loss))(q, k, v);
      const auto want = grad<0, 1, 2>(loss)(convert(q, f32), convert(k, f32), convert(v, f32));
      check_close(std::get<0>(got), std::get<0>(want));
      check_close(std::get<1>(got), std::get<1>(want));
      check_close(std::get<2>(got), std::get<2>(want));
    }
}

TEST_CASE("attention of halves is one kernel on GPUs, and its gradient another") {
  const Array q = normal(1, {40, 2, 16}, bf16);
  const auto f = [](Array x) { return dot_product_attention(x, x, x, {.causal = true}); };
  const auto loss = [&](Array x) { return sum(convert(f(x), f32)); };
  CHECK(attention_kernels(f, q) == (on_gpus() ? 1 : 0));
  CHECK(attention_kernels(grad(loss), q) == (on_gpus() ? 2 : 0));
  CHECK(attention_kernels([&](Array x) { return f(convert(x, f32)); }, q) == 0);
}

TEST_CASE("attention of halves under vmap and remat, and its second derivatives, are those of f32") {
  const Array q = normal(1, {3, 20, 2, 8}, bf16), k = normal(2, {3, 24, 2, 8}, bf16);
  const auto attend = [](Array x, Array y) { return dot_product_attention(x, y, y, {.causal = true}); };
  check_close(vmap(attend)(q, k), vmap(attend)(convert(q, f32), convert(k, f32)));
  const auto slope = [&](Array x, Array y) {
    return sum(sin(grad<0>([&](Array a, Array b) { return sum(convert(checkpoint(attend)(a, b), f32)); })(x, y)));
  };
  const Array one = q[0], other = k[0];
  check_close(grad<0>(slope)(one, other), grad<0>(slope)(convert(one, f32), convert(other, f32)));
}
