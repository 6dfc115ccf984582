// What a value is along an axis of a mesh, inside a function that each device runs on its part.
#pragma once

#include <cstdint>

namespace sheaf {

enum class Along : std::uint8_t {
  invarying,  // the same on all devices, and so is its cotangent
  varying,    // each device has its own
  unreduced,  // the sum of what the devices hold
  reduced,    // the same on all, with a cotangent that is unreduced
};

}  // namespace sheaf
