// Turns kernel text into a shared object of this machine, with the compiler that built the tests. Objects are kept by
// what they are made of, so a text is compiled once per machine, by whichever process needs it first.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace sheaf::emulator {

/// Where the object of `text` lies. InvalidArgument with the compiler's words if it refuses the text.
absl::StatusOr<std::string> compile_for_host(std::string_view text);

/// Whether the compiler takes `text`, without making code. The error as for compile_for_host.
absl::Status check_text(std::string_view text);

/// The line of the kernel text that the instruction before `site`, an offset in `object`, came from; 0 if unknown.
int line_of(const std::string& object, std::uintptr_t site);

}  // namespace sheaf::emulator
