// What sheets of index maps share: the reference loop that reads a result through its View, and the common fields.
#pragma once

#include "ir/ops/sheet.h"

namespace sheaf::ir::ops {

/// out[i] = in[j], j by the sheet's own View.
inline void eval_view(const Eqn& e, std::span<const Literal> in, std::span<Literal> out) {
  if (out[0].size() == 0) return;
  const auto v = std::get<lowering::View>(e.op->lower(e));
  const std::vector<std::int64_t> strides = strides_of(in[0].dims());
  DimList i(out[0].dims().size());
  std::int64_t at = 0;
  do {
    DimList j = v.offset;
    for (std::size_t d = 0; d < j.size(); ++d)
      if (v.source[d] >= 0) j[d] += v.stride[d] * i[v.source[d]];
    out[0].copy(at++, in[0], flatten(j, strides));
  } while (next_index(i, out[0].dims()));
}

/// Linear in its only operand; read through its View unless it says otherwise.
constexpr OpDef view(OpDef d) {
  d.arity = 1;
  d.linear = jointly(1);
  if (!d.eval) d.eval = eval_view;
  return d;
}

}  // namespace sheaf::ir::ops
