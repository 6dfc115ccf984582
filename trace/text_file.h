// Whole files, with the system's reason where they cannot be read or written.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace sheaf {

/// All bytes of the file. NotFound with the reason where it cannot be read: "No such file or directory".
absl::StatusOr<std::string> contents_of(const std::string& path);

/// Puts a file with this text in the place of what is at the path. Empty, or why it could not: "/nowhere/p.json cannot
/// be written: No such file or directory".
[[nodiscard]] std::string why_not_written(const std::string& path, std::string_view text);

}  // namespace sheaf
