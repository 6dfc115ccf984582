// The machine code of kernels as the disk cache would hold it, to be put into a file of another kind.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/kernel.h"

namespace sheaf::runtime {

struct KernelFile {
  std::string kind, key, bytes;
};

/// Of these, which are compiled; each once. Where nothing holds an object any more it is compiled again.
absl::StatusOr<std::vector<KernelFile>> kernel_files(std::span<const KernelPtr> kernels);

}  // namespace sheaf::runtime
