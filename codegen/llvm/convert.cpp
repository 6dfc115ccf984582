// Value conversions. Formats narrower than f32 go through f32; coming from a wider type, the f32 in between is rounded
// to odd, after which the second rounding gives what one rounding would have given.
// Reference: S. Boldo, G. Melquiond, "Emulation of FMA and correctly rounded sums: proved algorithms using rounding to
// odd", IEEE Transactions on Computers 57(4), 2008.
#include <cmath>

#include "codegen/llvm/scalar_emitter.h"
#include "fmt/format.h"
#include "ir/check.h"
#include "llvm/IR/Intrinsics.h"

namespace sheaf::codegen {
namespace {

// A float format narrower than f32: sign, exponent, mantissa.
struct Format {
  int exponent_bits = 0, mantissa_bits = 0;
  bool has_infinity = true;  // if not, the one NaN is all ones, and overflow becomes that NaN
  int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  std::uint32_t exponent_mask() const { return ((1u << exponent_bits) - 1) << mantissa_bits; }
  std::uint32_t sign_bit() const { return 1u << (exponent_bits + mantissa_bits); }
  std::uint32_t nan() const { return has_infinity ? exponent_mask() | 1u << (mantissa_bits - 1) : sign_bit() - 1; }
  std::uint32_t overflow() const { return has_infinity ? exponent_mask() : nan(); }
};

bool is_small_float(DType t) { return t == DType::f16 || t == DType::bf16 || t == DType::f8e4m3 || t == DType::f8e5m2; }

Format format_of(DType t) {
  switch (t) {
    case DType::f16: return {5, 10, true};
    case DType::f8e4m3: return {4, 3, false};
    case DType::f8e5m2: return {5, 2, true};
    default: SHEAF_CHECK(false, std::string(name(t))); return {};
  }
}

}  // namespace

llvm::Value* ScalarEmitter::convert(DType in, DType out, Value a) {
  if (in == out) return a;
  const int lanes = lanes_of(a);
  if (is_small_float(in)) return convert(DType::f32, out, widen(in, a));
  if (in == DType::f32 || in == DType::f64) {
    if (is_bool(out)) return b_.CreateFCmpUNE(a, llvm::Constant::getNullValue(a->getType()));
    if (is_int(out)) {
      const auto id = is_signed_int(out) ? llvm::Intrinsic::fptosi_sat : llvm::Intrinsic::fptoui_sat;
      return b_.CreateIntrinsic(id, {type(out, lanes), a->getType()}, {a});
    }
    if (is_small_float(out)) return in == DType::f32 ? narrow(out, a) : narrow_double(out, a);
    return b_.CreateFPCast(a, type(out, lanes));
  }
  if (is_bool(out)) return b_.CreateIsNotNull(a);
  if (is_int(out)) return b_.CreateIntCast(a, type(out, lanes), is_signed_int(in));
  return int_to_float(in, out, a);
}

llvm::Value* ScalarEmitter::int_to_float(DType in, DType out, Value a) {
  const int lanes = lanes_of(a);
  const bool is_wide = size_bytes(in) == 8;
  if (is_wide && out != DType::f64) {
    // A magnitude of 2^53 or more may not fit f64's mantissa. Its low 12 bits are jammed into one, which the target's
    // rounding sees as "not exactly half way" and no more.
    llvm::Type* t = a->getType();
    auto k = [&](std::uint64_t v) { return llvm::ConstantInt::get(t, v); };
    Value magnitude = is_signed_int(in) ? b_.CreateBinaryIntrinsic(llvm::Intrinsic::abs, a, b_.getFalse()) : a;
    Value low = b_.CreateAnd(a, k(0xfff));
    Value sticky = b_.CreateSelect(b_.CreateIsNotNull(low), k(0x800), k(0));
    Value jammed = b_.CreateOr(b_.CreateAnd(a, k(~std::uint64_t{0xfff})), sticky);
    a = b_.CreateSelect(b_.CreateICmpULT(magnitude, k(std::uint64_t{1} << 53)), a, jammed);
  }
  // 64 bits to f32 go the long way, because LLVM's own sequence for vectors rounds twice where there is no instruction.
  const bool is_direct = out == DType::f64 || (out == DType::f32 && !is_wide);
  llvm::Type* floats = type(is_direct ? out : DType::f64, lanes);
  Value wide = is_signed_int(in) ? b_.CreateSIToFP(a, floats) : b_.CreateUIToFP(a, floats);
  if (is_direct) return wide;
  return out == DType::f32 ? b_.CreateFPTrunc(wide, type(DType::f32, lanes)) : narrow_double(out, wide);
}

llvm::Value* ScalarEmitter::widen(DType in, Value bits) {
  const int lanes = lanes_of(bits);
  llvm::Type* singles = type(DType::f32, lanes);
  llvm::Type* words = type(DType::u32, lanes);
  if (in == DType::bf16) return b_.CreateBitCast(b_.CreateShl(b_.CreateZExt(bits, words), 16), singles);
  if (in == DType::f16 && target_.has_fma) {  // F16C comes with the level that has FMA
    llvm::Type* half = b_.getHalfTy();
    return b_.CreateFPExt(b_.CreateBitCast(bits, lanes == 1 ? half : llvm::FixedVectorType::get(half, lanes)), singles);
  }
  const Format format = format_of(in);
  auto k = [&](std::uint32_t v) { return llvm::ConstantInt::get(words, v); };
  Value wide = b_.CreateZExt(bits, words);
  Value magnitude = b_.CreateAnd(wide, k(format.sign_bit() - 1));
  Value sign = b_.CreateShl(b_.CreateAnd(wide, k(format.sign_bit())), 31 - format.exponent_bits - format.mantissa_bits);
  // Read as an f32 with too small an exponent; the multiplication repairs it, for subnormals too.
  Value small = b_.CreateBitCast(b_.CreateShl(magnitude, 23 - format.mantissa_bits), singles);
  Value scale = llvm::ConstantFP::get(singles, std::ldexp(1.0, 127 - format.bias()));
  Value value = b_.CreateBitCast(b_.CreateFMul(small, scale), words);
  if (format.has_infinity) {
    value = b_.CreateSelect(b_.CreateICmpEQ(magnitude, k(format.exponent_mask())), k(0x7f800000), value);
    value = b_.CreateSelect(b_.CreateICmpUGT(magnitude, k(format.exponent_mask())), k(0x7fc00000), value);
  } else {
    value = b_.CreateSelect(b_.CreateICmpEQ(magnitude, k(format.nan())), k(0x7fc00000), value);
  }
  return b_.CreateBitCast(b_.CreateOr(value, sign), singles);
}

llvm::Value* ScalarEmitter::narrow(DType out, Value single) {
  const int lanes = lanes_of(single);
  llvm::Type* words = type(DType::u32, lanes);
  auto k = [&](std::uint32_t v) { return llvm::ConstantInt::get(words, v); };
  if (out == DType::f16 && target_.has_fma) {
    llvm::Type* half = b_.getHalfTy();
    Value rounded = b_.CreateFPTrunc(single, lanes == 1 ? half : llvm::FixedVectorType::get(half, lanes));
    return b_.CreateBitCast(rounded, type(out, lanes));
  }
  Value bits = b_.CreateBitCast(single, words);
  Value magnitude = b_.CreateAnd(bits, k(0x7fffffff));
  Value is_nan = b_.CreateICmpUGT(magnitude, k(0x7f800000));
  if (out == DType::bf16) {
    Value last = b_.CreateAnd(b_.CreateLShr(bits, 16), k(1));
    Value rounded = b_.CreateAdd(bits, b_.CreateAdd(last, k(0x7fff)));
    Value quiet = b_.CreateOr(bits, k(0x400000));
    return b_.CreateTrunc(b_.CreateLShr(b_.CreateSelect(is_nan, quiet, rounded), 16), type(out, lanes));
  }
  const Format format = format_of(out);
  const int dropped = 23 - format.mantissa_bits;
  // Normal results: re-bias the exponent and round the bits that are dropped.
  Value last = b_.CreateAnd(b_.CreateLShr(magnitude, dropped), k(1));
  const std::uint32_t bias_change = static_cast<std::uint32_t>(127 - format.bias()) << 23;
  Value normal = b_.CreateSub(magnitude, k(bias_change - ((1u << (dropped - 1)) - 1)));
  normal = b_.CreateLShr(b_.CreateAdd(normal, last), dropped);
  // Subnormal results: adding 2^(exponent of the last bit + 23) makes the f32 adder round at that very bit.
  llvm::Type* singles = single->getType();
  const int unit = 1 - format.bias() - format.mantissa_bits;  // log2 of the smallest subnormal
  Value anchor = llvm::ConstantFP::get(singles, std::ldexp(1.0, unit + 23));
  Value anchored = b_.CreateFAdd(b_.CreateBitCast(magnitude, singles), anchor);
  Value subnormal = b_.CreateSub(b_.CreateBitCast(anchored, words), b_.CreateBitCast(anchor, words));
  const std::uint32_t smallest_normal = static_cast<std::uint32_t>(128 - format.bias()) << 23;
  Value value = b_.CreateSelect(b_.CreateICmpULT(magnitude, k(smallest_normal)), subnormal, normal);
  // Above the range, `normal` still is a number at or past `overflow`, or has wrapped far past it.
  value = b_.CreateBinaryIntrinsic(llvm::Intrinsic::umin, value, k(format.overflow()));
  value = b_.CreateSelect(b_.CreateICmpUGE(magnitude, k(0x7f800000)), k(format.overflow()), value);
  value = b_.CreateSelect(is_nan, k(format.nan()), value);
  Value sign = b_.CreateLShr(b_.CreateAnd(bits, k(0x80000000)), 31 - format.exponent_bits - format.mantissa_bits);
  return b_.CreateTrunc(b_.CreateOr(value, sign), type(out, lanes));
}

llvm::Value* ScalarEmitter::to_odd(Value wide) {
  const int lanes = lanes_of(wide);
  llvm::Type* words = type(DType::u32, lanes);
  Value nearest = b_.CreateFPTrunc(wide, type(DType::f32, lanes));
  Value back = b_.CreateFPExt(nearest, wide->getType());
  Value bits = b_.CreateBitCast(nearest, words);
  // Of the two neighbours of an inexact value one is odd. If `nearest` is the even one, the odd one lies a step inward
  // when the magnitude was rounded up and a step outward when it was rounded down.
  Value is_inexact = b_.CreateFCmpONE(back, wide);
  Value is_even = b_.CreateIsNull(b_.CreateAnd(bits, llvm::ConstantInt::get(words, 1)));
  Value grew = b_.CreateFCmpOGT(unary(llvm::Intrinsic::fabs, back), unary(llvm::Intrinsic::fabs, wide));
  Value step = b_.CreateSelect(grew, llvm::Constant::getAllOnesValue(words), llvm::ConstantInt::get(words, 1));
  Value odd = b_.CreateSelect(b_.CreateAnd(is_inexact, is_even), b_.CreateAdd(bits, step), bits);
  return b_.CreateBitCast(odd, nearest->getType());
}

llvm::Value* ScalarEmitter::narrow_double(DType out, Value wide) { return narrow(out, to_odd(wide)); }

}  // namespace sheaf::codegen
