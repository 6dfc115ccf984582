// KIR as CUDA C++. A unit is a block: its threads run every statement together, share out the iterations of vector
// loops, and meet at barriers where one reads what another wrote. The text is whole: it needs no header and no library.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "codegen/kir/kir.h"

namespace sheaf::codegen {

struct CudaLaunch {
  std::string entry;  // extern "C" __global__ void entry(params...)
  std::int64_t blocks = 1;
  int threads = 1;
  std::int64_t shared_bytes = 0;
};

struct CudaText {
  std::string text;  // the prelude's pieces in use, then one function per phase
  std::vector<CudaLaunch> launches;
};

/// Functions `symbol_0`, `symbol_1`, ... Unimplemented for contractions and for phases whose scratch exceeds what a
/// block can share; such a group is cut differently for a GPU.
absl::StatusOr<CudaText> emit_cuda(const kir::Kernel& kernel, const std::string& symbol);

}  // namespace sheaf::codegen
