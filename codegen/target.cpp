// The two kinds of target by name and by key.
#include "codegen/target.h"

#include "codegen/compiler.h"
#include "codegen/cpu_target.h"

namespace sheaf::codegen {

std::string Target::key() const {
  if (is_gpu()) return "cuda " + gpu;
  return std::string(compiler_id()) + "\n" + host_cpu_target().key();
}

std::string to_string(const Target& target) { return target.is_gpu() ? target.gpu : "cpu"; }

}  // namespace sheaf::codegen
