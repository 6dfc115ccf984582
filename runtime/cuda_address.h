// Pointers to a GPU's memory are std::byte* everywhere but in calls of the driver.
#pragma once

#include <bit>
#include <cstddef>

#include "runtime/driver/cuda_abi.h"

namespace sheaf::runtime {

inline cuda::CUdeviceptr cuda_address(const std::byte* p) { return std::bit_cast<cuda::CUdeviceptr>(p); }

}  // namespace sheaf::runtime
