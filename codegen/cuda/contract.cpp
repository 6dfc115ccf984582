// The index maps of a contraction are sums of digits times strides, printed as expressions of a row, a column and a
// term.
#include "codegen/cuda/contract.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <utility>

#include "codegen/cuda/mma.h"
#include "codegen/cuda/prelude.h"
#include "codegen/cuda/simt.h"
#include "codegen/kir/contract.h"

namespace sheaf::codegen {
namespace {

using Dims = kir::Contract::Dims;
using Strides = std::vector<std::int64_t>;

bool is_wide(const ContractOperand& o) {
  std::int64_t most = std::abs(o.offset);
  const auto reach = [&](const Dims& dims, const Strides& strides) {
    for (std::size_t i = 0; i < strides.size(); ++i) most += (dims.extents[i] - 1) * std::abs(strides[i]);
  };
  reach(o.batch, o.batch_strides);
  reach(o.outer, o.outer_strides);
  reach(o.k, o.k_strides);
  return most > std::numeric_limits<std::int32_t>::max();
}

std::optional<Prologue> prologue_at(const kir::Kernel& kernel, int operand) {
  if (!kir::prologue_of(kernel, operand)) return std::nullopt;
  return Prologue(kernel, operand);
}

}  // namespace

void emit_cuda_contract(const kir::Kernel& kernel, const std::string& symbol, const Target& target, CudaText& out) {
  if (has_mma(*kernel.contract, target)) return emit_mma(kernel, plan_mma(kernel, target), symbol, out);
  emit_simt(kernel, plan_simt(*kernel.contract, target), symbol, out);
}

ContractOperand ContractOperand::lhs(const kir::Kernel& kernel, const kir::Contract& c, bool is_swapped) {
  const int param = is_swapped ? 1 : 0;
  return {.dtype = c.lhs,
          .param = param,
          .batch = c.batch,
          .outer = c.m,
          .k = c.k,
          .batch_strides = c.batch.lhs_strides,
          .outer_strides = c.m.lhs_strides,
          .k_strides = c.k.lhs_strides,
          .offset = c.lhs_offset,
          .alignment = kernel.params[param].alignment,
          .prologue = prologue_at(kernel, param)};
}

ContractOperand ContractOperand::rhs(const kir::Kernel& kernel, const kir::Contract& c, bool is_swapped) {
  const int param = is_swapped ? 0 : 1;
  return {.dtype = c.rhs,
          .param = param,
          .batch = c.batch,
          .outer = c.n,
          .k = c.k,
          .batch_strides = c.batch.rhs_strides,
          .outer_strides = c.n.rhs_strides,
          .k_strides = c.k.rhs_strides,
          .offset = c.rhs_offset,
          .alignment = kernel.params[param].alignment,
          .prologue = prologue_at(kernel, param)};
}

bool ContractOperand::has_k_rows() const {
  if (runs_along(k, k_strides) || runs_along(outer, outer_strides)) return runs_along(k, k_strides);
  return std::abs(k_strides.back()) <= std::abs(outer_strides.back());
}

int ContractOperand::width() const {
  if (prologue) return prologue->width(std::max(1, 16 / size_bytes(dtype)));
  const Dims& run = has_k_rows() ? k : outer;
  if (!runs_along(run, has_k_rows() ? k_strides : outer_strides)) return 1;
  const auto fits = [](const Dims& dims, const Strides& strides, bool has_run, int w) {
    for (std::size_t i = 0; i < strides.size(); ++i) {
      const bool is_run = has_run && i + 1 == strides.size();
      if (dims.extents[i] != 1 && (is_run ? dims.extents[i] : strides[i]) % w != 0) return false;
    }
    return true;
  };
  int w = std::max(1, std::min(alignment, 16) / size_bytes(dtype));
  const auto all_fit = [&] {
    return offset % w == 0 && fits(batch, batch_strides, false, w) && fits(outer, outer_strides, !has_k_rows(), w) &&
           fits(k, k_strides, has_k_rows(), w);
  };
  while (!all_fit()) w /= 2;
  return w;
}

std::string ContractOperand::pointer() const { return fmt::format("p{}", param); }

Prologue::Place ContractOperand::place(const std::string& batch_at, const std::string& outer_at,
                                       const std::string& k_at) const {
  if (has_k_rows()) return {.batch = batch_at, .outer = outer_at, .inner = k_at};
  return {.batch = batch_at, .outer = k_at, .inner = outer_at};
}

std::string ContractOperand::address(std::string_view batch_at, std::string_view outer_at,
                                     std::string_view k_at) const {
  const bool wide = is_wide(*this);
  std::string sum;
  for (const std::string& part : {cuda_offset(batch.extents, batch_strides, batch_at, wide),
                                  cuda_offset(outer.extents, outer_strides, outer_at, wide),
                                  cuda_offset(k.extents, k_strides, k_at, wide), std::to_string(offset)})
    if (part != "0") sum += (sum.empty() ? "" : " + ") + part;
  return sum.empty() ? "0" : sum;
}

bool runs_along(const Dims& dims, const Strides& strides) { return strides.back() == 1 && dims.extents.back() > 1; }

std::string cuda_offset(const Strides& extents, const Strides& strides, std::string_view at, bool is_wide) {
  std::string sum;
  std::int64_t inner = 1;
  for (std::size_t i = extents.size(); i-- > 0; inner *= extents[i]) {
    if (strides[i] == 0 || extents[i] == 1) continue;
    const bool is_outermost = std::all_of(extents.begin(), extents.begin() + static_cast<std::ptrdiff_t>(i),
                                          [](std::int64_t extent) { return extent == 1; });
    std::string digit = inner == 1 ? std::string(at) : fmt::format("{} / {}", at, inner);
    if (!is_outermost) digit += fmt::format(" % {}", extents[i]);
    sum += fmt::format("{}{} * {}{}", sum.empty() ? "" : " + ", digit, strides[i], is_wide ? "ll" : "");
  }
  return sum.empty() ? "0" : sum;
}

std::string cuda_converted(DType from, DType to, const std::string& text) {
  const std::string in[3] = {is_bool(from) ? fmt::format("({} != 0)", text) : text, "", ""};
  return from == to ? in[0] : cuda_expression(ir::ScalarOp::convert, from, to, in);
}

int cuda_multiprocessors(const Target& target) {
  switch (target.compute_capability()) {
    case 80: return 108;
    case 86:
    case 87: return 84;
    case 100:
    case 103: return 148;
    case 120:
    case 121: return 170;
    default: return 132;
  }
}

std::int64_t cuda_shared_bytes(const Target& target) {
  switch (target.compute_capability()) {
    case 80:
    case 87: return 163 << 10;
    case 90:
    case 100:
    case 103: return 227 << 10;
    default: return 99 << 10;
  }
}

}  // namespace sheaf::codegen
