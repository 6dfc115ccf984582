// NCCL, opened when first asked for: a table of its entry points, and its errors as absl::Status.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/driver/nccl_abi.h"

namespace sheaf::runtime {

/// The entry points, called by their own names: nccl->ncclGroupStart().
class Nccl : public nccl::EntryPoints {
 public:
  /// The oldest that will do: it splits communicators.
  static constexpr int kMinVersion = 21801;

  /// The library that SHEAF_LIBNCCL names, else the first of the usual names and places. Opened once: what it says the
  /// first time it says for good.
  static absl::StatusOr<const Nccl*> load();
  /// The same from these places, for this call.
  static absl::StatusOr<Nccl> open(const std::vector<std::string>& paths);

  const std::string& path() const { return path_; }
  int version() const { return version_; }  // 22809 is NCCL 2.28.9

  /// What `call` came to, with what NCCL last said of `comm` (or of the thread): "ncclAllReduce: invalid usage (5):
  /// ...", as Internal.
  absl::Status status(nccl::ncclResult_t result, std::string_view call, nccl::ncclComm_t comm = nullptr) const;

 private:
  std::string path_;
  int version_ = 0;
};

/// "2.28.9" for 22809.
std::string nccl_version_text(int version);

}  // namespace sheaf::runtime
