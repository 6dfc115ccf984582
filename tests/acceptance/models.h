// The blocks of transformers as users write them, and steps of training with them.
#pragma once

#include <cstdint>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/acceptance/acceptance.h"

namespace sheaf::acceptance {

struct Sizes {
  std::int64_t b, s, h, f, heads;  // b s tokens of h features; f are hidden
  std::int64_t d() const { return h / heads; }
};
inline constexpr Sizes kLarge{.b = 32, .s = 128, .h = 64, .f = 512, .heads = 8};
inline constexpr Sizes kSmall{.b = 16, .s = 4, .h = 16, .f = 16, .heads = 8};
// Bytes.
inline constexpr std::int64_t kTokens = kLarge.b * kLarge.s * kLarge.h * 4, kHidden = kTokens / kLarge.h * kLarge.f;
inline constexpr std::int64_t kWeights = kLarge.h * kLarge.f * 4, kSquare = kLarge.h * kLarge.h * 4;

using Weights = std::vector<Array>;
using Block = Array (*)(const Array& x, const Array& w1, const Array& w2);

inline Array mlp(const Array& x, const Array& w1, const Array& w2) { return dot(tanh(dot(x, w1)), w2); }

inline Array attention(const Array& x, const Array& w1, const Array& w2) {
  const Array qkv = einsum("bsm,mthd->tbshd", x, w1);
  return einsum("bshd,hdm->bsm", dot_product_attention(qkv[0], qkv[1], qkv[2]), w2);
}

template <Block block>
Array remade(const Array& x, const Array& w1, const Array& w2) {
  return checkpoint(block)(x, w1, w2);
}

template <Block block>
Array layers(Array x, const Weights& w1, const Weights& w2) {
  for (std::size_t i = 0; i < w1.size(); ++i) x = block(x, w1[i], w2[i]);
  return x;
}
template <Block block>
Array loop(const Array& x, const Array& w1, const Array& w2) {
  return scan([](const Array& y,
                 const std::pair<Array, Array>& w) { return std::pair(block(y, w.first, w.second), none); },
              x, std::pair(w1, w2))
      .first;
}

inline Array trained(const Array& w, const Array& gradient) { return w - 0.1 * gradient; }
inline Weights trained(Weights w, const Weights& gradient) {
  for (std::size_t i = 0; i < w.size(); ++i) w[i] = trained(w[i], gradient[i]);
  return w;
}

// Given the derivative of a loss with respect to the output: the output, the derivative with respect to the input, and
// the new weights.
template <auto forward, class W>
auto step(const Array& x, const Array& g, const W& w1, const W& w2) {
  const auto [y, pullback] = vjp(forward, x, w1, w2);
  const auto [dx, d1, d2] = pullback(g);
  return std::tuple(y, dx, trained(w1, d1), trained(w2, d2));
}

struct Programs {
  ir::FunctionRef forward, step;
};

inline Shape stacked(int count, Shape shape) {
  shape.insert(shape.begin(), count);
  return shape;
}

template <Block block>
Programs unrolled(const Sizes& s, int count, const Shape& w1, const Shape& w2) {
  const Array x = abstract({s.b, s.s, s.h});
  const Weights first(count, abstract(w1)), second(count, abstract(w2));
  return {program({"x", "w1", "w2"}, layers<block>, x, first, second),
          program({"x", "g", "w1", "w2"}, step<layers<block>, Weights>, x, x, first, second)};
}
template <Block block>
Programs looped(const Sizes& s, int count, const Shape& w1, const Shape& w2) {
  const Array x = abstract({s.b, s.s, s.h}), first = abstract(stacked(count, w1)),
              second = abstract(stacked(count, w2));
  return {program({"x", "w1", "w2"}, loop<block>, x, first, second),
          program({"x", "g", "w1", "w2"}, step<loop<block>, Array>, x, x, first, second)};
}

}  // namespace sheaf::acceptance
