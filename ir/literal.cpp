// Literals: element access and multi-index iteration for the reference interpreter.
#include "ir/literal.h"

#include "ir/check.h"

namespace sheaf::ir {

Literal::Literal(DType dtype, const Shape& dims, const std::vector<double>& values) : Literal(Type(dtype, dims)) {
  SHEAF_CHECK(static_cast<std::int64_t>(values.size()) == size(), "one value per element");
  for (std::int64_t i = 0; i < size(); ++i) set(i, values[i]);
}

void Literal::set_complex(std::int64_t i, double re, double im) {
  const DType part = part_dtype(dtype());
  const std::size_t n = size_bytes(part);
  const std::uint64_t bits[] = {to_bits(part, re), to_bits(part, im)};
  for (std::size_t k : {0, 1}) std::memcpy(data_.data() + (2 * i + k) * n, &bits[k], n);
}

double Literal::get_part(std::int64_t i, int part) const {
  const DType t = part_dtype(dtype());
  std::uint64_t bits = 0;
  std::memcpy(&bits, data_.data() + (2 * i + part) * size_bytes(t), static_cast<std::size_t>(size_bytes(t)));
  return from_bits(t, bits);
}

Literal Literal::as(Type type) const {
  SHEAF_CHECK(type.bytes() == type_.bytes(), "as many bytes");
  Literal other = *this;
  other.type_ = type;
  return other;
}

Literal Literal::as_parts() const { return as(parts_type(type_)); }

std::int64_t Literal::get_int(std::int64_t i) const {
  const std::uint64_t v = bits(i);
  if (!is_signed_int(dtype())) return static_cast<std::int64_t>(v);
  const int shift = 64 - 8 * size_bytes(dtype());
  return static_cast<std::int64_t>(v << shift) >> shift;
}

void Literal::set_int(std::int64_t i, std::int64_t v) { set_bits(i, static_cast<std::uint64_t>(v)); }

std::vector<std::int64_t> strides_of(const Shape& dims) {
  std::vector<std::int64_t> strides(dims.size(), 1);
  for (int d = static_cast<int>(dims.size()) - 2; d >= 0; --d) strides[d] = strides[d + 1] * dims[d + 1];
  return strides;
}

bool next_index(std::vector<std::int64_t>& index, const Shape& dims) {
  for (int d = static_cast<int>(dims.size()) - 1; d >= 0; --d) {
    if (++index[d] < dims[d]) return true;
    index[d] = 0;
  }
  return false;
}

}  // namespace sheaf::ir
