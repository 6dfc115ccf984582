// What all sides of a row are given, in whatever language they are written (bench/peers/inputs.py): numbers that are a
// function of a seed and a position.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace bench {

/// In [-2, 2).
inline float wave_at(std::uint32_t seed, std::size_t i) {
  std::uint32_t h = static_cast<std::uint32_t>(i) * 0x9E3779B1u + seed * 0x85EBCA77u;
  h = (h ^ h >> 15) * 0x2C1B3C6Du;
  h = (h ^ h >> 12) * 0x297A2D39u;
  h ^= h >> 15;
  return static_cast<float>(h >> 8) * 0x1p-22f - 2.0f;
}

inline std::vector<float> wave_of(std::uint32_t seed, std::size_t count, float scale = 1) {
  std::vector<float> x(count);
  for (std::size_t i = 0; i < count; ++i) x[i] = wave_at(seed, i) * scale;
  return x;
}

/// Of weights whose first extent is `in`: small enough for deep networks.
inline float weight_scale(std::int64_t in) { return static_cast<float>(0.5 / std::sqrt(static_cast<double>(in))); }

inline std::vector<std::int32_t> labels_of(std::int64_t count, std::int64_t classes) {
  std::vector<std::int32_t> out;
  for (std::int64_t i = 0; i < count; ++i) out.push_back(static_cast<std::int32_t>(i * 7919 % classes));
  return out;
}

}  // namespace bench
