// The system says why in errno, which streams leave as it was.
#include "trace/text_file.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <fstream>

namespace sheaf {

std::string why_not_written(const std::string& path, std::string_view text) {
  errno = 0;
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text;
  file.close();
  return file ? "" : fmt::format("{} cannot be written: {}", path, std::strerror(errno ? errno : EIO));
}

}  // namespace sheaf
