// ScalarOps as LLVM instructions, on one element or on a vector of any number of lanes. The meaning is that of
// ir::eval_op to the bit (any NaN for a NaN); LLVM splits a vector that is wider than the machine's registers.
#pragma once

#include <cstdint>
#include <span>

#include "codegen/cpu_target.h"
#include "ir/scalar.h"
#include "llvm/IR/IRBuilder.h"

namespace sheaf::codegen {

class ScalarEmitter {
 public:
  ScalarEmitter(llvm::IRBuilder<>& builder, const CpuTarget& target) : b_(builder), target_(target) {}

  /// The type values of `dtype` have between instructions: bool is i1, and f16, bf16 and f8 are their bits.
  llvm::Type* type(DType dtype, int lanes) const;
  /// The same in memory, where bool is a byte.
  llvm::Type* memory_type(DType dtype, int lanes) const;
  llvm::Value* from_memory(DType dtype, llvm::Value* loaded);
  llvm::Value* to_memory(DType dtype, llvm::Value* value);

  llvm::Value* constant(DType dtype, std::uint64_t bits, int lanes);
  llvm::Value* splat(llvm::Value* scalar, int lanes);

  /// `in` is the dtype of the first operand (of the second for select) and `out` of the result, as in ir::eval_op.
  llvm::Value* emit(ir::ScalarOp op, DType in, DType out, std::span<llvm::Value* const> operands);
  /// The whole DAG inline; arguments all have the same number of lanes.
  llvm::Value* call(const ir::ScalarFn& fn, std::span<llvm::Value* const> args, int lanes);

 private:
  using Value = llvm::Value*;

  Value emit_float(ir::ScalarOp op, std::span<const Value> in);
  Value emit_int(ir::ScalarOp op, DType dtype, std::span<const Value> in);
  Value compare(ir::ScalarOp op, DType dtype, Value a, Value b);
  Value float_min_max(bool is_max, Value a, Value b);
  Value divide(DType dtype, Value a, Value b, bool wants_remainder);
  Value quotient_by_doubles(DType dtype, Value a, Value b);
  Value shift(ir::ScalarOp op, Value a, Value amount);
  Value multiply_high(Value a, Value b);
  Value unary(llvm::Intrinsic::ID id, Value a) { return b_.CreateUnaryIntrinsic(id, a); }

  // convert.cpp
  Value convert(DType in, DType out, Value a);
  Value int_to_float(DType in, DType out, Value a);
  Value widen(DType in, Value bits);         // f16, bf16, f8 -> f32, exact
  Value narrow(DType out, Value single);     // f32 -> f16, bf16, f8, to nearest even
  Value narrow_double(DType out, Value wide);
  Value to_odd(Value wide);                  // f64 -> f32, an inexact result having its last bit set

  llvm::IRBuilder<>& b_;
  const CpuTarget& target_;
};

/// Lanes of a value's type: 1 for a scalar.
int lanes_of(const llvm::Value* value);

}  // namespace sheaf::codegen
