// The policy above the places: where they are, whom they may belong to, when the folder is swept, and what is said.
#include "runtime/disk_cache.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <utility>

#include "fmt/format.h"
#include "ir/log.h"
#include "runtime/allocator.h"
#include "runtime/cache_entry.h"
#include "runtime/private_file.h"

namespace sheaf::runtime {
namespace {

/// A process that stores this part of the limit sweeps without waiting for its hour.
constexpr std::int64_t kSweepsPerLimit = 10;

std::string variable(const char* name) {
  const char* text = std::getenv(name);
  return text ? text : "";
}

/// Of a process that may change its working directory.
std::string absolute(const std::string& path) {
  std::error_code error;
  const std::filesystem::path there = std::filesystem::absolute(path, error);
  return path.empty() || error ? path : there.string();
}

/// Where there is none, why: a home that is another user's, as after sudo, would get folders that its owner cannot use.
absl::StatusOr<std::string> default_folder() {
  const std::string cache = variable("XDG_CACHE_HOME"), home = variable("HOME");
  const bool has_cache = cache.starts_with('/');
  if (!has_cache && !home.starts_with('/'))
    return absl::NotFoundError("neither HOME nor XDG_CACHE_HOME names a folder");
  struct stat s;
  const std::string& there = has_cache ? cache : home;
  if (stat(there.c_str(), &s) == 0 && s.st_uid != geteuid() && s.st_uid != 0)
    return absl::NotFoundError(fmt::format("{} belongs to another user", there));
  return has_cache ? cache + "/sheaf" : home + "/.cache/sheaf";
}

}  // namespace

DiskCacheOptions disk_cache_options() {
  DiskCacheOptions options{.folder = variable("SHEAF_CACHE_DIR"),
                           .read_only = absolute(variable("SHEAF_CACHE_READONLY"))};
  if (options.folder.empty()) {
    const absl::StatusOr<std::string> folder = default_folder();
    if (folder.ok()) options.folder = *folder;
    else
      options.trouble = fmt::format(
          "what this process compiles is not kept for others, because {}; SHEAF_CACHE_DIR can name a folder, and "
          "SHEAF_CACHE_DIR=off says that none is wanted",
          std::string(folder.status().message()));
  }
  options.folder = options.folder == "off" ? "" : absolute(options.folder);
  if (const std::string text = variable("SHEAF_CACHE_LIMIT"); !text.empty()) {
    if (const auto limit = parse_bytes(text); limit.ok()) options.limit_bytes = *limit;
    else options.trouble = fmt::format("SHEAF_CACHE_LIMIT: {}; the limit is 1G", std::string(limit.status().message()));
  }
  return options;
}

DiskCache& DiskCache::global() {
  static DiskCache* const cache = new DiskCache(disk_cache_options());
  return *cache;
}

DiskCache::DiskCache(DiskCacheOptions options)
    : options_(std::move(options)), folder_(options_.folder), has_folder_(!options_.folder.empty()) {
  if (!options_.trouble.empty()) warn(options_.trouble);
  if (has_folder_) {
    const absl::Status status = check_private_folder(options_.folder);
    has_folder_ = status.ok() || !absl::IsPermissionDenied(status);
    if (!has_folder_)
      warn(fmt::format("{} is not used as a cache: {}", options_.folder, std::string(status.message())));
  }
  if (!options_.read_only.empty()) {
    absl::StatusOr<CachePlacePtr> place = open_cache_place(options_.read_only);
    stats_.damaged += absl::IsDataLoss(place.status());
    if (place.ok()) read_only_ = *std::move(place);
    else
      warn(fmt::format("{} is not used as a second cache: {}", options_.read_only,
                       std::string(place.status().message())));
  }
  stats_.folder = has_folder_ ? options_.folder : "";
  stats_.read_only = read_only_ ? options_.read_only : "";
}

std::optional<DiskCache::Found> DiskCache::find(std::string_view kind, std::string_view key) {
  {
    std::lock_guard lock(mutex_);
    const auto it = carried_.find(std::pair(std::string(kind), std::string(key)));
    if (it != carried_.end()) return it->second;
  }
  std::optional<Found> found = has_folder_ ? find_in(folder_, kind, key) : std::nullopt;
  const bool is_read_only = !found && read_only_;
  if (is_read_only) found = find_in(*read_only_, kind, key);
  std::lock_guard lock(mutex_);
  ++(found ? stats_.hits : stats_.misses);
  if (found && is_read_only) ++stats_.hits_read_only;
  return found;
}

std::optional<DiskCache::Found> DiskCache::find_in(const CachePlace& place, std::string_view kind,
                                                   std::string_view key) {
  const std::optional<std::string> file = place.read(kind, key);
  if (!file) return {};
  const std::optional<CacheEntry> entry = parse_entry(*file);
  const std::string path = place.path_of(kind, key);
  if (entry && entry->kind == kind && entry->key == key) return Found{std::string(entry->bytes), path};
  if (is_of_other_version(*file)) return {};
  std::call_once(damaged_, [&] {
    warn(&place == &folder_
             ? fmt::format("{} is damaged in the cache, and compiled anew", path)
             : fmt::format("{} is damaged: its entry {} {} is compiled anew, and not mended there, because "
                           "SHEAF_CACHE_READONLY is only read",
                           path, kind, key));
  });
  std::lock_guard lock(mutex_);
  ++stats_.damaged;
  return {};
}

Turn DiskCache::turn(std::string_view kind, std::string_view key) const {
  return has_folder_ ? Turn(folder_.path_of(kind, key)) : Turn();
}

void DiskCache::store(std::string_view kind, std::string_view key, std::string_view about, std::string_view bytes) {
  const std::string file = to_text({kind, key, about, bytes});
  if (has_folder_) sweep_where_due(std::ssize(file));
  const absl::Status status = has_folder_ ? folder_.write(kind, key, file) : absl::UnavailableError("no folder");
  if (has_folder_ && !status.ok())
    std::call_once(not_written_, [&] {
      warn(fmt::format("the cache cannot be written, so other processes compile this again: {}: {}",
                       folder_.path_of(kind, key), std::string(status.message())));
    });
  std::lock_guard lock(mutex_);
  ++(status.ok() ? stats_.stored : stats_.not_stored);
  if (status.ok()) stats_.stored_bytes += std::ssize(file);
}

// Before something is stored, so that it is not what goes.
void DiskCache::sweep_where_due(std::int64_t bytes_to_store) {
  const bool has_stored_much = (unswept_bytes_ += bytes_to_store) > options_.limit_bytes / kSweepsPerLimit;
  if (!has_stored_much && !folder_.claim_sweep()) return;
  unswept_bytes_ = 0;
  const std::int64_t freed = folder_.sweep(options_.limit_bytes - bytes_to_store);
  if (freed) ir::log(ir::LogTopic::cache, "{} bytes swept out of {}", freed, options_.folder);
  std::lock_guard lock(mutex_);
  stats_.swept_bytes += freed;
}

void DiskCache::warn(const std::string& trouble) {
  {
    std::lock_guard lock(mutex_);
    if (stats_.trouble.empty()) stats_.trouble = trouble;
  }
  ir::warn(trouble);
}

void DiskCache::carry(std::string_view kind, std::string_view key, std::string bytes, std::string from) {
  std::lock_guard lock(mutex_);
  carried_.insert_or_assign(std::pair(std::string(kind), std::string(key)), Found{std::move(bytes), std::move(from)});
}

CacheStats DiskCache::stats() const {
  std::lock_guard lock(mutex_);
  return stats_;
}

}  // namespace sheaf::runtime

namespace sheaf {

CacheStats cache_stats() { return runtime::DiskCache::global().stats(); }

}  // namespace sheaf
