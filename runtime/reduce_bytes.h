// The arithmetic of collectives: arrays of bytes added up, or combined otherwise, element by element from the first to
// the last. Invariant: the bits depend on the order of the sources alone; half types are kept in f32 and rounded once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "ir/type.h"

namespace sheaf::runtime {

/// Elements that are combined at a time; the room that `reduce_block` wants.
inline constexpr std::int64_t kReduceBlock = 2048;

/// out[i] = sources[0][i] + sources[1][i] + ... for `count` <= kReduceBlock elements. `out` may be one of the sources.
void reduce_block(DType dtype, ir::ReduceKind kind, std::span<const std::byte* const> sources, std::int64_t count,
                  std::byte* out);

}  // namespace sheaf::runtime
