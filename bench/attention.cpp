// Attention as the op it is against the same formula composed of ops, whose scores and weights are whole arrays.
#include <fmt/format.h>
#include <sheaf/sheaf.h>

#include <cmath>

#include "measure.h"

namespace bench {
namespace {

using namespace sheaf;

constexpr std::int64_t length = 1024, heads = 8, width = 64;

Array composed(Array q, Array k, Array v) {
  Array scores = einsum("tnh,snh->nts", q, k) / std::sqrt(static_cast<double>(width));
  const Array row = expand_dims(arange(length), {1}), column = expand_dims(arange(length), {0});
  return einsum("nts,snh->tnh", softmax(where(column <= row, scores, -1e9)), v);
}

Array as_one_op(Array q, Array k, Array v) { return dot_product_attention(q, k, v, {.causal = true}); }

using Attention = Array (*)(Array, Array, Array);

template <class F>
Result against_composed(F step_of, double products, const Options& options) {
  const Shape shape{length, heads, width};
  const Array q = random::normal(random::key(1), shape), k = random::normal(random::key(2), shape),
              v = random::normal(random::key(3), shape);
  const auto ours = step_of(as_one_op), reference = step_of(composed);
  const std::vector<float> values = reference(q, k, v).template to_vector<float>();
  Floats wanted(values.size());
  std::copy(values.begin(), values.end(), wanted.data());
  check_agreement(ours(q, k, v), wanted, 1e-5);
  Result r = compare([&] { ours(q, k, v).wait(); }, [&] { reference(q, k, v).wait(); }, options);
  const double flops = products * 2 * static_cast<double>(heads * length * length * width);
  r.note = fmt::format("{:.0f} GF/s, as if nothing were masked", flops / r.ours * 1e-9);
  return r;
}

Result forward(const Options& options) {
  return against_composed([](Attention f) { return jit([f](Array q, Array k, Array v) { return f(q, k, v); }); }, 2,
                          options);
}

// The gradients of query, key and value, added so that they are one result.
Result gradient(const Options& options) {
  const auto step_of = [](Attention f) {
    return jit([f](Array q, Array k, Array v) {
      const auto loss = [f](Array x, Array y, Array z) { return sum(square(f(x, y, z))); };
      const auto g = grad<0, 1, 2>(loss)(q, k, v);
      return std::get<0>(g) + std::get<1>(g) + std::get<2>(g);
    });
  };
  return against_composed(step_of, 6, options);
}

}  // namespace

std::vector<Row> attention_rows() {
  const std::string what = fmt::format("causal attention, {} x {}, {} heads of {}", length, length, heads, width);
  return {{what, "composed of ops", forward}, {"gradient of that attention", "composed of ops", gradient}};
}

}  // namespace bench
