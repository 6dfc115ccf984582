// Contractions as CUDA text, by what the target has for their dtypes: halves on tensor cores (codegen/cuda/mma.h),
// where the order of a sum is the hardware's; everything else in plain arithmetic (codegen/cuda/simt.h), to the CPU's
// bits. What both are made of is here: how operands lie, and how positions become addresses.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "codegen/cuda/emit.h"
#include "codegen/cuda/prologue.h"

namespace sheaf::codegen {

/// Functions `symbol_0`, ... of a kernel that is a contraction, and how they are launched.
void emit_cuda_contract(const kir::Kernel& kernel, const std::string& symbol, const Target& target, CudaText& out);

/// One operand on its way into shared memory: `outer` are the rows or columns of the result, the other dim of its
/// matrices is k.
struct ContractOperand {
  DType dtype = DType::f32;
  int param = 0;  // of the kernel
  kir::Contract::Dims batch = {}, outer = {}, k = {};
  std::vector<std::int64_t> batch_strides = {}, outer_strides = {}, k_strides = {};
  std::int64_t offset = 0;
  int alignment = 16;  // of its buffer, in bytes
  std::optional<Prologue> prologue = std::nullopt;  // of what does not lie in memory

  /// Of `contract`, which is the kernel's, perhaps with the operands exchanged.
  static ContractOperand lhs(const kir::Kernel& kernel, const kir::Contract& contract, bool is_swapped);
  static ContractOperand rhs(const kir::Kernel& kernel, const kir::Contract& contract, bool is_swapped);

  /// Neighbours in memory are neighbours in k; else in the outer dims.
  bool has_k_rows() const;
  /// How many neighbours, a power of two and of at most 16 bytes, lie together wherever such a piece begins: the
  /// addresses of all pieces are multiples of it.
  int width() const;
  std::string pointer() const;
  Prologue::Place place(const std::string& batch_at, const std::string& outer_at, const std::string& k_at) const;
  std::string address(std::string_view batch_at, std::string_view outer_at, std::string_view k_at) const;
};

/// True if neighbours along the dims are neighbours in memory.
bool runs_along(const kir::Contract::Dims& dims, const std::vector<std::int64_t>& strides);

/// The offset of position `at` (row-major over `extents`), an expression of 32 bits or, where `is_wide`, of 64.
///   extents [4, 8], strides [1, 4]: at / 8 * 1 + at % 8 * 4
std::string cuda_offset(const std::vector<std::int64_t>& extents, const std::vector<std::int64_t>& strides,
                        std::string_view at, bool is_wide);

/// `text`, of dtype `from`, as a `to`.
std::string cuda_converted(DType from, DType to, const std::string& text);

/// Of the largest GPU of that architecture.
int cuda_multiprocessors(const Target& target);
/// Of a block.
std::int64_t cuda_shared_bytes(const Target& target);

}  // namespace sheaf::codegen
