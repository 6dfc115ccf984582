// A folder that processes share: bytes by kind and key, each in a file of its own behind a header with their length and
// checksum. Invariant: a file has all its bytes before it has its name, and what is not as its header says counts as
// not there, so a reader gets what was stored or nothing; whatever goes wrong with the folder costs time only.
#pragma once

#include <mutex>
#include <optional>
#include <string>
#include <string_view>

namespace sheaf::runtime {

class DiskCache {
 public:
  /// In this folder, which is made when something is stored.
  explicit DiskCache(std::string folder) : folder_(std::move(folder)) {}
  /// In the folder that SHEAF_CACHE_DIR names; null without it.
  static DiskCache* global();

  /// What was stored last under the key, 32 hexadecimal digits.
  std::optional<std::string> find(std::string_view kind, std::string_view key) const;
  /// Takes the place of what is there. Where that fails, one warning.
  void store(std::string_view kind, std::string_view key, std::string_view bytes);
  std::string path_of(std::string_view kind, std::string_view key) const;

 private:
  void warn_once(const std::string& path, const std::string& why);

  const std::string folder_;
  std::once_flag warned_;
};

}  // namespace sheaf::runtime
