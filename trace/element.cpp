// Half types are told by the digits that an f32 needs.
#include "trace/element.h"

#include <fmt/format.h>

#include <cmath>

#include "sheaf/shape.h"

namespace sheaf {

std::string element_text(const ir::Literal& x, std::int64_t i) {
  const DType t = x.dtype();
  if (is_bool(t)) return x.bits(i) ? "true" : "false";
  if (is_unsigned_int(t)) return std::to_string(x.bits(i));
  if (is_int(t)) return std::to_string(x.get_int(i));
  const auto part_text = [&](double v) {
    return std::isnan(v) ? "nan" : fmt::format("{:.{}g}", v, part_dtype(t) == DType::f64 ? 17 : 9);
  };
  if (!is_complex(t)) return part_text(x.get(i));
  const std::string imaginary = part_text(x.get_part(i, 1));
  return part_text(x.get_part(i, 0)) + (imaginary[0] == '-' ? "" : "+") + imaginary + "i";
}

std::string index_text(const ir::Literal& x, std::int64_t i) {
  Shape index(x.dims().size());
  for (std::size_t d = index.size(); d-- > 0; i /= x.dims()[d]) index[d] = i % x.dims()[d];
  return to_string(index);
}

}  // namespace sheaf
