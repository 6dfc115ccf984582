// Finds and opens the LLVM plug-in once, and forwards to it. Invariant: a plug-in built from other sources is refused,
// because structs cross the border.
#include "codegen/compiler.h"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>

#include "codegen/llvm/plugin.h"
#include "fmt/format.h"

namespace sheaf::codegen {
namespace {

#ifdef SHEAF_LINK_LLVM

absl::StatusOr<const LlvmPlugin*> open_plugin() { return sheaf_llvm_plugin(); }

#else

// On the run path; else beside the library or program this code is in, as in a build tree; else in the lib folder next
// to it, as installed.
std::vector<std::filesystem::path> plugin_places() {
  if (const char* given = std::getenv("SHEAF_LLVM_PLUGIN"); given && *given) return {given};
  std::vector<std::filesystem::path> folders;
  Dl_info self;
  if (dladdr(reinterpret_cast<void*>(&plugin_places), &self) && self.dli_fname) {
    folders.push_back(std::filesystem::path(self.dli_fname).parent_path());
  }
  std::error_code error;  // dladdr names a program as it was called, which may be relative to a folder since left
  if (auto program = std::filesystem::read_symlink("/proc/self/exe", error); !error) {
    folders.push_back(program.parent_path());
  }
  std::vector<std::filesystem::path> places = {"libsheaf_llvm.so"};
  for (const auto& folder : folders) {
    for (const char* below : {"", "sheaf", "../lib", "../lib/sheaf"}) {
      places.push_back(folder / below / "libsheaf_llvm.so");
    }
  }
  return places;
}

absl::StatusOr<const LlvmPlugin*> open_plugin() {
  std::string tried;
  for (const auto& place : plugin_places()) {
    void* library = dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!library) {
      tried += fmt::format("\n  {}", dlerror());
      continue;
    }
    auto entry = reinterpret_cast<decltype(&sheaf_llvm_plugin)>(dlsym(library, "sheaf_llvm_plugin"));
    if (!entry) return absl::FailedPreconditionError(fmt::format("{} is not Sheaf's LLVM plug-in", place.string()));
    const LlvmPlugin* plugin = entry();
    if (compiler_id() != plugin->compiler_id) {
      return absl::FailedPreconditionError(fmt::format("{} was built for another version of Sheaf: {}, expected {}",
                                                       place.string(), plugin->compiler_id, compiler_id()));
    }
    return plugin;  // stays open for the life of the process
  }
  return absl::UnavailableError("cannot open the LLVM plug-in that compiles CPU kernels; tried" + tried);
}

#endif

const absl::StatusOr<const LlvmPlugin*>& plugin() {
  static const absl::StatusOr<const LlvmPlugin*> opened = open_plugin();
  return opened;
}

}  // namespace

absl::Status open_compiler() { return plugin().status(); }

std::string phase_symbol(std::string_view symbol, int phase) { return fmt::format("{}_p{}", symbol, phase); }

absl::StatusOr<std::vector<std::byte>> compile_cpu(std::span<const CompileUnit> units, const CpuTarget& target) {
  if (!plugin().ok()) return plugin().status();
  std::vector<std::byte> object;
  const std::string error = (*plugin())->compile(units, target, object);
  if (!error.empty()) return absl::InternalError(error);
  return object;
}

absl::StatusOr<std::string> list_cpu(std::span<const CompileUnit> units, const CpuTarget& target, Listing listing) {
  if (!plugin().ok()) return plugin().status();
  std::string text;
  const std::string error = (*plugin())->list(units, target, listing, text);
  if (!error.empty()) return absl::InternalError(error);
  return text;
}

std::string_view compiler_id() { return SHEAF_COMPILER_ID; }

}  // namespace sheaf::codegen
