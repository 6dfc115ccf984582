// One ScalarOp over up to 64 lanes of raw bits. The common ops of the common dtypes are loops a compiler vectorises;
// everything else goes through ir::eval_op, which defines the meaning of both.
#pragma once

#include <cstdint>

#include "ir/scalar.h"

namespace sheaf::kir {

/// Lanes of an operand: `step` 1 for a value per lane, 0 for one value for all.
struct LaneRef {
  const std::uint64_t* bits = nullptr;
  int step = 0;
  std::uint64_t operator[](int lane) const { return bits[lane * step]; }
};

/// out[l] = op(in[0][l], in[1][l], in[2][l]) for l < lanes. `in_dtype` as for eval_op.
void apply(ir::ScalarOp op, DType in_dtype, DType out_dtype, std::uint64_t* out, const LaneRef in[3], int lanes);

/// Zero-extended elements to and from memory; `size` is 1, 2, 4 or 8 bytes.
std::uint64_t read_element(const std::byte* at, int size);
void write_element(std::byte* at, int size, std::uint64_t bits);

}  // namespace sheaf::kir
