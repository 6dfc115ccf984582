// The exact meaning of every ScalarOp, in plain C++ on raw bits: the definition that emitters are tested against.
// Invariant: no operand traps, and each float result is the IEEE value with one rounding to nearest even.
#include <bit>
#include <cmath>
#include <concepts>
#include <cstring>
#include <limits>
#include <type_traits>

#include "ir/check.h"
#include "ir/scalar.h"

namespace sheaf::ir {
namespace {

using Bits = std::uint64_t;
__extension__ using Wide = unsigned __int128;

template <class T>
T load(Bits bits) {
  T value;
  std::memcpy(&value, &bits, sizeof value);  // the low bytes: every target is little-endian
  return value;
}

template <class T>
Bits store(T value) {
  Bits bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  return bits;
}

// A float format narrower than f32, as IEEE 754 lays it out: sign, exponent, mantissa.
struct SmallFloat {
  int exponent_bits;
  int mantissa_bits;
  bool has_infinity;  // if not, the one NaN is all ones, and overflow becomes that NaN
  int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  Bits exponent_mask() const { return ((Bits{1} << exponent_bits) - 1) << mantissa_bits; }
  Bits sign_bit() const { return Bits{1} << (exponent_bits + mantissa_bits); }
  Bits nan() const { return sign_bit() - 1; }
  Bits overflow() const { return has_infinity ? exponent_mask() : nan(); }
};

SmallFloat small_float(DType t) {
  switch (t) {
    case DType::f16: return {5, 10, true};
    case DType::bf16: return {8, 7, true};
    case DType::f8e4m3: return {4, 3, false};
    case DType::f8e5m2: return {5, 2, true};
    default: SHEAF_CHECK(false, std::string(name(t))); return {};
  }
}

bool is_small_float(DType t) { return t == DType::f16 || t == DType::bf16 || t == DType::f8e4m3 || t == DType::f8e5m2; }

// magnitude >> shift, rounded to nearest even.
Bits shift_right_nearest_even(Bits magnitude, int shift) {
  if (shift <= 0) return magnitude << -shift;
  if (shift > 64) return 0;
  if (shift == 64) return magnitude > (Bits{1} << 63) ? 1 : 0;
  const Bits kept = magnitude >> shift;
  const Bits rest = magnitude & ((Bits{1} << shift) - 1);
  const Bits half = Bits{1} << (shift - 1);
  return kept + (rest > half || (rest == half && (kept & 1)) ? 1 : 0);
}

// Rounds (-1)^is_negative * magnitude * 2^exponent to the format.
Bits encode(SmallFloat format, bool is_negative, Bits magnitude, int exponent) {
  const Bits sign = is_negative ? format.sign_bit() : 0;
  if (magnitude == 0) return sign;
  const int leading = exponent + 63 - std::countl_zero(magnitude);  // the value lies in [2^leading, 2^(leading+1))
  const int smallest_normal = 1 - format.bias();
  const int scale = std::max(leading, smallest_normal);
  if (scale > format.bias() + 1) return sign | format.overflow();
  const Bits rounded = shift_right_nearest_even(magnitude, scale - format.mantissa_bits - exponent);
  // The implicit bit of a normal, or a carry out of the mantissa, adds one to the exponent field by itself.
  const Bits bits = (Bits(scale - smallest_normal) << format.mantissa_bits) + rounded;
  return sign | std::min(bits, format.overflow());
}

Bits encode(SmallFloat format, double value) {
  const Bits bits = store(value);
  const bool is_negative = bits >> 63;
  const int field = static_cast<int>(bits >> 52) & 0x7ff;
  const Bits fraction = bits & ((Bits{1} << 52) - 1);
  const Bits sign = is_negative ? format.sign_bit() : 0;
  if (field == 0x7ff && fraction != 0) {
    const Bits quiet = Bits{1} << (format.mantissa_bits - 1);
    return sign | (format.has_infinity ? format.exponent_mask() | quiet : format.nan());
  }
  if (field == 0x7ff) return sign | format.overflow();
  if (field == 0) return encode(format, is_negative, fraction, -1074);
  return encode(format, is_negative, fraction | (Bits{1} << 52), field - 1075);
}

double decode(SmallFloat format, Bits bits) {
  const double sign = bits & format.sign_bit() ? -1.0 : 1.0;
  const Bits magnitude = bits & format.nan();
  const Bits fraction = magnitude & ((Bits{1} << format.mantissa_bits) - 1);
  const int field = static_cast<int>(magnitude >> format.mantissa_bits);
  const bool is_top = (magnitude & format.exponent_mask()) == format.exponent_mask();
  if (format.has_infinity && is_top) {
    return std::copysign(fraction ? std::numeric_limits<double>::quiet_NaN() : std::numeric_limits<double>::infinity(),
                         sign);
  }
  if (magnitude == format.nan()) return std::copysign(std::numeric_limits<double>::quiet_NaN(), sign);
  const int unit = (field == 0 ? 1 : field) - format.bias() - format.mantissa_bits;
  const Bits significand = field == 0 ? fraction : fraction | (Bits{1} << format.mantissa_bits);
  return sign * std::ldexp(static_cast<double>(significand), unit);
}

template <std::integral T>
T saturate(double value) {
  if (std::isnan(value)) return 0;
  constexpr T lowest = std::numeric_limits<T>::min(), highest = std::numeric_limits<T>::max();
  // 2^digits is exact in double, while `highest` may round up to it.
  const double limit = std::ldexp(1.0, std::numeric_limits<T>::digits);
  if (value >= limit) return highest;
  if (value <= static_cast<double>(lowest)) return lowest;
  return static_cast<T>(value);
}

// Calls `f(T{})` with the C++ type that holds an integer or bool of dtype `t`.
template <class F>
auto with_int_type(DType t, F&& f) {
  switch (t) {
    case DType::i8: return f(std::int8_t{});
    case DType::i16: return f(std::int16_t{});
    case DType::i32: return f(std::int32_t{});
    case DType::i64: return f(std::int64_t{});
    case DType::bool_:
    case DType::u8: return f(std::uint8_t{});
    case DType::u16: return f(std::uint16_t{});
    case DType::u32: return f(std::uint32_t{});
    case DType::u64: return f(std::uint64_t{});
    default: SHEAF_CHECK(false, std::string(name(t))); return f(std::uint64_t{});
  }
}

template <class T>
Bits convert_int(T value, DType out) {
  if (is_bool(out)) return value != 0;
  if (is_int(out)) return with_int_type(out, [&](auto type) { return store(static_cast<decltype(type)>(value)); });
  if (out == DType::f32) return store(static_cast<float>(value));
  if (out == DType::f64) return store(static_cast<double>(value));
  const bool is_negative = value < 0;
  const Bits magnitude = is_negative ? -static_cast<Bits>(value) : static_cast<Bits>(value);
  return encode(small_float(out), is_negative, magnitude, 0);
}

Bits convert_bits(DType in_dtype, DType out, Bits in) {
  if (is_bool(in_dtype) || is_int(in_dtype)) {
    return with_int_type(in_dtype, [&](auto type) { return convert_int(load<decltype(type)>(in), out); });
  }
  return to_bits(out, from_bits(in_dtype, in));  // every float type is exact in f64
}

template <std::floating_point T>
T min_or_nan(T a, T b) {
  if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<T>::quiet_NaN();
  if (a == b) return std::signbit(a) ? a : b;
  return a < b ? a : b;
}

template <std::floating_point T>
Bits eval_float(ScalarOp op, const Bits in[3]) {
  const T a = load<T>(in[0]), b = load<T>(in[1]);
  switch (op) {
    case ScalarOp::add: return store<T>(a + b);
    case ScalarOp::sub: return store<T>(a - b);
    case ScalarOp::mul: return store<T>(a * b);
    case ScalarOp::div: return store<T>(a / b);
    case ScalarOp::rem: return store<T>(std::fmod(a, b));
    case ScalarOp::neg: return store<T>(-a);
    case ScalarOp::abs: return store<T>(std::fabs(a));
    case ScalarOp::min: return store<T>(min_or_nan(a, b));
    case ScalarOp::max: return store<T>(-min_or_nan(-a, -b));
    case ScalarOp::fma: return store<T>(std::fma(a, b, load<T>(in[2])));
    case ScalarOp::sqrt: return store<T>(std::sqrt(a));
    case ScalarOp::floor: return store<T>(std::floor(a));
    case ScalarOp::ceil: return store<T>(std::ceil(a));
    case ScalarOp::trunc: return store<T>(std::trunc(a));
    case ScalarOp::round_even: return store<T>(std::nearbyint(a));
    case ScalarOp::eq: return a == b;
    case ScalarOp::ne: return a != b;
    case ScalarOp::lt: return a < b;
    case ScalarOp::le: return a <= b;
    case ScalarOp::gt: return a > b;
    case ScalarOp::ge: return a >= b;
    default: SHEAF_CHECK(false, std::string(name(op)) + " of floats"); return 0;
  }
}

template <std::integral T>
T divide(T a, T b) {
  if (b == 0) return static_cast<T>(-1);
  if (std::is_signed_v<T> && b == static_cast<T>(-1)) return static_cast<T>(-static_cast<std::make_unsigned_t<T>>(a));
  return static_cast<T>(a / b);
}

template <std::integral T>
T remainder(T a, T b) {
  if (b == 0) return a;
  if (std::is_signed_v<T> && b == static_cast<T>(-1)) return 0;
  return static_cast<T>(a % b);
}

template <std::integral T>
Bits eval_int(ScalarOp op, DType dtype, const Bits in[3]) {
  using Unsigned = std::make_unsigned_t<T>;
  using Signed = std::make_signed_t<T>;
  constexpr unsigned width = 8 * sizeof(T);
  const T a = load<T>(in[0]), b = load<T>(in[1]);
  // u64 arithmetic wraps, and its low bits are those of the narrower type.
  const Bits ua = load<Unsigned>(in[0]), ub = load<Unsigned>(in[1]);
  const auto wrap = [](Bits value) { return store(static_cast<Unsigned>(value)); };
  switch (op) {
    case ScalarOp::add: return wrap(ua + ub);
    case ScalarOp::sub: return wrap(ua - ub);
    case ScalarOp::mul: return wrap(ua * ub);
    case ScalarOp::div: return store(divide(a, b));
    case ScalarOp::rem: return store(remainder(a, b));
    case ScalarOp::neg: return wrap(-ua);
    case ScalarOp::abs: return a < 0 ? wrap(-ua) : ua;
    case ScalarOp::min: return store(a < b ? a : b);
    case ScalarOp::max: return store(a > b ? a : b);
    case ScalarOp::eq: return a == b;
    case ScalarOp::ne: return a != b;
    case ScalarOp::lt: return a < b;
    case ScalarOp::le: return a <= b;
    case ScalarOp::gt: return a > b;
    case ScalarOp::ge: return a >= b;
    case ScalarOp::and_: return ua & ub;
    case ScalarOp::or_: return ua | ub;
    case ScalarOp::xor_: return ua ^ ub;
    case ScalarOp::not_: return is_bool(dtype) ? ua ^ 1 : wrap(~ua);
    case ScalarOp::shl: return ub >= width ? 0 : wrap(ua << ub);
    case ScalarOp::shr_logical: return ub >= width ? 0 : ua >> ub;
    case ScalarOp::shr_arith: return store(static_cast<Signed>(load<Signed>(in[0]) >> std::min<Bits>(ub, width - 1)));
    case ScalarOp::mul_hi: return wrap(static_cast<Bits>((Wide{ua} * ub) >> width));
    case ScalarOp::clz: return static_cast<Bits>(std::countl_zero(static_cast<Unsigned>(ua)));
    case ScalarOp::popcount: return static_cast<Bits>(std::popcount(ua));
    default: SHEAF_CHECK(false, std::string(name(op)) + " of integers"); return 0;
  }
}

}  // namespace

std::uint64_t to_bits(DType dtype, double value) {
  if (dtype == DType::f64) return store(value);
  if (dtype == DType::f32) return store(static_cast<float>(value));
  if (is_small_float(dtype)) return encode(small_float(dtype), value);
  if (is_bool(dtype)) return value != 0;
  return with_int_type(dtype, [&](auto type) { return store(saturate<decltype(type)>(value)); });
}

double from_bits(DType dtype, std::uint64_t bits) {
  if (dtype == DType::f64) return load<double>(bits);
  if (dtype == DType::f32) return load<float>(bits);
  if (is_small_float(dtype)) return decode(small_float(dtype), bits);
  return with_int_type(dtype, [&](auto type) { return static_cast<double>(load<decltype(type)>(bits)); });
}

std::uint64_t eval_op(ScalarOp op, DType in_dtype, DType out, const std::uint64_t in[3]) {
  switch (op) {
    case ScalarOp::select: return in[0] & 1 ? in[1] : in[2];
    case ScalarOp::bitcast: return in[0];
    case ScalarOp::convert: return convert_bits(in_dtype, out, in[0]);
    default: break;
  }
  if (in_dtype == DType::f32) return eval_float<float>(op, in);
  if (in_dtype == DType::f64) return eval_float<double>(op, in);
  return with_int_type(in_dtype, [&](auto type) { return eval_int<decltype(type)>(op, in_dtype, in); });
}

std::uint64_t eval(const ScalarFn& fn, std::span<const std::uint64_t> args) {
  SHEAF_CHECK(args.size() == fn.args.size());
  std::vector<std::uint64_t> values(fn.nodes.size());
  for (std::size_t i = 0; i < fn.nodes.size(); ++i) {
    const ScalarNode& node = fn.nodes[i];
    if (node.op == ScalarOp::arg) {
      values[i] = args[node.index];
    } else if (node.op == ScalarOp::constant) {
      values[i] = node.bits;
    } else {
      std::uint64_t in[3] = {};
      for (int k = 0; k < arity(node.op); ++k) in[k] = values[node.in[k]];
      const int typed = node.op == ScalarOp::select ? 1 : 0;
      values[i] = eval_op(node.op, fn.nodes[node.in[typed]].dtype, node.dtype, in);
    }
  }
  return values[fn.result];
}

}  // namespace sheaf::ir
