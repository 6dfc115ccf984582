// A folder of cache entries that processes share, each in a file of its own. Invariants: a file has all its bytes
// before it has its name; nothing is read that another user could have written; and nothing is deleted but files with
// the names that the cache gives.
#pragma once

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "runtime/cache_place.h"

namespace sheaf::runtime {

class CacheFolder final : public CachePlace {
 public:
  explicit CacheFolder(std::string path) : path_(std::move(path)) {}

  const std::string& path() const { return path_; }
  std::string path_of(std::string_view kind, std::string_view key) const override;
  /// The whole file, if it is one that can be trusted. One that was last used an hour ago or earlier becomes one that
  /// was used now.
  std::optional<std::string> read(std::string_view kind, std::string_view key) const override;
  /// Puts the file in the place of what is there, whole or not at all; makes the folder, for its owner only.
  absl::Status write(std::string_view kind, std::string_view key, std::string_view file) const;
  std::vector<CacheFile> list() const override;

  /// True for one caller an hour, of whatever process.
  bool claim_sweep() const;
  /// Deletes what nobody has come to finish; and where there are more bytes than the limit, what was used longest ago,
  /// until four fifths of the limit are left. The bytes freed.
  std::int64_t sweep(std::int64_t limit) const;

 private:
  const std::string path_;
};

}  // namespace sheaf::runtime
