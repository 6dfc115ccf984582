// A buffer put together from blocks of others, wherever they are: how arrays move between layouts. Every byte of the
// new buffer is written by exactly one block, and read from where it is nearest.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/buffer.h"
#include "sheaf/shape.h"

namespace sheaf::runtime {

/// Where a block of a row-major array is.
struct Region {
  Shape dims;                       // of the array
  std::vector<std::int64_t> start;  // of the block in it
};
struct Piece {
  BufferPtr from;
  Region in;      // what is read
  Region out;     // where it goes
  Shape extent;  // of both
};

/// Copies the block between arrays in host memory.
void copy_block(const std::byte* from, const Region& in, std::byte* to, const Region& out, const Shape& extent,
                std::int64_t element_bytes);

/// A buffer of `bytes` on `to`: at once where all pieces are ready, else a pending one, made by `to`'s queue. It fails
/// with the first piece that fails.
absl::StatusOr<BufferPtr> assemble(Device& to, std::int64_t bytes, std::int64_t element_bytes,
                                   std::vector<Piece> pieces, Loc made_at);

}  // namespace sheaf::runtime
