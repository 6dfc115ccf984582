// The same entries make the same bytes, so a pack can be compared and cached itself.
#include "runtime/cache_pack.h"

#include <algorithm>
#include <map>
#include <sstream>
#include <tuple>
#include <utility>

#include "fmt/format.h"
#include "ir/words.h"
#include "runtime/cache_entry.h"

namespace sheaf::runtime {
namespace {

constexpr std::string_view kMagic = "sheaf pack 1\n";
constexpr std::int64_t kHeaderBytes = 13 + 12 + 9, kLineBytes = 32 + 1 + 8 + 1 + 13 + 1 + 13 + 1;

std::string header_of(std::int64_t lines) { return fmt::format("{}{:>12} entries\n", kMagic, lines); }

}  // namespace

absl::StatusOr<CachePlacePtr> CachePack::open(const std::string& path) {
  absl::StatusOr<PrivateFilePtr> file = PrivateFile::open(path);
  if (!file.ok()) return file.status();
  const std::string header = (*file)->read(0, kHeaderBytes).value_or("");
  const std::size_t digits = std::min(header.find_first_not_of(' ', kMagic.size()), header.size());
  const auto lines = ir::parse_int(std::string_view(header).substr(digits, header.find(' ', digits) - digits));
  if (!lines || header != header_of(*lines) || *lines < 0)
    return absl::InvalidArgumentError("it is no pack of this version of Sheaf");
  if (*lines > ((*file)->bytes() - kHeaderBytes) / kLineBytes)
    return absl::DataLossError(fmt::format("it is damaged: cut off within its table of {} entries", *lines));
  return CachePlacePtr(new CachePack(path, *std::move(file), *lines));
}

std::optional<CachePack::Line> CachePack::line(std::int64_t i) const {
  const auto text = file_->read(kHeaderBytes + i * kLineBytes, kLineBytes);
  Line line;
  if (!text || !(std::istringstream(*text) >> line.key >> line.kind >> line.offset >> line.bytes)) return {};
  return line;
}

// What is there and cannot be read is an empty text, which is no entry; none at all says that nothing is there.
std::optional<std::string> CachePack::read(std::string_view kind, std::string_view key) const {
  std::int64_t begin = 0, end = lines_;
  while (begin < end) {
    const std::int64_t middle = begin + (end - begin) / 2;
    const std::optional<Line> at = line(middle);
    if (!at) return "";
    if (std::tie(at->key, at->kind) == std::tie(key, kind)) return file_->read(at->offset, at->bytes).value_or("");
    if (std::tie(at->key, at->kind) < std::tie(key, kind)) begin = middle + 1;
    else end = middle;
  }
  return {};
}

std::vector<CacheFile> CachePack::list() const {
  std::vector<CacheFile> files;
  for (std::int64_t i = 0; i < lines_; ++i)
    if (const std::optional<Line> at = line(i)) files.push_back({path_, at->kind, at->key, at->bytes, file_->time_ns()});
  return files;
}

std::string to_pack(const std::vector<std::string>& files) {
  std::map<std::pair<std::string_view, std::string_view>, std::string_view> by_key;
  for (const std::string& file : files)
    if (const std::optional<CacheEntry> entry = parse_entry(file)) by_key[{entry->key, entry->kind}] = file;
  std::string table = header_of(std::ssize(by_key)), rest;
  const std::int64_t begin = kHeaderBytes + std::ssize(by_key) * kLineBytes;
  for (const auto& [id, file] : by_key) {
    table += fmt::format("{} {:<8} {:>13} {:>13}\n", id.first, id.second, begin + std::ssize(rest), file.size());
    rest += file;
  }
  return table + rest;
}

}  // namespace sheaf::runtime
