// Making complex arrays and taking them apart. Real arrays are complex ones without an imaginary part wherever one is
// asked for.
#include "ir/ops/attrs.h"
#include "sheaf/ops.h"
#include "trace/apply.h"
#include "trace/promotion.h"

namespace sheaf {
namespace {

Array part(std::string_view name, const ir::OpDef& op, const Operand& z) {
  return apply1(name, RuleKey(), {z}, z.loc(), [&](ir::Builder& b, const ir::Values& in) { return emit(b, op, in); });
}

}  // namespace

Array complex(Operand re, Operand im) {
  const Operand both[] = {re, im};
  const DType dtype = floating(promote(both).dtype);
  const Shape shape = broadcast_shapes("complex", both, re.loc());
  const DType of_parts = is_float(dtype) ? part_dtype(complex_dtype(dtype)) : dtype;  // f16 and bf16 become f32
  return apply1("complex", RuleKey(), {Input(re, of_parts), Input(im, of_parts)}, re.loc(),
                [&](ir::Builder& b, const ir::Values& in) {
                  return emit(b, ir::ops::complex,
                              {broadcast_value(b, in[0], shape), broadcast_value(b, in[1], shape)});
                });
}

Array real(Operand z) { return is_complex(z.dtype()) ? part("real", ir::ops::real, z) : to_array(z); }
Array imag(Operand z) { return is_complex(z.dtype()) ? part("imag", ir::ops::imag, z) : zeros_like(z); }

Array conj(Operand z) {
  if (!is_complex(z.dtype())) return to_array(z);
  return compose1("conj", RuleKey(), {z}, z.loc(),
                  [](std::span<const Array> in) { return complex(real(in[0]), -imag(in[0])); });
}

Array angle(Operand z) {
  return compose1("angle", RuleKey(), {z}, z.loc(),
                  [](std::span<const Array> in) { return atan2(imag(in[0]), real(in[0])); });
}

}  // namespace sheaf
