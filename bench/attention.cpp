// Attention as the op it is against the same formula composed of ops, whose scores and weights are whole arrays.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sheaf/sheaf.h>

#include <cmath>

#include "measure.h"

namespace bench {
namespace {

using namespace sheaf;

Array composed(Array q, Array k, Array v) {
  const Array scores = einsum("...tnh,...snh->...nts", q, k) / std::sqrt(static_cast<double>(q.shape(-1)));
  const Array row = expand_dims(arange(q.shape(-3)), {1}), column = expand_dims(arange(k.shape(-3)), {0});
  return einsum("...nts,...snh->...tnh", softmax(where(column <= row, scores, -1e9)), v);
}

Array as_one_op(Array q, Array k, Array v) { return dot_product_attention(q, k, v, {.causal = true}); }

using Attention = Array (*)(Array, Array, Array);

// `products`: of queries and keys, with as many multiply-adds as scores times features each.
template <class F>
Result against_composed(const char* request, F step_of, const Shape& shape, double products, const Options& options) {
  const Array q = wave_array(1, shape), k = wave_array(2, shape), v = wave_array(3, shape);
  const auto ours = step_of(as_one_op), reference = step_of(composed);
  const std::vector<float> values = reference(q, k, v).template to_vector<float>();
  Floats wanted(values.size());
  std::copy(values.begin(), values.end(), wanted.data());
  check_agreement(ours(q, k, v), wanted, 1e-5);
  Shape dims = shape;  // a batch of one, where there is none
  if (dims.size() == 3) dims.insert(dims.begin(), 1);
  Result r =
      compare([&] { ours(q, k, v).wait(); },
              {side(
                  "composed of ops", [&] { reference(q, k, v).wait(); }, options)},
              options, {fmt::format("{} {}", request, fmt::join(dims, " ")), values_of([&] { return ours(q, k, v); })});
  const double flops = products * 2 * static_cast<double>(q.size()) * static_cast<double>(q.shape(-3));
  r.note = fmt::format("{:.0f} GF/s, as if nothing were masked", flops / r.ours * 1e-9);
  return r;
}

Result forward(const Shape& shape, const Options& options) {
  const auto step_of = [](Attention f) { return jit([f](Array q, Array k, Array v) { return f(q, k, v); }); };
  return against_composed("attention", step_of, shape, 2, options);
}

// The gradients of query, key and value, added so that they are one result.
Result gradient(const Shape& shape, const Options& options) {
  const auto step_of = [](Attention f) {
    return jit([f](Array q, Array k, Array v) {
      const auto loss = [f](Array x, Array y, Array z) { return sum(square(f(x, y, z))); };
      const auto g = grad<0, 1, 2>(loss)(q, k, v);
      return std::get<0>(g) + std::get<1>(g) + std::get<2>(g);
    });
  };
  return against_composed("attention_gradient", step_of, shape, 6, options);
}

}  // namespace

std::vector<Row> attention_rows() {
  std::vector<Row> rows;
  for (const Shape& shape : {Shape{1024, 8, 64}, Shape{8, 256, 12, 64}, Shape{16, 64, 4, 16}}) {
    const std::string what = fmt::format("causal attention, {} f32", to_string(shape));
    rows.push_back({what, "", [shape](const Options& o) { return forward(shape, o); }});
    rows.push_back({what + ", gradient", "", [shape](const Options& o) { return gradient(shape, o); }});
  }
  return rows;
}

}  // namespace bench
