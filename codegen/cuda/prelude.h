// The functions that generated CUDA text may call beyond arithmetic operators: ScalarOps whose C++ operator traps, is
// undefined somewhere, or does not exist, and instructions of the GPU alone. A text carries only those it names.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "ir/scalar.h"

namespace sheaf::codegen {

/// The C++ type of a value in registers, and in memory.
std::string_view cuda_type(DType t);
std::string_view cuda_memory_type(DType t);

/// `op` applied to operand texts `in`, as one expression. `in_dtype` as for ir::eval_op.
std::string cuda_expression(ir::ScalarOp op, DType in_dtype, DType out, const std::string in[3]);

/// The function of a pointer and a value that does `op` in one step, or "": sf_update(pointer, lambda) does any.
std::string_view cuda_atomic(ir::ScalarOp op, DType t);

/// A literal with exactly these bits.
std::string cuda_constant(DType t, std::uint64_t bits);

struct CudaPiece {
  std::string_view name;  // or the beginning of several names
  std::string_view definition;
};
std::span<const CudaPiece> cuda_pieces();

/// The definitions of all pieces that `text` names, in an order that compiles.
std::string cuda_prelude_for(std::string_view text);

}  // namespace sheaf::codegen
