// The system says why in errno, which streams leave as it was.
#include "trace/text_file.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

namespace sheaf {

absl::StatusOr<std::string> contents_of(const std::string& path) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (file) text << file.rdbuf();  // fails for an empty file too, without a reason
  if (!file || text.bad() || (text.fail() && errno != 0))
    return absl::NotFoundError(std::strerror(errno ? errno : EIO));
  return std::move(text).str();
}

std::string why_not_written(const std::string& path, std::string_view text) {
  errno = 0;
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text;
  file.close();
  return file ? "" : fmt::format("{} cannot be written: {}", path, std::strerror(errno ? errno : EIO));
}

}  // namespace sheaf
