// NVIDIA's libraries of linear algebra, each opened when first asked for: a table of its entry points, and its errors
// as absl::Status. Nothing needs them: where one is missing, kernels of our own or the host do its work.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/driver/linear_algebra_abi.h"

namespace sheaf::runtime {

/// Which library, and where it is looked for.
struct LibraryPlace {
  const char* title;     // "cuBLASLt"
  const char* variable;  // names one that lies elsewhere
  std::vector<std::string> usual;
  int min_major;
};

/// The entry points, called by their own names: library->cublasLtCreate(&handle).
template <class EntryPoints>
class NvidiaLibrary : public EntryPoints {
 public:
  static const LibraryPlace& place();
  /// The library that the variable names, else the first of the usual names and places. Opened once: what it says the
  /// first time it says for good.
  static absl::StatusOr<const NvidiaLibrary*> load();
  /// The same from these places, for this call.
  static absl::StatusOr<NvidiaLibrary> open(const std::vector<std::string>& paths);

  const std::string& path() const { return path_; }
  const std::string& version() const { return version_; }  // "13.10.0"

 private:
  std::string path_, version_;
};

using CublasLt = NvidiaLibrary<linear_algebra::CublasLtEntryPoints>;
using Cublas = NvidiaLibrary<linear_algebra::CublasEntryPoints>;
using Cusolver = NvidiaLibrary<linear_algebra::CusolverEntryPoints>;
template <>
const LibraryPlace& CublasLt::place();
template <>
const LibraryPlace& Cublas::place();
template <>
const LibraryPlace& Cusolver::place();
extern template class NvidiaLibrary<linear_algebra::CublasLtEntryPoints>;
extern template class NvidiaLibrary<linear_algebra::CublasEntryPoints>;
extern template class NvidiaLibrary<linear_algebra::CusolverEntryPoints>;

/// What `call` came to: "cublasLtMatmul: CUBLAS_STATUS_NOT_SUPPORTED (15)". One that found no memory is
/// ResourceExhausted, every other error Internal.
absl::Status library_status(linear_algebra::cublasStatus_t result, std::string_view call);
absl::Status library_status(linear_algebra::cusolverStatus_t result, std::string_view call);

}  // namespace sheaf::runtime
