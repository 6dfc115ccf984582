// KIR as CUDA C++. A unit is a block: its threads run every statement together, share out the iterations of vector
// loops, and meet at barriers where one reads what another wrote. A program is whole: it needs no header and no
// library.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "codegen/kir/kir.h"
#include "codegen/program.h"
#include "codegen/target.h"

namespace sheaf::codegen {

struct CudaLaunch {
  std::string entry;  // extern "C" __global__ void entry(params...)
  std::int64_t blocks = 1;
  int threads = 1;
  std::int64_t shared_bytes = 0;  // declared by the function itself
  std::int64_t dynamic_shared_bytes = 0;  // asked for at the launch
  std::vector<TensorMap> maps = {};  // parameters after all others
  std::vector<PointerRun> parameters = {};  // of the buffers; empty: each by itself
};

struct CudaText {
  std::string functions;  // one per launch
  std::vector<CudaLaunch> launches;
  /// Of a buffer that every function takes after the kernel's parameters, for what its blocks cannot share; 0: none.
  std::int64_t scratch_bytes = 0;
  /// Of a buffer after that, which the first launches fill with the addresses of all others; 0: none.
  std::int64_t table_bytes = 0;
};

/// Functions `symbol_0`, `symbol_1`, ..., in the order of their launches. Without a target they use what every GPU has.
CudaText emit_cuda(const kir::Kernel& kernel, const std::string& symbol, const Target& target = {});

/// What the compiler is given: the pieces of the prelude that the functions use, and the functions.
std::string cuda_program(std::string_view functions);

}  // namespace sheaf::codegen
