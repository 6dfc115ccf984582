// Arithmetic of ScalarOps. Where LLVM's instruction traps or leaves a case undefined (division, shifts), the operands
// are made safe first and the defined result is selected afterwards.
#include "codegen/llvm/scalar_emitter.h"

#include <utility>
#include <vector>

#include "fmt/format.h"
#include "ir/check.h"
#include "llvm/IR/Intrinsics.h"

namespace sheaf::codegen {

using ir::ScalarOp;
namespace Intrinsic = llvm::Intrinsic;

int lanes_of(const llvm::Value* value) {
  auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(value->getType());
  return vector ? static_cast<int>(vector->getNumElements()) : 1;
}

namespace {

llvm::Type* widen_type(llvm::Type* element, int lanes) {
  return lanes == 1 ? element : llvm::FixedVectorType::get(element, lanes);
}

// The number that `value` is in all lanes; null if that is not known, or is NaN.
const llvm::APFloat* known_number(const llvm::Value* value) {
  auto* constant = llvm::dyn_cast<llvm::Constant>(value);
  if (constant && constant->getType()->isVectorTy()) constant = constant->getSplatValue();
  auto* number = llvm::dyn_cast_or_null<llvm::ConstantFP>(constant);
  return number && !number->isNaN() ? &number->getValueAPF() : nullptr;
}

}  // namespace

llvm::Type* ScalarEmitter::type(DType dtype, int lanes) const {
  switch (dtype) {
    case DType::f32: return widen_type(b_.getFloatTy(), lanes);
    case DType::f64: return widen_type(b_.getDoubleTy(), lanes);
    case DType::bool_: return widen_type(b_.getInt1Ty(), lanes);
    default:
      SHEAF_CHECK(!is_complex(dtype) && dtype != DType::token, std::string(name(dtype)));
      return widen_type(b_.getIntNTy(8 * size_bytes(dtype)), lanes);
  }
}

llvm::Type* ScalarEmitter::memory_type(DType dtype, int lanes) const {
  return is_bool(dtype) ? widen_type(b_.getInt8Ty(), lanes) : type(dtype, lanes);
}

llvm::Value* ScalarEmitter::from_memory(DType dtype, llvm::Value* loaded) {
  return is_bool(dtype) ? b_.CreateIsNotNull(loaded) : loaded;
}

llvm::Value* ScalarEmitter::to_memory(DType dtype, llvm::Value* value) {
  return is_bool(dtype) ? b_.CreateZExt(value, memory_type(dtype, lanes_of(value))) : value;
}

llvm::Value* ScalarEmitter::constant(DType dtype, std::uint64_t bits, int lanes) {
  llvm::Type* element = type(dtype, 1);
  llvm::Constant* scalar =
      element->isFloatingPointTy()
          ? static_cast<llvm::Constant*>(llvm::ConstantFP::get(
                element, llvm::APFloat(element->getFltSemantics(), llvm::APInt(8 * size_bytes(dtype), bits))))
          : llvm::ConstantInt::get(element, bits);
  return lanes == 1 ? scalar : llvm::ConstantVector::getSplat(llvm::ElementCount::getFixed(lanes), scalar);
}

llvm::Value* ScalarEmitter::splat(llvm::Value* scalar, int lanes) {
  return lanes_of(scalar) == lanes ? scalar : b_.CreateVectorSplat(lanes, scalar);
}

llvm::Value* ScalarEmitter::emit(ScalarOp op, DType in, DType out, std::span<const Value> operands) {
  switch (op) {
    case ScalarOp::select: return b_.CreateSelect(operands[0], operands[1], operands[2]);
    case ScalarOp::convert: return convert(in, out, operands[0]);
    case ScalarOp::bitcast:
      if (is_bool(in) == is_bool(out)) return b_.CreateBitCast(operands[0], type(out, lanes_of(operands[0])));
      return is_bool(out) ? b_.CreateIsNotNull(operands[0]) : to_memory(DType::bool_, operands[0]);
    case ScalarOp::eq:
    case ScalarOp::ne:
    case ScalarOp::lt:
    case ScalarOp::le:
    case ScalarOp::gt:
    case ScalarOp::ge: return compare(op, in, operands[0], operands[1]);
    default: return in == DType::f32 || in == DType::f64 ? emit_float(op, operands) : emit_int(op, in, operands);
  }
}

llvm::Value* ScalarEmitter::emit_float(ScalarOp op, std::span<const Value> in) {
  switch (op) {
    case ScalarOp::add: return b_.CreateFAdd(in[0], in[1]);
    case ScalarOp::sub: return b_.CreateFSub(in[0], in[1]);
    case ScalarOp::mul: return b_.CreateFMul(in[0], in[1]);
    case ScalarOp::div: return b_.CreateFDiv(in[0], in[1]);
    case ScalarOp::rem: return b_.CreateFRem(in[0], in[1]);
    case ScalarOp::neg: return b_.CreateFNeg(in[0]);
    case ScalarOp::abs: return unary(Intrinsic::fabs, in[0]);
    case ScalarOp::min: return float_min_max(false, in[0], in[1]);
    case ScalarOp::max: return float_min_max(true, in[0], in[1]);
    case ScalarOp::fma: return b_.CreateIntrinsic(Intrinsic::fma, {in[0]->getType()}, {in[0], in[1], in[2]});
    case ScalarOp::sqrt: return unary(Intrinsic::sqrt, in[0]);
    case ScalarOp::floor: return unary(Intrinsic::floor, in[0]);
    case ScalarOp::ceil: return unary(Intrinsic::ceil, in[0]);
    case ScalarOp::trunc: return unary(Intrinsic::trunc, in[0]);
    // The rounding mode is never changed, so "nearbyint" is to nearest even, and every libm has it.
    case ScalarOp::round_even: return unary(Intrinsic::nearbyint, in[0]);
    default: SHEAF_CHECK(false, std::string(name(op)) + " of floats"); return nullptr;
  }
}

llvm::Value* ScalarEmitter::emit_int(ScalarOp op, DType dtype, std::span<const Value> in) {
  const bool is_signed = is_signed_int(dtype);
  switch (op) {
    case ScalarOp::add: return b_.CreateAdd(in[0], in[1]);
    case ScalarOp::sub: return b_.CreateSub(in[0], in[1]);
    case ScalarOp::mul: return b_.CreateMul(in[0], in[1]);
    case ScalarOp::div: return divide(dtype, in[0], in[1], false);
    case ScalarOp::rem: return divide(dtype, in[0], in[1], true);
    case ScalarOp::neg: return b_.CreateNeg(in[0]);
    case ScalarOp::abs: return is_signed ? b_.CreateBinaryIntrinsic(Intrinsic::abs, in[0], b_.getFalse()) : in[0];
    case ScalarOp::min: return b_.CreateBinaryIntrinsic(is_signed ? Intrinsic::smin : Intrinsic::umin, in[0], in[1]);
    case ScalarOp::max: return b_.CreateBinaryIntrinsic(is_signed ? Intrinsic::smax : Intrinsic::umax, in[0], in[1]);
    case ScalarOp::and_: return b_.CreateAnd(in[0], in[1]);
    case ScalarOp::or_: return b_.CreateOr(in[0], in[1]);
    case ScalarOp::xor_: return b_.CreateXor(in[0], in[1]);
    case ScalarOp::not_: return b_.CreateNot(in[0]);
    case ScalarOp::shl:
    case ScalarOp::shr_logical:
    case ScalarOp::shr_arith: return shift(op, in[0], in[1]);
    case ScalarOp::mul_hi: return multiply_high(in[0], in[1]);
    case ScalarOp::clz: return b_.CreateBinaryIntrinsic(Intrinsic::ctlz, in[0], b_.getFalse());
    case ScalarOp::popcount: return unary(Intrinsic::ctpop, in[0]);
    default: SHEAF_CHECK(false, fmt::format("{} of {}", name(op), name(dtype))); return nullptr;
  }
}

llvm::Value* ScalarEmitter::compare(ScalarOp op, DType dtype, Value a, Value b) {
  using P = llvm::CmpInst::Predicate;
  struct Row {
    ScalarOp op;
    P of_float, of_signed, of_unsigned;
  };
  static constexpr Row kRows[] = {
      {ScalarOp::eq, P::FCMP_OEQ, P::ICMP_EQ, P::ICMP_EQ},   {ScalarOp::ne, P::FCMP_UNE, P::ICMP_NE, P::ICMP_NE},
      {ScalarOp::lt, P::FCMP_OLT, P::ICMP_SLT, P::ICMP_ULT}, {ScalarOp::le, P::FCMP_OLE, P::ICMP_SLE, P::ICMP_ULE},
      {ScalarOp::gt, P::FCMP_OGT, P::ICMP_SGT, P::ICMP_UGT}, {ScalarOp::ge, P::FCMP_OGE, P::ICMP_SGE, P::ICMP_UGE},
  };
  for (const Row& row : kRows) {
    if (row.op != op) continue;
    if (is_float(dtype)) return b_.CreateFCmp(row.of_float, a, b);
    return b_.CreateICmp(is_signed_int(dtype) ? row.of_signed : row.of_unsigned, a, b);
  }
  SHEAF_CHECK(false, std::string(name(op)));
  return nullptr;
}

// `compare and select` in this form is one vminps or vmaxps, which yields its second operand when the two are zeros or
// one is NaN. So a NaN in the second comes through by itself; one in the first and the order of zeros are put right.
llvm::Value* ScalarEmitter::float_min_max(bool is_max, Value a, Value b) {
  auto pick = [&](Value first, Value second) {
    Value wins = is_max ? b_.CreateFCmpOGT(first, second) : b_.CreateFCmpOLT(first, second);
    return b_.CreateSelect(wins, first, second);
  };
  if (known_number(a)) std::swap(a, b);
  const llvm::APFloat* number = known_number(b);
  if (number && !number->isZero()) return pick(b, a);  // nothing left to put right
  Value picked = pick(a, b);
  if (!number || number->isNegative() == is_max) {
    llvm::Type* floats = a->getType();
    llvm::Type* bits = type(floats->getScalarType()->isDoubleTy() ? DType::u64 : DType::u32, lanes_of(a));
    Value a_bits = b_.CreateBitCast(a, bits), b_bits = b_.CreateBitCast(b, bits);
    // Of equal numbers, only zeros differ in bits: -0 has the sign, +0 has not.
    Value zero = b_.CreateBitCast(is_max ? b_.CreateAnd(a_bits, b_bits) : b_.CreateOr(a_bits, b_bits), floats);
    picked = b_.CreateSelect(b_.CreateFCmpOEQ(a, b), zero, picked);
  }
  return b_.CreateSelect(b_.CreateFCmpUNO(a, a), a, picked);
}

llvm::Value* ScalarEmitter::divide(DType dtype, Value a, Value b, bool wants_remainder) {
  const bool is_signed = is_signed_int(dtype);
  llvm::Type* t = a->getType();
  Value zero = llvm::Constant::getNullValue(t), one = llvm::ConstantInt::get(t, 1);
  Value minus_one = llvm::Constant::getAllOnesValue(t);
  Value by_zero = b_.CreateICmpEQ(b, zero);
  Value unsafe = by_zero;
  Value by_minus_one = nullptr;
  if (is_signed) unsafe = b_.CreateOr(unsafe, by_minus_one = b_.CreateICmpEQ(b, minus_one));
  Value divisor = b_.CreateSelect(unsafe, one, b);

  const bool has_exact_doubles = lanes_of(a) > 1 && size_bytes(dtype) <= 4;
  Value quotient = has_exact_doubles ? quotient_by_doubles(dtype, a, divisor)
                   : is_signed       ? b_.CreateSDiv(a, divisor)
                                     : b_.CreateUDiv(a, divisor);
  if (wants_remainder) {
    Value remainder = b_.CreateSub(a, b_.CreateMul(quotient, divisor));  // of division by the stand-in 1: 0
    return b_.CreateSelect(by_zero, a, remainder);
  }
  if (is_signed) quotient = b_.CreateSelect(by_minus_one, b_.CreateNeg(a), quotient);
  return b_.CreateSelect(by_zero, minus_one, quotient);
}

// No vector unit divides integers. The nearest double to a / b, for |a|, |b| < 2^32, truncates to the right quotient: a
// quotient that is not whole is at least 1/b below the next whole number, which is more than its rounding error.
llvm::Value* ScalarEmitter::quotient_by_doubles(DType dtype, Value a, Value b) {
  llvm::Type* doubles = type(DType::f64, lanes_of(a));
  if (is_signed_int(dtype)) {
    return b_.CreateFPToSI(b_.CreateFDiv(b_.CreateSIToFP(a, doubles), b_.CreateSIToFP(b, doubles)), a->getType());
  }
  return b_.CreateFPToUI(b_.CreateFDiv(b_.CreateUIToFP(a, doubles), b_.CreateUIToFP(b, doubles)), a->getType());
}

llvm::Value* ScalarEmitter::shift(ScalarOp op, Value a, Value amount) {
  llvm::Type* t = a->getType();
  Value last = llvm::ConstantInt::get(t, t->getScalarSizeInBits() - 1);
  // Clamped even where the result is replaced: LLVM's shift by the width or more is undefined.
  Value clamped = b_.CreateBinaryIntrinsic(Intrinsic::umin, amount, last);
  if (op == ScalarOp::shr_arith) return b_.CreateAShr(a, clamped);
  Value shifted = op == ScalarOp::shl ? b_.CreateShl(a, clamped) : b_.CreateLShr(a, clamped);
  if (llvm::isa<llvm::Constant>(amount) && clamped == amount) return shifted;
  return b_.CreateSelect(b_.CreateICmpULE(amount, last), shifted, llvm::Constant::getNullValue(t));
}

llvm::Value* ScalarEmitter::multiply_high(Value a, Value b) {
  llvm::Type* t = a->getType();
  const unsigned width = t->getScalarSizeInBits();
  if (width < 64 || lanes_of(a) == 1) {
    llvm::Type* twice = widen_type(b_.getIntNTy(2 * width), lanes_of(a));
    Value product = b_.CreateMul(b_.CreateZExt(a, twice), b_.CreateZExt(b, twice));
    return b_.CreateTrunc(b_.CreateLShr(product, width), t);
  }
  // Vectors multiply 32 x 32 -> 64 bits: four partial products, as on paper. No sum overflows.
  auto low = [&](Value v) { return b_.CreateAnd(v, llvm::ConstantInt::get(t, 0xffffffff)); };
  auto high = [&](Value v) { return b_.CreateLShr(v, 32); };
  Value low_low = b_.CreateMul(low(a), low(b)), low_high = b_.CreateMul(low(a), high(b));
  Value high_low = b_.CreateMul(high(a), low(b)), high_high = b_.CreateMul(high(a), high(b));
  Value middle = b_.CreateAdd(b_.CreateAdd(high(low_low), low(low_high)), low(high_low));
  return b_.CreateAdd(b_.CreateAdd(high_high, high(low_high)), b_.CreateAdd(high(high_low), high(middle)));
}

llvm::Value* ScalarEmitter::call(const ir::ScalarFn& fn, std::span<const Value> args, int lanes) {
  SHEAF_CHECK(args.size() == fn.args.size());
  std::vector<Value> values(fn.nodes.size());
  for (std::size_t i = 0; i < fn.nodes.size(); ++i) {
    const ir::ScalarNode& node = fn.nodes[i];
    if (node.op == ScalarOp::arg) {
      values[i] = args[node.index];
    } else if (node.op == ScalarOp::constant) {
      values[i] = constant(node.dtype, node.bits, lanes);
    } else {
      Value in[3] = {};
      const int count = ir::arity(node.op);
      for (int k = 0; k < count; ++k) in[k] = values[node.in[k]];
      const int typed = node.op == ScalarOp::select ? 1 : 0;
      values[i] = emit(node.op, fn.nodes[node.in[typed]].dtype, node.dtype, std::span(in, count));
    }
  }
  return values[fn.result];
}

}  // namespace sheaf::codegen
