// A host tensor: dims and row-major bytes. It is what constants hold and what the reference interpreter computes on.
#pragma once

#include <cstddef>
#include <cstring>
#include <vector>

#include "ir/scalar.h"
#include "ir/type.h"

namespace sheaf::ir {

class Literal {
 public:
  Literal() = default;
  explicit Literal(Type type) : type_(type), data_(static_cast<std::size_t>(type.bytes())) {}
  Literal(DType dtype, const Shape& dims, const std::vector<double>& values);  // rounded to dtype
  static Literal scalar(DType dtype, double value) { return Literal(dtype, {}, {value}); }

  Type type() const { return type_; }
  DType dtype() const { return type_.dtype(); }
  const Shape& dims() const { return type_.dims(); }
  std::int64_t size() const { return type_.num_elements(); }
  std::byte* data() { return data_.data(); }
  const std::byte* data() const { return data_.data(); }
  std::size_t bytes() const { return data_.size(); }

  /// Raw bits of element i, zero-extended; not of complex elements, which do not fit.
  std::uint64_t bits(std::int64_t i) const {
    std::uint64_t v = 0;
    const std::size_t n = size_bytes(dtype());
    std::memcpy(&v, data_.data() + i * n, n);
    return v;
  }
  void set_bits(std::int64_t i, std::uint64_t v) {
    const std::size_t n = size_bytes(dtype());
    std::memcpy(data_.data() + i * n, &v, n);
  }
  /// The value of element i; of a complex one the real part, which `set` writes beside an imaginary part of 0.
  double get(std::int64_t i) const { return is_complex(dtype()) ? get_part(i, 0) : from_bits(dtype(), bits(i)); }
  void set(std::int64_t i, double v) {
    if (is_complex(dtype())) set_complex(i, v, 0);
    else set_bits(i, to_bits(dtype(), v));
  }
  void set_complex(std::int64_t i, double re, double im);
  double get_part(std::int64_t i, int part) const;  // of a complex element: 0 is the real part, 1 the imaginary one
  /// The same bytes under another type of as many.
  Literal as(Type type) const;
  /// Complex elements as pairs of reals along a new last dim.
  Literal as_parts() const;
  std::int64_t get_int(std::int64_t i) const;  // sign-extended for signed types
  void set_int(std::int64_t i, std::int64_t v);  // wraps
  /// Copies element j of `from` (same dtype) to element i.
  void copy(std::int64_t i, const Literal& from, std::int64_t j) {
    const std::size_t n = size_bytes(dtype());
    std::memcpy(data_.data() + i * n, from.data_.data() + j * n, n);
  }
  bool operator==(const Literal&) const = default;  // bitwise

 private:
  Type type_;
  std::vector<std::byte> data_;
};
using Literals = std::vector<Literal>;

/// Row-major strides in elements.
std::vector<std::int64_t> strides_of(const Shape& dims);
/// Advances a multi-index in row-major order; false after the last. An empty shape has exactly one index.
bool next_index(std::vector<std::int64_t>& index, const Shape& dims);
/// Position of a multi-index.
inline std::int64_t flatten(const std::vector<std::int64_t>& index, const std::vector<std::int64_t>& strides) {
  std::int64_t p = 0;
  for (std::size_t d = 0; d < index.size(); ++d) p += index[d] * strides[d];
  return p;
}

}  // namespace sheaf::ir
