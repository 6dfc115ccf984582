// dlopen, the version, the entry points, cuInit, the devices: in this order, since a driver that is too old lacks entry
// points, and says so only by its version.
#include "runtime/driver/cuda.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>

#include "runtime/driver/library.h"

namespace sheaf::runtime {
namespace {

using namespace cuda;

void* find(void* library, GetProcAddress get, const char* name, const char* symbol, int version) {
  void* function = nullptr;
  CUdriverProcAddressQueryResult found = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  if (get && get(name, &function, version, 0, &found) == CUDA_SUCCESS && function) return function;
  return dlsym(library, symbol);
}

// What a user may have set, and forgotten.
std::string visible_devices() {
  const char* set = std::getenv("CUDA_VISIBLE_DEVICES");
  return set ? fmt::format("; CUDA_VISIBLE_DEVICES is \"{}\"", set) : "";
}

}  // namespace

std::string cuda_version_text(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

absl::StatusOr<const Cuda*> Cuda::load() {
  // Behind the usual name, places that the system's search may not know: those of WSL, and of containers that get the
  // driver from their host. Never destroyed, since threads may still call it while the process ends.
  static const auto& opened = *new absl::StatusOr<Cuda>(open(
      library_paths("SHEAF_LIBCUDA", {"libcuda.so.1", "/usr/lib/wsl/lib/libcuda.so.1",
                                      "/usr/local/nvidia/lib64/libcuda.so.1", "/usr/local/cuda/compat/libcuda.so.1"})));
  if (!opened.ok()) return opened.status();
  return &*opened;
}

absl::StatusOr<Cuda> Cuda::open(const std::vector<std::string>& paths) {
  const absl::StatusOr<OpenLibrary> library = open_library("CUDA driver", paths);
  if (!library.ok())
    return absl::UnavailableError(
        fmt::format("{}\nSheaf uses NVIDIA's driver for CUDA {} or newer; SHEAF_LIBCUDA names one that lies elsewhere",
                    std::string(library.status().message()), cuda_version_text(kMinVersion)));
  Cuda opened;
  opened.path_ = library->path;
  if (absl::Status s = opened.resolve(library->handle); !s.ok()) return s;
  if (absl::Status s = opened.start(); !s.ok()) return s;
  return opened;
}

absl::Status Cuda::resolve(void* library) {
  const auto get_version = reinterpret_cast<decltype(cuDriverGetVersion)>(dlsym(library, "cuDriverGetVersion"));
  if (!get_version || get_version(&version_) != CUDA_SUCCESS)
    return absl::UnavailableError(fmt::format("{} is no CUDA driver: it does not tell its version", path_));
  if (version_ < kMinVersion)
    return absl::FailedPreconditionError(fmt::format(
        "the CUDA driver {} is for CUDA {}, and Sheaf needs one for CUDA {} or newer: update NVIDIA's driver", path_,
        cuda_version_text(version_), cuda_version_text(kMinVersion)));
  const auto get = reinterpret_cast<GetProcAddress>(dlsym(library, "cuGetProcAddress_v2"));
  std::vector<const char*> missing;
#define SHEAF_FIND(name, suffix, version, parameters) \
  name = reinterpret_cast<decltype(name)>(find(library, get, #name, #name #suffix, version));
#define SHEAF_REQUIRE(name, suffix, version, parameters) \
  SHEAF_FIND(name, suffix, version, parameters)          \
  if (!name) missing.push_back(#name);
  SHEAF_CUDA_ENTRY_POINTS(SHEAF_REQUIRE)
  SHEAF_CUDA_OPTIONAL_ENTRY_POINTS(SHEAF_FIND)
#undef SHEAF_REQUIRE
#undef SHEAF_FIND
  if (missing.empty()) return absl::OkStatus();
  const std::size_t named = std::min<std::size_t>(missing.size(), 3);
  const char* more = missing.size() > named ? " and others" : "";
  return absl::UnavailableError(fmt::format("the CUDA driver {}, for CUDA {}, lacks {}{}", path_,
                                            cuda_version_text(version_),
                                            fmt::join(missing.begin(), missing.begin() + named, ", "), more));
}

absl::Status Cuda::start() {
  const std::string who = fmt::format("the CUDA driver {}, for CUDA {}", path_, cuda_version_text(version_));
  const CUresult started = cuInit(0);
  if (started != CUDA_SUCCESS && started != CUDA_ERROR_NO_DEVICE)
    return absl::UnavailableError(
        fmt::format("{}, does not start: {}", who, std::string(status(started, "cuInit").message())));
  if (started == CUDA_SUCCESS)
    if (absl::Status s = status(cuDeviceGetCount(&num_devices_), "cuDeviceGetCount"); !s.ok()) return s;
  if (num_devices_ > 0) return absl::OkStatus();
  return absl::UnavailableError(fmt::format("{}, finds no device{}", who, visible_devices()));
}

absl::Status Cuda::status(CUresult result, std::string_view call) const {
  if (result == CUDA_SUCCESS) return absl::OkStatus();
  const char *name = nullptr, *text = nullptr;
  if (cuGetErrorName(result, &name) != CUDA_SUCCESS || !name) name = "an error that this driver does not name";
  if (cuGetErrorString(result, &text) != CUDA_SUCCESS) text = nullptr;
  const std::string message =
      fmt::format("{}: {} ({}){}{}", call, name, static_cast<unsigned>(result), text ? ": " : "", text ? text : "");
  return result == CUDA_ERROR_OUT_OF_MEMORY ? absl::ResourceExhaustedError(message) : absl::InternalError(message);
}

}  // namespace sheaf::runtime
