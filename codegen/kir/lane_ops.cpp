// Fast loops for f32, f64, i32, i64, u32 and bool; each must equal ir::eval_op to the bit (NaN payloads aside), which
// tests/kir/interp_test.cpp checks op by op.
#include "codegen/kir/lane_ops.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <type_traits>

namespace sheaf::kir {
namespace {

using ir::ScalarOp;

template <class T>
using Bits =
    std::conditional_t<sizeof(T) == 8, std::uint64_t, std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint8_t>>;
template <class T>
T value_of(std::uint64_t bits) {
  return std::bit_cast<T>(static_cast<Bits<T>>(bits));
}
template <class T>
std::uint64_t bits_of(T value) {
  return std::bit_cast<Bits<T>>(value);
}

template <class T, class F>
void unary(std::uint64_t* out, const LaneRef in[3], int lanes, F f) {
  for (int l = 0; l < lanes; ++l) out[l] = bits_of<T>(f(value_of<T>(in[0][l])));
}
template <class T, class F>
void binary(std::uint64_t* out, const LaneRef in[3], int lanes, F f) {
  for (int l = 0; l < lanes; ++l) out[l] = bits_of<T>(f(value_of<T>(in[0][l]), value_of<T>(in[1][l])));
}
template <class T, class F>
void compare(std::uint64_t* out, const LaneRef in[3], int lanes, F f) {
  for (int l = 0; l < lanes; ++l) out[l] = f(value_of<T>(in[0][l]), value_of<T>(in[1][l])) ? 1 : 0;
}

template <class T>
bool apply_comparison(ScalarOp op, std::uint64_t* out, const LaneRef in[3], int lanes) {
  switch (op) {
    case ScalarOp::eq: compare<T>(out, in, lanes, [](T a, T b) { return a == b; }); return true;
    case ScalarOp::ne: compare<T>(out, in, lanes, [](T a, T b) { return a != b; }); return true;
    case ScalarOp::lt: compare<T>(out, in, lanes, [](T a, T b) { return a < b; }); return true;
    case ScalarOp::le: compare<T>(out, in, lanes, [](T a, T b) { return a <= b; }); return true;
    case ScalarOp::gt: compare<T>(out, in, lanes, [](T a, T b) { return a > b; }); return true;
    case ScalarOp::ge: compare<T>(out, in, lanes, [](T a, T b) { return a >= b; }); return true;
    default: return false;
  }
}

template <class T>
bool apply_float(ScalarOp op, std::uint64_t* out, const LaneRef in[3], int lanes) {
  switch (op) {
    case ScalarOp::add: binary<T>(out, in, lanes, [](T a, T b) { return a + b; }); return true;
    case ScalarOp::sub: binary<T>(out, in, lanes, [](T a, T b) { return a - b; }); return true;
    case ScalarOp::mul: binary<T>(out, in, lanes, [](T a, T b) { return a * b; }); return true;
    case ScalarOp::div: binary<T>(out, in, lanes, [](T a, T b) { return a / b; }); return true;
    case ScalarOp::sqrt: unary<T>(out, in, lanes, [](T a) { return std::sqrt(a); }); return true;
    case ScalarOp::fma:
      for (int l = 0; l < lanes; ++l) {
        out[l] = bits_of<T>(std::fma(value_of<T>(in[0][l]), value_of<T>(in[1][l]), value_of<T>(in[2][l])));
      }
      return true;
    default: return apply_comparison<T>(op, out, in, lanes);
  }
}

/// Wrapping arithmetic in the unsigned type of the same width.
template <class T>
bool apply_int(ScalarOp op, std::uint64_t* out, const LaneRef in[3], int lanes) {
  using U = std::make_unsigned_t<T>;
  switch (op) {
    case ScalarOp::add: binary<U>(out, in, lanes, [](U a, U b) { return U(a + b); }); return true;
    case ScalarOp::sub: binary<U>(out, in, lanes, [](U a, U b) { return U(a - b); }); return true;
    case ScalarOp::mul: binary<U>(out, in, lanes, [](U a, U b) { return U(a * b); }); return true;
    case ScalarOp::and_: binary<U>(out, in, lanes, [](U a, U b) { return U(a & b); }); return true;
    case ScalarOp::or_: binary<U>(out, in, lanes, [](U a, U b) { return U(a | b); }); return true;
    case ScalarOp::xor_: binary<U>(out, in, lanes, [](U a, U b) { return U(a ^ b); }); return true;
    default: return apply_comparison<T>(op, out, in, lanes);
  }
}

bool apply_bool(ScalarOp op, std::uint64_t* out, const LaneRef in[3], int lanes) {
  switch (op) {
    case ScalarOp::and_:
      for (int l = 0; l < lanes; ++l) out[l] = in[0][l] & in[1][l];
      return true;
    case ScalarOp::or_:
      for (int l = 0; l < lanes; ++l) out[l] = in[0][l] | in[1][l];
      return true;
    case ScalarOp::not_:
      for (int l = 0; l < lanes; ++l) out[l] = in[0][l] ^ 1;
      return true;
    default: return false;
  }
}

bool apply_fast(ScalarOp op, DType dtype, std::uint64_t* out, const LaneRef in[3], int lanes) {
  if (op == ScalarOp::select) {
    for (int l = 0; l < lanes; ++l) out[l] = in[0][l] ? in[1][l] : in[2][l];
    return true;
  }
  switch (dtype) {
    case DType::f32: return apply_float<float>(op, out, in, lanes);
    case DType::f64: return apply_float<double>(op, out, in, lanes);
    case DType::i32: return apply_int<std::int32_t>(op, out, in, lanes);
    case DType::i64: return apply_int<std::int64_t>(op, out, in, lanes);
    case DType::u32: return apply_int<std::uint32_t>(op, out, in, lanes);
    case DType::bool_: return apply_bool(op, out, in, lanes);
    default: return false;
  }
}

}  // namespace

void apply(ScalarOp op, DType in_dtype, DType out_dtype, std::uint64_t* out, const LaneRef in[3], int lanes) {
  if (op != ScalarOp::convert && op != ScalarOp::bitcast && apply_fast(op, in_dtype, out, in, lanes)) return;
  const int count = ir::arity(op);
  for (int l = 0; l < lanes; ++l) {
    std::uint64_t bits[3] = {0, 0, 0};
    for (int i = 0; i < count; ++i) bits[i] = in[i][l];
    out[l] = ir::eval_op(op, in_dtype, out_dtype, bits);
  }
}

std::uint64_t read_element(const std::byte* at, int size) {
  switch (size) {
    case 1: return static_cast<std::uint64_t>(*at);
    case 2: {
      std::uint16_t v;
      std::memcpy(&v, at, 2);
      return v;
    }
    case 4: {
      std::uint32_t v;
      std::memcpy(&v, at, 4);
      return v;
    }
    default: {
      std::uint64_t v;
      std::memcpy(&v, at, 8);
      return v;
    }
  }
}

void write_element(std::byte* at, int size, std::uint64_t bits) {
  std::memcpy(at, &bits, static_cast<std::size_t>(size));  // little-endian: the low bytes come first
}

}  // namespace sheaf::kir
