// Attention on tensor cores (Dao, arXiv:2307.08691): a block keeps a tile of queries, walks over tiles of the keys they
// meet, and never holds more scores than one tile has. Backward is two such walks, so that every sum has one owner and
// one order: over keys for the queries' gradient, over queries for those of keys and values. Scores and weights are
// f32, rounded to the operands' dtype where they are multiplied.
#pragma once

#include <string>

#include "codegen/cuda/emit.h"

namespace sheaf::codegen {

/// Functions `symbol_0`, ... of the kernel's attention, and how they are launched.
void emit_cuda_attention(const kir::Kernel& kernel, const std::string& symbol, CudaText& out);

}  // namespace sheaf::codegen
