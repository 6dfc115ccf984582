// Times are the file system's, to the hour: an entry that is used is touched once an hour at most, so that reading
// costs no write. A time to come is that of a clock that was wrong, and says nothing.
#include "runtime/cache_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <utility>

#include "fmt/format.h"
#include "runtime/cache_entry.h"
#include "runtime/private_file.h"

namespace sheaf::runtime {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kSecond = 1'000'000'000, kHour = 3600 * kSecond;
/// After which a file without its name has no writer any more.
constexpr std::int64_t kWritingTakes = 600 * kSecond;

std::int64_t ns_of(const timespec& t) { return t.tv_sec * kSecond + t.tv_nsec; }

std::int64_t now() {
  timespec t{};
  clock_gettime(CLOCK_REALTIME, &t);
  return ns_of(t);
}

bool is_past(std::int64_t time_ns, std::int64_t age) { return std::abs(now() - time_ns) >= age; }

/// What the name says, if it is one that the cache gives: KEY.KIND, or that and more if its writer has not renamed it.
std::optional<CacheFile> named(const fs::path& path) {
  const std::string name = path.filename();
  if (name.size() < 34 || name[32] != '.' || !is_key(name.substr(0, 32))) return {};
  if (name.ends_with(kUnfinished)) return CacheFile{.path = path, .kind = "", .key = ""};
  const std::string kind = name.substr(33);
  if (!is_kind(kind)) return {};
  return CacheFile{.path = path, .kind = kind, .key = name.substr(0, 32)};
}

/// Others change the folder meanwhile; what has gone when it is asked for is not there.
std::vector<fs::path> paths_in(const fs::path& folder) {
  std::vector<fs::path> paths;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    paths.push_back(at->path());
  return paths;
}

}  // namespace

// In 256 folders, since some file systems are slow with many files in one.
std::string CacheFolder::path_of(std::string_view kind, std::string_view key) const {
  return fmt::format("{}/{}/{}.{}", path_, key.substr(0, 2), key, kind);
}

std::optional<std::string> CacheFolder::read(std::string_view kind, std::string_view key) const {
  const absl::StatusOr<PrivateFilePtr> file = PrivateFile::open(path_of(kind, key));
  if (!file.ok()) return {};
  if (is_past((*file)->time_ns(), kHour)) (*file)->touch();
  return (*file)->read(0, (*file)->bytes());
}

absl::Status CacheFolder::write(std::string_view kind, std::string_view key, std::string_view file) const {
  return write_whole_file(path_of(kind, key), file);
}

std::vector<CacheFile> CacheFolder::list() const {
  std::vector<CacheFile> files;
  for (const fs::path& folder : paths_in(path_)) {
    if (folder.filename().native().size() != 2) continue;
    for (const fs::path& path : paths_in(folder)) {
      std::optional<CacheFile> file = named(path);
      struct stat s;
      if (!file || lstat(path.c_str(), &s) != 0 || !S_ISREG(s.st_mode)) continue;
      file->bytes = std::max<std::int64_t>(s.st_size, s.st_blocks * 512);
      file->used_ns = ns_of(s.st_mtim) >= now() + kHour ? 0 : ns_of(s.st_mtim);
      files.push_back(*std::move(file));
    }
  }
  return files;
}

bool CacheFolder::claim_sweep() const {
  const std::string stamp = path_ + "/swept";
  struct stat s;
  if (stat(stamp.c_str(), &s) == 0 && !is_past(ns_of(s.st_mtim), kHour)) return false;
  return write_whole_file(stamp, "").ok();
}

std::int64_t CacheFolder::sweep(std::int64_t limit) const {
  std::vector<CacheFile> files = list();
  std::ranges::sort(files, {}, &CacheFile::used_ns);
  std::int64_t total = 0, freed = 0;
  const auto remove = [&](const CacheFile& file) {
    if (unlink(file.path.c_str()) == 0) freed += file.bytes;
    total -= file.bytes;
  };
  for (const CacheFile& file : files) total += file.bytes;
  const std::int64_t most = total > limit ? limit / 5 * 4 : limit;
  for (const CacheFile& file : files)
    if (file.key.empty() ? now() - file.used_ns >= kWritingTakes : total > most) remove(file);
  return freed;
}

}  // namespace sheaf::runtime
