// Element types. `DType` is a closed set: every emitter switches over it exhaustively.
// f8 types are for storage only: arithmetic on them is refused by the type rule of every op but convert.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace sheaf {

enum class DType : std::uint8_t {
  bool_,
  i8,
  i16,
  i32,
  i64,
  u8,
  u16,
  u32,
  u64,
  f16,
  bf16,
  f32,
  f64,
  c64,
  c128,
  f8e4m3,
  f8e5m2,
  token,  // an ordering edge between effects; carries no data
};
inline constexpr int kNumDTypes = 18;

// The names users write: `zeros({2, 3}, f32)`. `bool_` keeps its underscore, `bool` being taken.
inline constexpr DType bool_ = DType::bool_;
inline constexpr DType i8 = DType::i8, i16 = DType::i16, i32 = DType::i32, i64 = DType::i64;
inline constexpr DType u8 = DType::u8, u16 = DType::u16, u32 = DType::u32, u64 = DType::u64;
inline constexpr DType f16 = DType::f16, bf16 = DType::bf16, f32 = DType::f32, f64 = DType::f64;
inline constexpr DType c64 = DType::c64, c128 = DType::c128;

/// Bytes of one element; bool is one byte holding 0 or 1; token is 0.
constexpr int size_bytes(DType t) {
  switch (t) {
    case DType::bool_:
    case DType::i8:
    case DType::u8:
    case DType::f8e4m3:
    case DType::f8e5m2: return 1;
    case DType::i16:
    case DType::u16:
    case DType::f16:
    case DType::bf16: return 2;
    case DType::i32:
    case DType::u32:
    case DType::f32: return 4;
    case DType::i64:
    case DType::u64:
    case DType::f64:
    case DType::c64: return 8;
    case DType::c128: return 16;
    case DType::token: return 0;
  }
  return 0;
}

constexpr bool is_float(DType t) { return t == DType::f16 || t == DType::bf16 || t == DType::f32 || t == DType::f64; }
constexpr bool is_complex(DType t) { return t == DType::c64 || t == DType::c128; }
constexpr bool is_signed_int(DType t) { return t >= DType::i8 && t <= DType::i64; }
constexpr bool is_unsigned_int(DType t) { return t >= DType::u8 && t <= DType::u64; }
constexpr bool is_int(DType t) { return t >= DType::i8 && t <= DType::u64; }
constexpr bool is_bool(DType t) { return t == DType::bool_; }
/// Types that carry a tangent: float and complex. Integers, bools and tokens have none.
constexpr bool is_differentiable(DType t) { return is_float(t) || is_complex(t); }
/// The type sums and dot products of `t` accumulate in: f32 for f16 and bf16, else `t`.
constexpr DType accumulator(DType t) { return t == DType::f16 || t == DType::bf16 ? DType::f32 : t; }

/// What the real and the imaginary part of a complex type are; real types themselves.
constexpr DType part_dtype(DType t) { return t == DType::c64 ? DType::f32 : t == DType::c128 ? DType::f64 : t; }
/// The complex type whose parts hold `t`: c128 for f64, else c64.
constexpr DType complex_dtype(DType t) { return part_dtype(t) == DType::f64 ? DType::c128 : DType::c64; }

/// "f32", "bool", ... as in the IR text.
std::string_view name(DType t);
/// Inverse of `name`; nullopt for anything else.
std::optional<DType> parse_dtype(std::string_view text);

/// JAX's promotion lattice for two strong types: bool < u8..u64 / i8..i64 < floats < complex, with
/// i64 x u64 -> f32's weak stand-in (f64 here: C++ has no global x64 switch), f16 x bf16 -> f32.
DType promote(DType a, DType b);

}  // namespace sheaf
