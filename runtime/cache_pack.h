// All entries of a cache in one file that is read and never written, as it ships in a container: a table of lines of
// one length, sorted by key, and the entries' files behind it. It is opened in no time whatever its size, because a
// line is found by halving and an entry checks itself; a damaged table therefore hides entries and does no more.
#pragma once

#include "runtime/cache_place.h"
#include "runtime/private_file.h"

namespace sheaf::runtime {

class CachePack final : public CachePlace {
 public:
  /// As open_cache_place; InvalidArgument if it is no pack, or one of another version.
  static absl::StatusOr<CachePlacePtr> open(const std::string& path);

  std::optional<std::string> read(std::string_view kind, std::string_view key) const override;
  std::string path_of(std::string_view, std::string_view) const override { return path_; }
  std::vector<CacheFile> list() const override;

 private:
  struct Line {
    std::string key, kind;
    std::int64_t offset = 0, bytes = 0;
  };
  CachePack(std::string path, PrivateFilePtr file, std::int64_t lines)
      : path_(std::move(path)), file_(std::move(file)), lines_(lines) {}
  std::optional<Line> line(std::int64_t i) const;

  const std::string path_;
  const PrivateFilePtr file_;
  const std::int64_t lines_;
};

/// The text of a pack with the entries in these files, in whatever order they come; what is no entry is left out.
std::string to_pack(const std::vector<std::string>& files);

}  // namespace sheaf::runtime
