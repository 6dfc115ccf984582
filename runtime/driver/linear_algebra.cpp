// dlopen, the version, the entry points. Their functions keep their form from version to version, so a name is enough.
#include "runtime/driver/linear_algebra.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "runtime/driver/library.h"

namespace sheaf::runtime {

using namespace linear_algebra;

namespace {

/// The newest first; a library brings its own helpers from beside it.
std::vector<std::string> usual(const std::string& name, std::initializer_list<int> versions) {
  std::vector<std::string> all;
  for (const char* folder : {"", "/usr/local/cuda/lib64/"})
    for (const int version : versions) all.push_back(fmt::format("{}lib{}.so.{}", folder, name, version));
  return all;
}

template <class Function>
void find(void* library, Function& function, const char* name, std::vector<const char*>& missing) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (!function) missing.push_back(name);
}

#define SHEAF_FIND(name, parameters) find(library, table.name, #name, missing);
auto fill(void* library, CublasLtEntryPoints& table, std::vector<const char*>& missing) {
  SHEAF_CUBLASLT_ENTRY_POINTS(SHEAF_FIND)
  return table.cublasLtGetProperty;
}
auto fill(void* library, CublasEntryPoints& table, std::vector<const char*>& missing) {
  SHEAF_CUBLAS_ENTRY_POINTS(SHEAF_FIND)
  return table.cublasGetProperty;
}
auto fill(void* library, CusolverEntryPoints& table, std::vector<const char*>& missing) {
  SHEAF_CUSOLVER_ENTRY_POINTS(SHEAF_FIND)
  return table.cusolverGetProperty;
}
#undef SHEAF_FIND

}  // namespace

template <>
const LibraryPlace& CublasLt::place() {
  static const auto& place = *new LibraryPlace{"cuBLASLt", "SHEAF_LIBCUBLASLT", usual("cublasLt", {13, 12}), 12};
  return place;
}
template <>
const LibraryPlace& Cublas::place() {
  static const auto& place = *new LibraryPlace{"cuBLAS", "SHEAF_LIBCUBLAS", usual("cublas", {13, 12}), 12};
  return place;
}
template <>
const LibraryPlace& Cusolver::place() {
  static const auto& place = *new LibraryPlace{"cuSOLVER", "SHEAF_LIBCUSOLVER", usual("cusolver", {12, 11}), 11};
  return place;
}

template <class EntryPoints>
absl::StatusOr<const NvidiaLibrary<EntryPoints>*> NvidiaLibrary<EntryPoints>::load() {
  static const auto& opened = *new absl::StatusOr<NvidiaLibrary>(open(library_paths(place().variable, place().usual)));
  if (!opened.ok()) return opened.status();
  return &*opened;
}

template <class EntryPoints>
absl::StatusOr<NvidiaLibrary<EntryPoints>> NvidiaLibrary<EntryPoints>::open(const std::vector<std::string>& paths) {
  const LibraryPlace& what = place();
  const absl::StatusOr<OpenLibrary> library = open_library(what.title, paths);
  if (!library.ok())
    return absl::UnavailableError(fmt::format("{}\nSheaf uses {} {} or newer; {} names one that lies elsewhere",
                                              std::string(library.status().message()), what.title, what.min_major,
                                              what.variable));
  NvidiaLibrary opened;
  opened.path_ = library->path;
  std::vector<const char*> missing;
  const auto get_property = fill(library->handle, opened, missing);
  int version[3] = {};
  for (const auto part : {MAJOR_VERSION, MINOR_VERSION, PATCH_LEVEL})
    if (!get_property || static_cast<int>(get_property(part, &version[part])) != 0)
      return absl::UnavailableError(fmt::format("{} is no {}: it does not tell its version", opened.path_, what.title));
  opened.version_ = fmt::format("{}", fmt::join(version, "."));
  if (version[0] < what.min_major)
    return absl::FailedPreconditionError(fmt::format("{} is {} {}, and Sheaf needs {} or newer", opened.path_,
                                                     what.title, opened.version_, what.min_major));
  if (!missing.empty())
    return absl::UnavailableError(
        fmt::format("{}, {} {}, lacks {}", opened.path_, what.title, opened.version_, fmt::join(missing, ", ")));
  return opened;
}

template class NvidiaLibrary<CublasLtEntryPoints>;
template class NvidiaLibrary<CublasEntryPoints>;
template class NvidiaLibrary<CusolverEntryPoints>;

namespace {

const char* name_of(cublasStatus_t status) {
  switch (status) {
#define SHEAF_NAME(name) \
  case name: return #name;
    SHEAF_NAME(CUBLAS_STATUS_SUCCESS)
    SHEAF_NAME(CUBLAS_STATUS_NOT_INITIALIZED)
    SHEAF_NAME(CUBLAS_STATUS_ALLOC_FAILED)
    SHEAF_NAME(CUBLAS_STATUS_INVALID_VALUE)
    SHEAF_NAME(CUBLAS_STATUS_ARCH_MISMATCH)
    SHEAF_NAME(CUBLAS_STATUS_MAPPING_ERROR)
    SHEAF_NAME(CUBLAS_STATUS_EXECUTION_FAILED)
    SHEAF_NAME(CUBLAS_STATUS_INTERNAL_ERROR)
    SHEAF_NAME(CUBLAS_STATUS_NOT_SUPPORTED)
#undef SHEAF_NAME
  }
  return "an error of cuBLAS";
}

}  // namespace

absl::Status library_status(cublasStatus_t result, std::string_view call) {
  if (result == CUBLAS_STATUS_SUCCESS) return absl::OkStatus();
  const std::string message = fmt::format("{}: {} ({})", call, name_of(result), static_cast<int>(result));
  return result == CUBLAS_STATUS_ALLOC_FAILED ? absl::ResourceExhaustedError(message) : absl::InternalError(message);
}

absl::Status library_status(cusolverStatus_t result, std::string_view call) {
  if (result == CUSOLVER_STATUS_SUCCESS) return absl::OkStatus();
  const std::string message = fmt::format("{}: an error of cuSOLVER ({})", call, static_cast<int>(result));
  return static_cast<int>(result) == 2 ? absl::ResourceExhaustedError(message) : absl::InternalError(message);
}

}  // namespace sheaf::runtime
