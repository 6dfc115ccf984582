// What the fake NVRTC makes and the fake driver loads: the header of a machine code file, and behind it the kernel
// text. The header alone is what the real driver would look at first, so the product takes it for what it always gets.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace sheaf::emulator {

struct Image {
  std::string text;
  std::string architecture;  // "sm_90a"
};

std::string write_image(const Image& image);

/// InvalidArgument for what is no image at all, FailedPrecondition for machine code without its text.
absl::StatusOr<Image> read_image(const void* bytes);

}  // namespace sheaf::emulator
