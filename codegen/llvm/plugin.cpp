// The plug-in's only export. Everything below it may throw; here that ends.
#include "codegen/llvm/plugin.h"

#include <exception>

#include "codegen/llvm/module.h"

namespace sheaf::codegen {
namespace {

template <typename F>
std::string error_of(F&& work) {
  try {
    work();
    return {};
  } catch (const std::exception& error) { return error.what(); }
}

std::string compile(std::span<const CompileUnit> units, const CpuTarget& target, std::vector<std::byte>& object) {
  return error_of([&] { object = KernelModule(units, target).object(); });
}

std::string list(std::span<const CompileUnit> units, const CpuTarget& target, Listing listing, std::string& text) {
  return error_of([&] {
    KernelModule module(units, target);
    text = listing == Listing::llvm_ir ? module.llvm_ir() : module.assembly();
  });
}

}  // namespace
}  // namespace sheaf::codegen

extern "C" __attribute__((visibility("default"))) const sheaf::codegen::LlvmPlugin* sheaf_llvm_plugin() {
  static constexpr sheaf::codegen::LlvmPlugin kPlugin = {
      .compiler_id = SHEAF_COMPILER_ID, .compile = sheaf::codegen::compile, .list = sheaf::codegen::list};
  return &kPlugin;
}
