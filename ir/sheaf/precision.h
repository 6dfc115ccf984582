// How exactly products of f32 are taken. A precision permits and never asks: where a target has no use for it, or the
// numbers are not f32, products are full.
#pragma once

#include <cstdint>

namespace sheaf {

enum class Precision : std::uint8_t {
  full,  // every product of two f32 as it is
  tf32,  // their operands may be rounded to 11 significant bits first, in f32's range; sums stay f32
};

}  // namespace sheaf
