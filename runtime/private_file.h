// Files that no other user could have written, and that are there whole or not at all. A file is checked after it was
// opened, so that it cannot be another one when it is read.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace sheaf::runtime {

class PrivateFile;
using PrivateFilePtr = std::shared_ptr<const PrivateFile>;

/// A regular file that is open for reading.
class PrivateFile {
 public:
  /// NotFound if there is nothing, PermissionDenied with the reason if another user could have written what is there.
  static absl::StatusOr<PrivateFilePtr> open(const std::string& path);
  ~PrivateFile();
  PrivateFile(const PrivateFile&) = delete;
  PrivateFile& operator=(const PrivateFile&) = delete;

  std::int64_t bytes() const { return bytes_; }
  /// When it was written or touched, in nanoseconds since 1970.
  std::int64_t time_ns() const { return time_ns_; }
  void touch() const;
  /// So many bytes from there on; none where the file has not got them, or the disk does not give them.
  std::optional<std::string> read(std::int64_t offset, std::int64_t bytes) const;

 private:
  PrivateFile(int fd, std::int64_t bytes, std::int64_t time_ns) : fd_(fd), bytes_(bytes), time_ns_(time_ns) {}
  const int fd_;
  const std::int64_t bytes_, time_ns_;
};

/// Of a folder: NotFound if there is none, PermissionDenied with the reason if another user can put files into it.
absl::Status check_private_folder(const std::string& path);

/// Makes those that are not there on the way to the path, for the owner only.
absl::Status make_private_folders_for(const std::string& path);
/// Puts a file with this text in the place of what is at the path, whole or not at all; for others to read where `mode`
/// says so. Folders on the way are made.
absl::Status write_whole_file(const std::string& path, std::string_view text, unsigned mode = 0600);
/// What the name of a file ends with before it is whole.
inline constexpr std::string_view kUnfinished = ".new";

}  // namespace sheaf::runtime
