// dlopen, with every refusal kept.
#include "runtime/driver/library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>

namespace sheaf::runtime {

std::vector<std::string> library_paths(const char* variable, std::vector<std::string> usual) {
  if (const char* path = std::getenv(variable); path && *path) return {path};
  return usual;
}

absl::StatusOr<OpenLibrary> open_library(const std::string& what, const std::vector<std::string>& paths) {
  std::string tried;
  for (const std::string& path : paths) {
    if (void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) return OpenLibrary{handle, path};
    tried += fmt::format("\n  {}", dlerror());
  }
  return absl::UnavailableError(fmt::format("no {}; tried:{}", what, tried));
}

}  // namespace sheaf::runtime
