// The border between the library and its LLVM plug-in: one exported function that returns a table of two entries.
// Nothing throws across it; errors travel as text.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "codegen/compiler.h"

namespace sheaf::codegen {

struct LlvmPlugin {
  const char* compiler_id;  // must equal the library's: both sides then agree on every type that crosses

  // Both return what went wrong, or an empty string.
  std::string (*compile)(std::span<const CompileUnit> units, const CpuTarget& target, std::vector<std::byte>& object);
  std::string (*list)(std::span<const CompileUnit> units, const CpuTarget& target, Listing listing, std::string& text);
};

}  // namespace sheaf::codegen

extern "C" const sheaf::codegen::LlvmPlugin* sheaf_llvm_plugin();
