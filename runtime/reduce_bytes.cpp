// One loop per dtype and kind, over a block that stays in the first-level cache; all are written without branches, so
// that the compiler makes vectors of them.
#include "runtime/reduce_bytes.h"

#include <bit>
#include <cstring>
#include <limits>
#include <type_traits>

#include "ir/check.h"

namespace sheaf::runtime {
namespace {

using ir::ReduceKind;

template <class T>
using Bits = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>;

/// f16 and bf16 in memory.
struct Half {
  std::uint16_t bits;
};
struct Brain {
  std::uint16_t bits;
};

template <class T>
struct Element {
  using Wide = T;
  static T widen(T x) { return x; }
  static T narrow(T x) { return x; }
};

template <>
struct Element<Brain> {
  using Wide = float;
  static float widen(Brain x) { return std::bit_cast<float>(std::uint32_t{x.bits} << 16); }
  static Brain narrow(float x) {
    const auto bits = std::bit_cast<std::uint32_t>(x);
    const std::uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16, nan = bits >> 16 | 0x40;
    return {static_cast<std::uint16_t>(x != x ? nan : rounded)};
  }
};

template <>
struct Element<Half> {
  using Wide = float;
  // The exponent moves by the difference of the biases; below the normal numbers a subtraction finds the leading bit.
  static float widen(Half x) {
    constexpr std::uint32_t kBias = 112U << 23, kLowest = 113U << 23;
    const std::uint32_t magnitude = (std::uint32_t{x.bits} & 0x7fff) << 13, sign = (std::uint32_t{x.bits} & 0x8000)
                                                                                   << 16;
    const auto small =
        std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude + kLowest) - std::bit_cast<float>(kLowest));
    std::uint32_t out = magnitude < 0x400U << 13 ? small : magnitude + kBias;
    out = magnitude >= 0x7c00U << 13 ? magnitude | 0x7f800000 : out;
    return std::bit_cast<float>(out | sign);
  }
  // Below the normal numbers an addition rounds at the last place of the format.
  static Half narrow(float x) {
    const auto bits = std::bit_cast<std::uint32_t>(x);
    const std::uint32_t sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
    const auto small = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000;
    const std::uint32_t normal = (magnitude - 0x38000000 + 0xfff + (magnitude >> 13 & 1)) >> 13;
    std::uint32_t out = magnitude < 0x38800000 ? small : normal;
    out = magnitude >= 0x477ff000 ? 0x7c00 : out;
    out = magnitude > 0x7f800000 ? 0x7e00 : out;
    return {static_cast<std::uint16_t>(out | sign)};
  }
};

template <class T>
T sum(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) return a + b;
  else return static_cast<T>(static_cast<Bits<T>>(a) + static_cast<Bits<T>>(b));
}
template <class T>
T product(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) return a * b;
  else return static_cast<T>(static_cast<Bits<T>>(a) * static_cast<Bits<T>>(b));
}
/// A NaN wins; of equal zeros the positive one.
template <class T>
T larger(T a, T b) {
  T winner = a > b ? a : b;
  if constexpr (std::is_floating_point_v<T>) {
    const T both = std::bit_cast<T>(std::bit_cast<Bits<T>>(a) & std::bit_cast<Bits<T>>(b));
    winner = a == b ? both : winner;
    winner = a != a || b != b ? a + b : winner;
  }
  return winner;
}
template <class T>
T smaller(T a, T b) {
  T winner = a < b ? a : b;
  if constexpr (std::is_floating_point_v<T>) {
    const T both = std::bit_cast<T>(std::bit_cast<Bits<T>>(a) | std::bit_cast<Bits<T>>(b));
    winner = a == b ? both : winner;
    winner = a != a || b != b ? a + b : winner;
  }
  return winner;
}

