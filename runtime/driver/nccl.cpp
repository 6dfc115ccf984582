// dlopen, the entry points, the version: NCCL's functions keep their form from version to version, so a name is enough.
#include "runtime/driver/nccl.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "runtime/driver/library.h"

namespace sheaf::runtime {

using namespace nccl;

std::string nccl_version_text(int version) {
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

absl::StatusOr<const Nccl*> Nccl::load() {
  static const auto& opened = *new absl::StatusOr<Nccl>(
      open(library_paths("SHEAF_LIBNCCL", {"libnccl.so.2", "/usr/local/cuda/lib64/libnccl.so.2"})));
  if (!opened.ok()) return opened.status();
  return &*opened;
}

absl::StatusOr<Nccl> Nccl::open(const std::vector<std::string>& paths) {
  const absl::StatusOr<OpenLibrary> library = open_library("NCCL", paths);
  if (!library.ok())
    return absl::UnavailableError(
        fmt::format("{}\nSheaf uses NCCL {} or newer between GPUs; SHEAF_LIBNCCL names one that lies elsewhere",
                    std::string(library.status().message()), nccl_version_text(kMinVersion)));
  Nccl opened;
  opened.path_ = library->path;
  std::vector<const char*> missing;
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library->handle, name));
    if (!function) missing.push_back(name);
  };
#define SHEAF_FIND(name, parameters) find(opened.name, #name);
  SHEAF_NCCL_ENTRY_POINTS(SHEAF_FIND)
#undef SHEAF_FIND
  find(opened.ncclGetErrorString, "ncclGetErrorString");
  find(opened.ncclGetLastError, "ncclGetLastError");
  if (!opened.ncclGetVersion || opened.ncclGetVersion(&opened.version_) != ncclSuccess)
    return absl::UnavailableError(fmt::format("{} is no NCCL: it does not tell its version", opened.path_));
  if (opened.version_ < kMinVersion)
    return absl::FailedPreconditionError(fmt::format("{} is NCCL {}, and Sheaf needs {} or newer", opened.path_,
                                                     nccl_version_text(opened.version_),
                                                     nccl_version_text(kMinVersion)));
  if (!missing.empty())
    return absl::UnavailableError(fmt::format("{}, NCCL {}, lacks {}", opened.path_, nccl_version_text(opened.version_),
                                              fmt::join(missing, ", ")));
  return opened;
}

absl::Status Nccl::status(ncclResult_t result, std::string_view call, ncclComm_t comm) const {
  if (result == ncclSuccess) return absl::OkStatus();
  const char *text = ncclGetErrorString(result), *last = ncclGetLastError(comm);
  const bool says_more = last && *last;
  return absl::InternalError(fmt::format("{}: {} ({}){}{}", call, text ? text : "an error that NCCL does not name",
                                         static_cast<unsigned>(result), says_more ? ": " : "", says_more ? last : ""));
}

}  // namespace sheaf::runtime
