// The two kinds of target by key.
#include "codegen/target.h"

#include "codegen/compiler.h"
#include "codegen/cpu_target.h"

namespace sheaf::codegen {

std::string key_of(const Target& target) {
  if (target.is_gpu()) return "cuda " + target.gpu;
  return std::string(compiler_id()) + "\n" + host_cpu_target().key();
}

}  // namespace sheaf::codegen
