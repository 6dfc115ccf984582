// NVIDIA's driver, opened when first asked for: a table of its entry points, and its errors as absl::Status. Nothing
// here ends the process, throws or unloads the library; where there is no usable driver, the status says what to do.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/driver/cuda_abi.h"

namespace sheaf::runtime {

/// The entry points, called by their own names: cuda->cuMemAlloc(&pointer, bytes). Those of
/// SHEAF_CUDA_OPTIONAL_ENTRY_POINTS may be null.
class Cuda : public cuda::EntryPoints {
 public:
  /// The oldest driver that will do.
  static constexpr int kMinVersion = 12000;

  /// The driver that SHEAF_LIBCUDA names, else the first of the usual names and places; initialised, and with at least
  /// one device. Opened once: what it says the first time it says for good.
  static absl::StatusOr<const Cuda*> load();
  /// The same from these places, for this call.
  static absl::StatusOr<Cuda> open(const std::vector<std::string>& paths);

  const std::string& path() const { return path_; }
  int version() const { return version_; }  // 12040 is CUDA 12.4
  int num_devices() const { return num_devices_; }

  /// What `call` came to: "cuMemAlloc of 4096 bytes: CUDA_ERROR_OUT_OF_MEMORY (2): out of memory", as
  /// ResourceExhausted; every other error is Internal.
  absl::Status status(cuda::CUresult result, std::string_view call) const;

 private:
  absl::Status resolve(void* library);
  absl::Status start();

  std::string path_;
  int version_ = 0, num_devices_ = 0;
};

/// "12.4" for 12040.
std::string cuda_version_text(int version);

}  // namespace sheaf::runtime
