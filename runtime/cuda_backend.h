// NVIDIA GPUs as devices: memory of the driver's, kernels as modules of machine code, streams of their own.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/backend.h"

namespace sheaf::runtime {

/// One per GPU. The driver is opened by this; Unavailable says where it was looked for.
absl::StatusOr<std::vector<std::unique_ptr<Backend>>> cuda_backends();

}  // namespace sheaf::runtime
