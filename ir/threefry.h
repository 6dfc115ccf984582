// Threefry-2x32 with 20 rounds (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011): a keyed
// bijection of 64-bit counters whose outputs are random bits. Every bit of randomness in Sheaf is a block of it, so the
// same key and position give the same bits on every target and however an array is split.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

namespace sheaf::ir {

using Block = std::array<std::uint32_t, 2>;

constexpr Block threefry2x32(Block key, Block counter) {
  constexpr int kRotations[2][4] = {{13, 15, 26, 6}, {17, 29, 16, 24}};
  const std::uint32_t keys[3] = {key[0], key[1], key[0] ^ key[1] ^ 0x1BD11BDAu};
  std::uint32_t x0 = counter[0] + keys[0], x1 = counter[1] + keys[1];
  for (std::uint32_t group = 0; group < 5; ++group) {
    for (int r : kRotations[group % 2]) {
      x0 += x1;
      x1 = std::rotl(x1, r) ^ x0;
    }
    x0 += keys[(group + 1) % 3];
    x1 += keys[(group + 2) % 3] + group + 1;
  }
  return {x0, x1};
}

/// The bits of element `position` in the width of an element: the block of the counter (high word, low word), both
/// words for 64 bits, else their xor, of which narrower elements take the low bits.
constexpr std::uint64_t random_bits_at(Block key, std::uint64_t position, int width) {
  const Block x = threefry2x32(key, {static_cast<std::uint32_t>(position >> 32), static_cast<std::uint32_t>(position)});
  if (width == 64) return std::uint64_t{x[0]} << 32 | x[1];
  const std::uint64_t bits = x[0] ^ x[1];
  return bits & ((std::uint64_t{1} << width) - 1);
}

}  // namespace sheaf::ir
