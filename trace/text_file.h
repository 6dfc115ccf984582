// Files that are written for people and their tools.
#pragma once

#include <string>
#include <string_view>

namespace sheaf {

/// Puts a file with this text in the place of what is at the path. Empty, or why it could not: "/nowhere/p.json cannot
/// be written: No such file or directory".
[[nodiscard]] std::string why_not_written(const std::string& path, std::string_view text);

}  // namespace sheaf
