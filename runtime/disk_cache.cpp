// The header is text, so that `head -3` tells what a file is: its third line ends it. A file is written under a name of
// its own and renamed; of two processes that store the same, either one's stays.
#include "runtime/disk_cache.h"

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>

#include "codegen/fingerprint.h"
#include "fmt/format.h"
#include "ir/log.h"

namespace sheaf::runtime {
namespace {

namespace fs = std::filesystem;

std::string header_of(std::string_view kind, std::string_view key, std::string_view bytes) {
  return fmt::format("sheaf cache 1\n{} {}\n{} bytes, {}\n", kind, key, bytes.size(), codegen::fingerprint(bytes));
}

std::size_t header_end(std::string_view file) {
  std::size_t end = 0;
  for (int line = 0; line < 3 && end != file.npos; ++line) end = file.find('\n', end == 0 ? 0 : end + 1);
  return end == file.npos ? file.size() : end + 1;
}

std::string unique_suffix() {
  static std::atomic<int> next{0};
  return fmt::format(".{}.{}.new", getpid(), next++);
}

}  // namespace

DiskCache* DiskCache::global() {
  static DiskCache* const cache = [] {
    const char* folder = std::getenv("SHEAF_CACHE_DIR");
    return folder && *folder ? new DiskCache(folder) : nullptr;
  }();
  return cache;
}

// In 256 folders, since some file systems are slow with many files in one.
std::string DiskCache::path_of(std::string_view kind, std::string_view key) const {
  return fmt::format("{}/{}/{}.{}", folder_, key.substr(0, 2), key, kind);
}

std::optional<std::string> DiskCache::find(std::string_view kind, std::string_view key) const {
  std::error_code error;
  if (!fs::is_regular_file(path_of(kind, key), error)) return {};  // what else could be read may have no end
  std::ifstream in(path_of(kind, key), std::ios::binary);
  if (!in) return {};
  std::ostringstream read;
  read << in.rdbuf();  // which throws nothing, whatever the disk does
  const std::string file = read.str();
  const std::size_t begin = header_end(file);
  const std::string_view bytes = std::string_view(file).substr(begin);
  if (std::string_view(file).substr(0, begin) == header_of(kind, key, bytes)) return file.substr(begin);
  ir::log(ir::LogTopic::cache, "{} is damaged, or of another version", path_of(kind, key));
  return {};
}

void DiskCache::store(std::string_view kind, std::string_view key, std::string_view bytes) {
  const std::string path = path_of(kind, key), beside = path + unique_suffix();
  std::error_code error;
  fs::create_directories(fs::path(path).parent_path(), error);
  if (error) return warn_once(path, error.message());
  errno = 0;
  std::ofstream out(beside, std::ios::binary);
  out << header_of(kind, key, bytes) << bytes;
  out.close();
  if (!out) {
    const std::string why = std::strerror(errno);
    fs::remove(beside, error);
    return warn_once(path, why);
  }
  fs::rename(beside, path, error);
  if (!error) return;
  const std::string why = error.message();
  fs::remove(beside, error);
  warn_once(path, why);
}

void DiskCache::warn_once(const std::string& path, const std::string& why) {
  std::call_once(warned_, [&] {
    ir::warn(fmt::format("the cache cannot be written, so other processes compile this again: {}: {}", path, why));
  });
}

}  // namespace sheaf::runtime
