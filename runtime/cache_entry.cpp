// The header is parsed for its fields and then compared whole with the one that those fields and bytes would get.
#include "runtime/cache_entry.h"

#include <algorithm>
#include <array>

#include "codegen/fingerprint.h"
#include "fmt/format.h"

namespace sheaf::runtime {
namespace {

constexpr std::string_view kMagic = "sheaf cache ", kVersion = "sheaf cache 2";

std::string header_of(const CacheEntry& e) {
  const std::string lines = fmt::format("{}\n{} {}\n{}\n", kVersion, e.kind, e.key, e.about);
  return fmt::format("{}{} bytes, {}\n", lines, e.bytes.size(),
                     codegen::fingerprint(lines + codegen::fingerprint(e.bytes)));
}

}  // namespace

std::string to_text(const CacheEntry& entry) {
  std::string about(entry.about);
  std::ranges::replace(about, '\n', ' ');
  std::string text = header_of({entry.kind, entry.key, about, entry.bytes});
  return text += entry.bytes;
}

std::optional<CacheEntry> parse_entry(std::string_view file) {
  std::array<std::string_view, 4> lines;
  std::string_view rest = file;
  for (std::string_view& line : lines) {
    const std::size_t end = rest.find('\n');
    if (end == rest.npos) return {};
    line = rest.substr(0, end);
    rest.remove_prefix(end + 1);
  }
  const std::size_t space = lines[1].find(' ');
  if (lines[0] != kVersion || space == lines[1].npos) return {};
  const CacheEntry entry{lines[1].substr(0, space), lines[1].substr(space + 1), lines[2], rest};
  if (!is_kind(entry.kind) || !is_key(entry.key)) return {};  // they become the name of a file
  const std::string_view header = file.substr(0, file.size() - rest.size());
  return header == header_of(entry) ? std::optional(entry) : std::nullopt;
}

bool is_of_other_version(std::string_view file) {
  const std::string_view line = file.substr(0, file.find('\n'));
  return line.size() < file.size() && line.starts_with(kMagic) && line != kVersion;
}

bool is_kind(std::string_view word) {
  return !word.empty() && word.size() <= 8 && std::ranges::all_of(word, [](char c) { return c >= 'a' && c <= 'z'; });
}

bool is_key(std::string_view word) {
  return word.size() == 32 &&
         std::ranges::all_of(word, [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

}  // namespace sheaf::runtime
