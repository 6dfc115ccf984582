// Contractions as CUDA text: a block computes a tile of the result, its threads a few elements each, and both operands
// pass through shared memory a few terms at a time. Invariant: every element is one chain of multiply-adds in the order
// of k, as kir::Contract says, so the bits equal the CPU's.
#pragma once

#include <string>

#include "codegen/cuda/emit.h"

namespace sheaf::codegen {

/// The function `symbol_0`, appended to `functions`, and how it is launched.
CudaLaunch emit_cuda_contract(const kir::Contract& contract, const std::string& symbol, std::string& functions);

}  // namespace sheaf::codegen
