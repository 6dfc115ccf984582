// The loops of an epilogue are the contraction's own, so only what they hold is printed.
#include "codegen/cuda/epilogue.h"

#include <fmt/format.h>

#include <limits>

#include "codegen/cuda/contract.h"
#include "codegen/cuda/phase_printer.h"
#include "codegen/cuda/prelude.h"
#include "codegen/kir/contract.h"

namespace sheaf::codegen {

std::string Epilogue::store(const std::string& batch, const std::string& row, const std::string& column,
                            const std::string& sum) const {
  const kir::Contract& c = *kernel_.contract;
  const kir::Param& result = kernel_.params[c.result];
  const bool is_wide = result.count > std::numeric_limits<std::int32_t>::max();
  // A bool is written as it lies in memory.
  const std::string value = is_bool(c.accumulate) ? sum : cuda_converted(c.accumulate, c.out, sum);
  std::string text;
  if (result.access != kir::Param::Access::temporary)
    text += fmt::format("p{}[{} + {} + {} + {}] = {};\n", c.result, c.out_offset,
                        cuda_offset(c.batch.extents, c.batch.out_strides, batch, is_wide),
                        cuda_offset(c.m.extents, c.m.out_strides, row, is_wide),
                        cuda_offset(c.n.extents, c.n.out_strides, column, is_wide), value);
  const kir::Phase* phase = kir::epilogue_of(kernel_);
  if (!phase) return text;
  const std::string at[] = {batch, row, column};
  return text + PhasePrinter(kernel_, *phase, Team(kernel_, *phase), "", false).print_element(at, c.result, value);
}

}  // namespace sheaf::codegen
