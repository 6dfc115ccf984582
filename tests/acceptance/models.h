// The blocks of transformers as users write them, and the sizes they are counted and run at.
#pragma once

#include <cstdint>

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

inline Array mlp(const Array& x, const Array& w1, const Array& w2) { return dot(tanh(dot(x, w1)), w2); }

inline Array attention(const Array& x, const Array& w1, const Array& w2) {
  const Array qkv = einsum("bsm,mthd->tbshd", x, w1);
  return einsum("bshd,hdm->bsm", dot_product_attention(qkv[0], qkv[1], qkv[2]), w2);
}

inline Array trained(const Array& w, const Array& gradient) { return w - 0.1 * gradient; }

}  // namespace sheaf::acceptance
