// Names and promotion of element types. Promotion is the join in JAX's lattice for strong types, written as rules on
// (kind, width). Invariant: `promote` is commutative, except between two types that no arithmetic accepts.
#include "sheaf/dtype.h"

#include <algorithm>
#include <array>

namespace sheaf {
namespace {

constexpr std::array<std::string_view, kNumDTypes> kNames = {"bool", "i8",  "i16",  "i32",    "i64",    "u8",
                                                             "u16",  "u32", "u64",  "f16",    "bf16",   "f32",
                                                             "f64",  "c64", "c128", "f8e4m3", "f8e5m2", "token"};

DType signed_of_size(int bytes) {
  switch (bytes) {
    case 1: return DType::i8;
    case 2: return DType::i16;
    case 4: return DType::i32;
    default: return DType::i64;
  }
}

DType promote_ints(DType a, DType b) {
  if (is_signed_int(a) == is_signed_int(b)) return size_bytes(a) >= size_bytes(b) ? a : b;
  const DType with_sign = is_signed_int(a) ? a : b;
  const DType without = is_signed_int(a) ? b : a;
  if (without == DType::u64) return DType::f64;  // no integer type holds both
  return signed_of_size(std::max(size_bytes(with_sign), 2 * size_bytes(without)));
}

DType promote_floats(DType a, DType b) {
  if (a == b) return a;
  if (size_bytes(a) == size_bytes(b)) return DType::f32;  // f16 with bf16: neither holds the other
  return size_bytes(a) > size_bytes(b) ? a : b;
}

bool is_arithmetic(DType t) { return is_bool(t) || is_int(t) || is_float(t) || is_complex(t); }

}  // namespace

std::string_view name(DType t) { return kNames[static_cast<std::size_t>(t)]; }

std::optional<DType> parse_dtype(std::string_view text) {
  const auto found = std::find(kNames.begin(), kNames.end(), text);
  if (found == kNames.end()) return std::nullopt;
  return static_cast<DType>(found - kNames.begin());
}

DType promote(DType a, DType b) {
  if (a == b) return a;
  // A storage-only type or a token wins over anything, so that the op's own type rule names it when it refuses.
  if (!is_arithmetic(a)) return a;
  if (!is_arithmetic(b)) return b;
  if (is_complex(a) || is_complex(b)) {
    const bool is_wide = a == DType::c128 || b == DType::c128 || a == DType::f64 || b == DType::f64;
    return is_wide ? DType::c128 : DType::c64;
  }
  if (is_float(a) || is_float(b)) {
    if (!is_float(a)) return b;
    if (!is_float(b)) return a;
    return promote_floats(a, b);
  }
  if (is_bool(a)) return b;
  if (is_bool(b)) return a;
  return promote_ints(a, b);
}

}  // namespace sheaf
