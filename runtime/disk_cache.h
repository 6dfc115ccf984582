// What processes have compiled, found by kind and key: in a folder that this process adds to, and in a second place
// that it only reads. Invariant: a reader gets the bytes that were stored under the key or nothing, and whatever goes
// wrong with the cache costs time, one warning, and nothing else.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "runtime/cache_folder.h"
#include "runtime/turn.h"
#include "sheaf/cache.h"

namespace sheaf::runtime {

struct DiskCacheOptions {
  std::string folder = {};     // empty: none
  std::string read_only = {};  // a folder or a pack; empty: none
  std::int64_t limit_bytes = std::int64_t{1} << 30;  // of the folder
  std::string trouble = {};    // what made no sense in the environment; empty: nothing
};

/// As the environment has it: SHEAF_CACHE_DIR, a folder or "off", and without it $XDG_CACHE_HOME/sheaf or
/// ~/.cache/sheaf; SHEAF_CACHE_READONLY; SHEAF_CACHE_LIMIT.
DiskCacheOptions disk_cache_options();

class DiskCache {
 public:
  /// What is wrong with the options is a warning, and a place that another user could have written is not used.
  explicit DiskCache(DiskCacheOptions options);
  /// The process's, made at the first use. Never destroyed.
  static DiskCache& global();

  struct Found {
    std::string bytes, path;  // the path: of the entry's file, or of the pack
  };
  std::optional<Found> find(std::string_view kind, std::string_view key);
  /// Takes the place of what is there. `about`: one line for people.
  void store(std::string_view kind, std::string_view key, std::string_view about, std::string_view bytes);
  /// To make the entry: while one process has it, the others wait, and look for the entry again.
  Turn turn(std::string_view kind, std::string_view key) const;
  /// Bytes of an entry that came with a file, `from`: found before what is stored.
  void carry(std::string_view kind, std::string_view key, std::string bytes, std::string from);
  CacheStats stats() const;

 private:
  std::optional<Found> find_in(const CachePlace& place, std::string_view kind, std::string_view key);
  void sweep_where_due(std::int64_t bytes_to_store);
  void warn(const std::string& trouble);

  const DiskCacheOptions options_;
  const CacheFolder folder_;
  bool has_folder_ = false;
  CachePlacePtr read_only_;
  std::atomic<std::int64_t> unswept_bytes_{0};  // stored since the last sweep, or about to be
  std::once_flag not_written_, damaged_;  // warned of

  mutable std::mutex mutex_;  // guards the rest
  CacheStats stats_;
  std::map<std::pair<std::string, std::string>, Found> carried_;  // by kind and key
};

}  // namespace sheaf::runtime
