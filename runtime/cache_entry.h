// One entry of a cache as a file holds it: bytes behind a header of four lines, so that `head -4` tells what a file is.
// Invariant: `parse_entry` takes nothing but a whole file that `to_text` made, whatever became of it on the way.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace sheaf::runtime {

struct CacheEntry {
  std::string_view kind;  // "object", "kernel", "cubin"
  std::string_view key;  // 32 hexadecimal digits, of all that determines the bytes
  std::string_view about;  // one line for people: what it is, for what, and who made it
  std::string_view bytes;
};

std::string to_text(const CacheEntry& entry);
/// Views into `file`; none where it was cut, lengthened or changed.
std::optional<CacheEntry> parse_entry(std::string_view file);
/// Whether it begins as an entry of another version of the format does, which is no damage.
bool is_of_other_version(std::string_view file);

/// Whether the words may be part of a file's name: up to eight letters, and a fingerprint.
bool is_kind(std::string_view word);
bool is_key(std::string_view word);

}  // namespace sheaf::runtime