template <class T, class Combine>
[[gnu::always_inline]] inline void reduce_with(Combine combine, std::span<const std::byte* const> sources,
                                               std::int64_t count, std::byte* out) {
  using Wide = typename Element<T>::Wide;
  Wide total[kReduceBlock];
  const auto at = [](const std::byte* source) { return reinterpret_cast<const T*>(source); };
  const T* first = at(sources[0]);
  std::size_t k = sources.size() % 2 == 0 ? 2 : 1;
  if (k == 1) {
    for (std::int64_t i = 0; i < count; ++i) total[i] = Element<T>::widen(first[i]);
  } else {
    const T* second = at(sources[1]);
    for (std::int64_t i = 0; i < count; ++i)
      total[i] = combine(Element<T>::widen(first[i]), Element<T>::widen(second[i]));
  }
  for (; k < sources.size(); k += 2) {  // two at a time: the totals go through memory half as often
    const T *next = at(sources[k]), *last = at(sources[k + 1]);
    for (std::int64_t i = 0; i < count; ++i)
      total[i] = combine(combine(total[i], Element<T>::widen(next[i])), Element<T>::widen(last[i]));
  }
  T* to = reinterpret_cast<T*>(out);
  for (std::int64_t i = 0; i < count; ++i) to[i] = Element<T>::narrow(total[i]);
}

template <class T>
[[gnu::always_inline]] inline void reduce_as(ReduceKind kind, std::span<const std::byte* const> sources,
                                             std::int64_t count, std::byte* out) {
  using Wide = typename Element<T>::Wide;
  const auto with = [&](auto combine) __attribute__((always_inline)) { reduce_with<T>(combine, sources, count, out); };
  switch (kind) {
    case ReduceKind::sum: return with([](Wide a, Wide b) { return sum(a, b); });
    case ReduceKind::prod: return with([](Wide a, Wide b) { return product(a, b); });
    case ReduceKind::and_:  // of bools
    case ReduceKind::min: return with([](Wide a, Wide b) { return smaller(a, b); });
    case ReduceKind::or_:
    case ReduceKind::max: return with([](Wide a, Wide b) { return larger(a, b); });
  }
}

[[gnu::always_inline]] inline void reduce_any(DType dtype, ReduceKind kind, std::span<const std::byte* const> sources,
                                              std::int64_t count, std::byte* out) {
  switch (dtype) {
    case DType::f16: return reduce_as<Half>(kind, sources, count, out);
    case DType::bf16: return reduce_as<Brain>(kind, sources, count, out);
    case DType::f32: return reduce_as<float>(kind, sources, count, out);
    case DType::f64: return reduce_as<double>(kind, sources, count, out);
    case DType::i8: return reduce_as<std::int8_t>(kind, sources, count, out);
    case DType::i16: return reduce_as<std::int16_t>(kind, sources, count, out);
    case DType::i32: return reduce_as<std::int32_t>(kind, sources, count, out);
    case DType::i64: return reduce_as<std::int64_t>(kind, sources, count, out);
    case DType::bool_:
    case DType::u8: return reduce_as<std::uint8_t>(kind, sources, count, out);
    case DType::u16: return reduce_as<std::uint16_t>(kind, sources, count, out);
    case DType::u32: return reduce_as<std::uint32_t>(kind, sources, count, out);
    case DType::u64: return reduce_as<std::uint64_t>(kind, sources, count, out);
    default: SHEAF_CHECK(false, "no reduction over this dtype");
  }
}

#if defined(__x86_64__)
// The same code in wider vectors, which the baseline of the architecture lacks; the bits are the same.
[[gnu::target("avx2")]] void reduce_avx2(DType dtype, ReduceKind kind, std::span<const std::byte* const> sources,
                                         std::int64_t count, std::byte* out) {
  reduce_any(dtype, kind, sources, count, out);
}
#endif

}  // namespace

void reduce_block(DType dtype, ReduceKind kind, std::span<const std::byte* const> sources, std::int64_t count,
                  std::byte* out) {
#if defined(__x86_64__)
  static const bool has_avx2 = __builtin_cpu_supports("avx2");
  if (has_avx2) return reduce_avx2(dtype, kind, sources, count, out);
#endif
  reduce_any(dtype, kind, sources, count, out);
}

}  // namespace sheaf::runtime
