// Where cache entries are read: a folder with a file for each (cache_folder.h), or a pack, one file with all of them
// (cache_pack.h). What is read is what is there; whether it is an entry says `parse_entry`.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace sheaf::runtime {

/// An entry as its place knows it, or a file whose writer has not come to rename it.
struct CacheFile {
  std::string path;        // of the pack, where it is in one
  std::string kind, key;   // empty: unfinished
  std::int64_t bytes = 0;  // of the disk
  std::int64_t used_ns = 0;  // when, since 1970, to the hour; of a pack: when it was made
};

class CachePlace {
 public:
  virtual ~CachePlace() = default;
  virtual std::optional<std::string> read(std::string_view kind, std::string_view key) const = 0;
  /// The file that an entry is in, or would be.
  virtual std::string path_of(std::string_view kind, std::string_view key) const = 0;
  virtual std::vector<CacheFile> list() const = 0;
};
using CachePlacePtr = std::shared_ptr<const CachePlace>;

/// What is at the path. NotFound if there is nothing, PermissionDenied if another user could have written it.
absl::StatusOr<CachePlacePtr> open_cache_place(const std::string& path);

}  // namespace sheaf::runtime
